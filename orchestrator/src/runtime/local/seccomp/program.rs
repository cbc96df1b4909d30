//! Compiles a table of system calls into a program that the kernel installs quickly.
//!
//! When a filter is installed, the kernel runs it once for every number of a call, to learn which calls it always allows. If the
//! program compares the number with one call after the other, this takes more than a millisecond, a tenth of a create. So the
//! program finds the number by halving, and neighbours with the same answer are one case:
//!
//! ```text
//! architecture? ── number < 200? ─┬─ number < 90? ─┬─ 0…56: allow
//!                                 │                └─ 57…89: compare arguments, answer
//!                                 └─ …
//! ```

use std::collections::BTreeMap;

use seccompiler::{BpfProgram, sock_filter};

#[cfg(target_arch = "x86_64")]
pub const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
pub const ARCHITECTURE: u32 = 0xc000_00b7;

/// The most instructions that the kernel takes.
const MAX_INSTRUCTIONS: usize = 4096;

/// Offsets in what the kernel shows to a filter. Both architectures have the lower half of an argument first.
const NUMBER_OFFSET: u32 = 0;
const ARCHITECTURE_OFFSET: u32 = 4;
const ARGUMENTS_OFFSET: u32 = 16;
const ARGUMENT_BYTES: u32 = 8;

/// Operations of classic BPF.
pub const LOAD: u16 = 0x20;
pub const AND: u16 = 0x54;
pub const JUMP: u16 = 0x05;
pub const JUMP_IF_EQUAL: u16 = 0x15;
pub const JUMP_IF_AT_LEAST: u16 = 0x35;
pub const RETURN: u16 = 0x06;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    Allow,
    /// The call fails with this error.
    Errno(u32),
    /// The process ends: it uses another architecture.
    Kill,
}

/// A comparison of the lower half of an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Condition {
    argument: u8,
    mask: u32,
    value: u32,
}

/// What is answered to a call: that of the first case whose conditions all hold, or else `otherwise`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    cases: Vec<(Vec<Condition>, Answer)>,
    otherwise: Answer,
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("the system call filter has a part that is too long for a jump, or more than {MAX_INSTRUCTIONS} instructions")]
pub struct ProgramError;

impl Answer {
    pub fn value(self) -> u32 {
        match self {
            Self::Allow => libc::SECCOMP_RET_ALLOW,
            Self::Errno(error) => libc::SECCOMP_RET_ERRNO | (error & libc::SECCOMP_RET_DATA),
            Self::Kill => libc::SECCOMP_RET_KILL_PROCESS,
        }
    }
}

impl Condition {
    pub fn equal(argument: u8, value: u32) -> Self {
        Self::masked(argument, u32::MAX, value)
    }

    /// The bits of `mask` are those of `value`.
    pub fn masked(argument: u8, mask: u32, value: u32) -> Self {
        Self { argument, mask, value }
    }
}

impl Rule {
    pub fn always(answer: Answer) -> Self {
        Self { cases: Vec::new(), otherwise: answer }
    }

    /// The same rule with one more case.
    pub fn unless(mut self, conditions: Vec<Condition>, answer: Answer) -> Self {
        self.cases.push((conditions, answer));
        self
    }
}

/// Makes the program. Calls that are not in `rules` get `otherwise`.
pub fn compile(rules: &BTreeMap<u32, Rule>, otherwise: Answer) -> Result<BpfProgram, ProgramError> {
    let mut program = vec![
        instruction(LOAD, ARCHITECTURE_OFFSET),
        jump(JUMP_IF_EQUAL, ARCHITECTURE, 1, 0),
        instruction(RETURN, Answer::Kill.value()),
        instruction(LOAD, NUMBER_OFFSET),
    ];
    program.extend(search(&ranges(rules, otherwise))?);
    if program.len() > MAX_INSTRUCTIONS { Err(ProgramError) } else { Ok(program) }
}

/// The numbers at which another rule begins. The first is 0, and the last goes on to the highest number.
fn ranges(rules: &BTreeMap<u32, Rule>, otherwise: Answer) -> Vec<(u32, Rule)> {
    let mut ranges = vec![(0, Rule::always(otherwise))];
    let mut begin = |number: u32, rule: Rule| match ranges.last_mut() {
        Some((start, last)) if *start == number => *last = rule,
        _ => ranges.push((number, rule)),
    };
    for (number, rule) in rules {
        begin(*number, rule.clone());
        if let Some(next) = number.checked_add(1) {
            begin(next, Rule::always(otherwise));
        }
    }
    ranges.dedup_by(|(_, later), (_, earlier)| later == earlier);
    ranges
}

/// The code that finds the range of the loaded number, and answers.
fn search(ranges: &[(u32, Rule)]) -> Result<BpfProgram, ProgramError> {
    let (earlier, later) = ranges.split_at(ranges.len() / 2);
    let (Some(_), Some((start, _))) = (earlier.first(), later.first()) else {
        return ranges.first().map_or(Err(ProgramError), |(_, rule)| answer(rule));
    };
    let (lower, upper) = (search(earlier)?, search(later)?);
    let mut program = match u8::try_from(lower.len()) {
        Ok(distance) => vec![jump(JUMP_IF_AT_LEAST, *start, distance, 0)],
        // A conditional jump goes no further than 255 instructions.
        Err(_) => vec![
            jump(JUMP_IF_AT_LEAST, *start, 0, 1),
            instruction(JUMP, u32::try_from(lower.len()).map_err(|_| ProgramError)?),
        ],
    };
    program.extend(lower);
    program.extend(upper);
    Ok(program)
}

fn answer(rule: &Rule) -> Result<BpfProgram, ProgramError> {
    let mut program = Vec::new();
    for (conditions, answer) in &rule.cases {
        let mut case = vec![instruction(RETURN, answer.value())];
        // From the last to the first, because each one jumps over what follows it.
        for condition in conditions.iter().rev() {
            let beyond = u8::try_from(case.len()).map_err(|_| ProgramError)?;
            let mut check = vec![instruction(LOAD, ARGUMENTS_OFFSET + ARGUMENT_BYTES * u32::from(condition.argument))];
            if condition.mask != u32::MAX {
                check.push(instruction(AND, condition.mask));
            }
            check.push(jump(JUMP_IF_EQUAL, condition.value, 0, beyond));
            check.append(&mut case);
            case = check;
        }
        program.extend(case);
    }
    program.push(instruction(RETURN, rule.otherwise.value()));
    Ok(program)
}

fn instruction(code: u16, k: u32) -> sock_filter {
    jump(code, k, 0, 0)
}

fn jump(code: u16, k: u32, if_true: u8, if_false: u8) -> sock_filter {
    sock_filter { code, jt: if_true, jf: if_false, k }
}

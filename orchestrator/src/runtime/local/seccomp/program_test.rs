//! The program is run by an interpreter of its own and compared with what the lists of calls say.

use std::collections::BTreeMap;

use proptest::prelude::*;
use seccompiler::BpfProgram;

use super::program::{
    AND, ARCHITECTURE, Answer, Condition, JUMP, JUMP_IF_AT_LEAST, JUMP_IF_EQUAL, LOAD, ProgramError, RETURN, Rule,
    compile,
};
use super::{NEW_USER, SHARING_IOCTLS, filter};
use crate::runtime::syscalls::{
    CLONE_NAMESPACES, Debugging, FORBIDDEN_IOCTLS, NO_SUCH_CALL, NO_SUCH_FAMILY, NOT_PERMITTED, PERSONALITIES, SOCKETS,
    allowed, forbidden, forbidden_ptrace,
};

/// The most instructions that the search for a number may take: the kernel does it for every number at every create.
const MAX_STEPS: usize = 16;

/// What a filter sees of a call.
#[derive(Debug, Clone, Copy)]
struct Seen {
    architecture: u32,
    number: u32,
    arguments: [u64; 6],
}

impl Seen {
    fn call(number: u32, arguments: [u64; 6]) -> Self {
        Self { architecture: ARCHITECTURE, number, arguments }
    }

    fn word(&self, offset: u32) -> u32 {
        match offset {
            0 => self.number,
            4 => self.architecture,
            _ => {
                let (argument, half) = ((offset - 16) / 8, (offset - 16) % 8);
                u32::try_from(self.arguments[argument as usize] >> (8 * half) & 0xffff_ffff).unwrap()
            }
        }
    }
}

/// The program's answer, and the number of instructions until it.
fn run(program: &BpfProgram, seen: &Seen) -> (u32, usize) {
    let (mut at, mut loaded) = (0, 0);
    for steps in 1.. {
        let code = &program[at];
        at += 1;
        match code.code {
            LOAD => loaded = seen.word(code.k),
            AND => loaded &= code.k,
            JUMP => at += code.k as usize,
            JUMP_IF_EQUAL => at += usize::from(if loaded == code.k { code.jt } else { code.jf }),
            JUMP_IF_AT_LEAST => at += usize::from(if loaded >= code.k { code.jt } else { code.jf }),
            RETURN => return (code.k, steps),
            other => panic!("the program has operation {other:#x}"),
        }
    }
    unreachable!("a program only jumps forward")
}

/// The answer that the lists ask for, written without the rules.
fn expected(debugging: Debugging, namespace: Option<u32>, seen: &Seen) -> Answer {
    let number = i64::from(seen.number);
    let low = |argument: usize| seen.arguments[argument] & 0xffff_ffff;
    let answer = |is_allowed, error| if is_allowed { Answer::Allow } else { Answer::Errno(error) };
    match number {
        libc::SYS_clone => answer(low(0) & CLONE_NAMESPACES == 0, NO_SUCH_CALL),
        libc::SYS_socket => {
            let is_known = SOCKETS
                .iter()
                .any(|socket| socket.family == low(0) && socket.protocol.is_none_or(|protocol| protocol == low(2)));
            answer(is_known, NO_SUCH_FAMILY)
        }
        libc::SYS_personality => answer(PERSONALITIES.contains(&low(0)), NO_SUCH_CALL),
        libc::SYS_ioctl => {
            answer(!FORBIDDEN_IOCTLS.contains(&low(1)) && !SHARING_IOCTLS.contains(&low(1)), NOT_PERMITTED)
        }
        libc::SYS_ptrace => answer(!forbidden_ptrace(debugging).contains(&low(0)), NOT_PERMITTED),
        libc::SYS_copy_file_range => Answer::Errno(NO_SUCH_CALL),
        libc::SYS_setns => {
            let is_own = namespace.is_some_and(|own| low(0) == u64::from(own) && low(1) == u64::from(NEW_USER));
            answer(is_own, NOT_PERMITTED)
        }
        _ if forbidden(debugging).any(|call| call.number == number) => Answer::Errno(NOT_PERMITTED),
        _ => answer(allowed(debugging).any(|call| call.number == number), NO_SUCH_CALL),
    }
}

fn levels() -> impl Iterator<Item = (Debugging, Option<u32>)> {
    Debugging::ALL.into_iter().flat_map(|debugging| [(debugging, None), (debugging, Some(4))])
}

fn made(debugging: Debugging, namespace: Option<u32>) -> BpfProgram {
    filter(debugging, namespace.map(|number| i32::try_from(number).unwrap())).unwrap()
}

#[test]
fn every_call_gets_the_answer_of_the_lists() {
    // The last ones are numbers of x32, which the kernel may also offer.
    let numbers = (0..1024).chain(0x4000_0000..0x4000_0400).chain([u32::MAX - 1, u32::MAX]);
    let seen: Vec<Seen> = numbers.map(|number| Seen::call(number, [0; 6])).collect();
    for (debugging, namespace) in levels() {
        let program = made(debugging, namespace);
        for call in &seen {
            let wanted = expected(debugging, namespace, call).value();
            assert_eq!(run(&program, call).0, wanted, "{debugging:?} {namespace:?} call {}", call.number);
        }
    }
}

#[test]
fn calls_of_another_architecture_end_the_process() {
    let program = made(Debugging::Children, None);
    for architecture in [0, 0x4000_0003, !ARCHITECTURE] {
        let seen = Seen { architecture, ..Seen::call(0, [0; 6]) };
        assert_eq!(run(&program, &seen).0, Answer::Kill.value());
    }
}

#[test]
fn the_kernel_finds_every_number_in_few_steps() {
    for (debugging, namespace) in levels() {
        let program = made(debugging, namespace);
        let conditional = [
            libc::SYS_clone,
            libc::SYS_socket,
            libc::SYS_personality,
            libc::SYS_ioctl,
            libc::SYS_ptrace,
            libc::SYS_setns,
        ];
        for number in (0..512).filter(|number| !conditional.contains(&i64::from(*number))) {
            let (_, steps) = run(&program, &Seen::call(number, [0; 6]));
            assert!(steps <= MAX_STEPS, "{debugging:?}: call {number} takes {steps} steps");
        }
    }
}

#[test]
fn a_program_that_the_kernel_would_not_take_is_an_error() {
    let many: BTreeMap<u32, Rule> =
        (0..4000).map(|number| (2 * number, Rule::always(Answer::Errno(number % 7 + 1)))).collect();
    assert_eq!(compile(&many, Answer::Allow), Err(ProgramError));
    let long = (0..200).map(|value| Condition::equal(0, value)).collect();
    let rule = Rule::always(Answer::Allow).unless(long, Answer::Kill);
    assert_eq!(compile(&BTreeMap::from([(1, rule)]), Answer::Allow), Err(ProgramError));
}

fn argument() -> impl Strategy<Value = u64> {
    let known: Vec<u64> = [&FORBIDDEN_IOCTLS[..], &SHARING_IOCTLS[..], &PERSONALITIES[..]]
        .concat()
        .into_iter()
        .chain([0, 1, 2, 4, 10, 16, 0x4206, CLONE_NAMESPACES, u64::from(NEW_USER)])
        .collect();
    // The upper half is never looked at.
    (prop_oneof![proptest::sample::select(known), any::<u64>()], any::<bool>())
        .prop_map(|(value, is_high)| if is_high { value | 0xffff_ffff_0000_0000 } else { value })
}

proptest! {
    #[test]
    fn arguments_are_compared_as_the_lists_say(
        number in prop_oneof![
            Just(libc::SYS_clone), Just(libc::SYS_socket), Just(libc::SYS_personality), Just(libc::SYS_ioctl),
            Just(libc::SYS_ptrace), Just(libc::SYS_setns), 0..600i64,
        ],
        arguments in proptest::array::uniform6(argument()),
    ) {
        let seen = Seen::call(u32::try_from(number).unwrap(), arguments);
        for (debugging, namespace) in levels() {
            let program = made(debugging, namespace);
            prop_assert_eq!(run(&program, &seen).0, expected(debugging, namespace, &seen).value(), "{:?}", seen);
        }
    }

    /// Also programs that are much longer than ours, with jumps over more than 255 instructions.
    #[test]
    fn any_table_is_searched_right(
        table in proptest::collection::btree_map(0..2000u32, 1..5u32, 0..900),
        numbers in proptest::collection::vec(0..2100u32, 50),
    ) {
        let rules = table.iter().map(|(number, error)| (*number, Rule::always(Answer::Errno(*error)))).collect();
        let program = compile(&rules, Answer::Allow).unwrap();
        for number in numbers {
            let wanted = table.get(&number).map_or(Answer::Allow, |error| Answer::Errno(*error));
            prop_assert_eq!(run(&program, &Seen::call(number, [0; 6])).0, wanted.value());
        }
    }
}

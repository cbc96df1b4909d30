//! What a runner refuses without looking at the sandbox. Pure.
//!
//! The daemon asks these rules before it touches a session, so that a request that can never work wakes nothing; the runner
//! asks them again, because it trusts nobody.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::{ExecRequest, InputRequest, MAX_ENDS_BYTES, MAX_PAGE_EXECS, OpenShellRequest, RunRequest};
use crate::{ErrorBody, ErrorCode};

/// The most columns or rows that a terminal can have. A larger size is a mistake, and some programs allocate memory by it.
pub const MAX_TERMINAL_SIDE: u16 = 1000;

/// The longest path that a file call takes; Linux takes no longer one.
pub const MAX_PATH_BYTES: usize = 4096;

/// The longest argument of a program, as Linux has it with pages of 4 KiB: 32 pages with the NUL at its end.
pub const MAX_ARG_BYTES: usize = (128 << 10) - 1;

/// The most bytes of all arguments together, each with its NUL and its pointer. Linux takes at most this much, however large a
/// stack may be; how much it takes of less depends on the limit of the stack.
pub const MAX_ARGV_BYTES: usize = 6 << 20;

/// A name that is refused is shown up to this length.
const MAX_SHOWN_CHARS: usize = 64;

fn invalid(message: impl Into<String>) -> ErrorBody {
    ErrorBody::new(ErrorCode::InvalidRequest, message)
}

impl ExecRequest {
    pub fn check(&self) -> Result<(), ErrorBody> {
        if self.cmd.contains('\0') || self.cwd.as_ref().is_some_and(|cwd| cwd.contains('\0')) {
            return Err(invalid("cmd and cwd cannot hold a NUL byte: bash would cut them off there"));
        }
        check_cwd(self.cwd.as_deref())?;
        if let Some(bytes) = self.ends_bytes.filter(|bytes| *bytes > MAX_ENDS_BYTES) {
            return Err(invalid(format!("ends_bytes is {bytes}; at most {MAX_ENDS_BYTES} are kept")));
        }
        check_variables(&self.env)?;
        check_payload("stdin", self.stdin.as_deref(), self.stdin_base64.as_deref())
    }
}

impl RunRequest {
    pub fn check(&self) -> Result<(), ErrorBody> {
        if self.argv.first().is_none_or(String::is_empty) {
            return Err(invalid("argv needs a program as its first element"));
        }
        if self.argv.iter().chain(&self.cwd).any(|word| word.contains('\0')) {
            return Err(invalid("argv and cwd cannot hold a NUL byte"));
        }
        if self.stdin_open && (self.stdin.is_some() || self.stdin_base64.is_some()) {
            return Err(invalid("give stdin, or stdin_open and send the input to it"));
        }
        check_argv(&self.argv)?;
        check_cwd(self.cwd.as_deref())?;
        check_variables(&self.env)?;
        check_payload("stdin", self.stdin.as_deref(), self.stdin_base64.as_deref())
    }
}

impl OpenShellRequest {
    pub fn check(&self) -> Result<(), ErrorBody> {
        check_size(self.cols, self.rows)?;
        check_cwd(self.cwd.as_deref())?;
        check_variables(&self.env)
    }
}

impl InputRequest {
    pub fn check(&self) -> Result<(), ErrorBody> {
        if self.data.is_none() && self.data_base64.is_none() {
            return Err(invalid("give data or data_base64"));
        }
        check_payload("data", self.data.as_deref(), self.data_base64.as_deref())
    }
}

/// Refuses arguments that no kernel takes. The reason of a run that failed for them would be as long as they are.
fn check_argv(argv: &[String]) -> Result<(), ErrorBody> {
    if let Some(program) = argv.first().filter(|program| program.len() > MAX_PATH_BYTES) {
        let message = format!("the program's name has {} bytes; a path has at most {MAX_PATH_BYTES}", program.len());
        return Err(invalid(message));
    }
    if let Some((at, word)) = argv.iter().enumerate().find(|(_, word)| word.len() > MAX_ARG_BYTES) {
        let message = format!("argv[{at}] has {} bytes; Linux takes at most {MAX_ARG_BYTES}", word.len());
        return Err(invalid(message));
    }
    let total: usize = argv.iter().map(|word| word.len() + 1 + size_of::<u64>()).sum();
    if total > MAX_ARGV_BYTES {
        return Err(invalid(format!("argv needs {total} bytes; Linux takes at most {MAX_ARGV_BYTES}")));
    }
    Ok(())
}

/// Refuses a directory whose name is longer than any path.
fn check_cwd(cwd: Option<&str>) -> Result<(), ErrorBody> {
    match cwd.map(str::len).filter(|bytes| *bytes > MAX_PATH_BYTES) {
        Some(bytes) => Err(invalid(format!("cwd has {bytes} bytes; a path has at most {MAX_PATH_BYTES}"))),
        None => Ok(()),
    }
}

/// The number of execs in a page of the list: the one that was asked for, or the most.
pub fn check_page_limit(asked: Option<u64>) -> Result<usize, ErrorBody> {
    match asked.map(usize::try_from) {
        None => Ok(MAX_PAGE_EXECS),
        Some(Ok(limit @ 1..=MAX_PAGE_EXECS)) => Ok(limit),
        Some(_) => Err(invalid(format!("limit goes from 1 to {MAX_PAGE_EXECS}"))),
    }
}

/// Refuses a terminal's size that is out of bounds; a side that is left out has a default.
pub fn check_size(cols: Option<u16>, rows: Option<u16>) -> Result<(), ErrorBody> {
    let fits = |side: Option<u16>| side.is_none_or(|side| (1..=MAX_TERMINAL_SIDE).contains(&side));
    if fits(cols) && fits(rows) {
        return Ok(());
    }
    Err(invalid(format!("cols and rows go from 1 to {MAX_TERMINAL_SIDE}")))
}

/// Refuses what cannot stand left of `=` in bash, and a value that no variable can hold.
pub fn check_variables(variables: &BTreeMap<String, String>) -> Result<(), ErrorBody> {
    for (name, value) in variables {
        let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
        if name.is_empty() || !name.bytes().all(plain) || name.as_bytes()[0].is_ascii_digit() {
            let shown: String = name.chars().take(MAX_SHOWN_CHARS).collect();
            let message =
                format!("{shown:?} is not a variable name: letters, digits and _, not beginning with a digit");
            return Err(invalid(message));
        }
        if value.contains('\0') {
            return Err(invalid(format!("the value of {name} holds a NUL byte, which no variable can")));
        }
    }
    Ok(())
}

/// Refuses a path that names nothing, whatever the sandbox holds: a relative one begins at the workspace and stays below it.
pub fn check_path(path: &[u8]) -> Result<(), ErrorBody> {
    if path.is_empty() || path.contains(&0) {
        return Err(invalid("path must not be empty or hold a NUL byte"));
    }
    if path.len() > MAX_PATH_BYTES {
        return Err(invalid(format!("path is longer than {MAX_PATH_BYTES} bytes")));
    }
    if path.first() == Some(&b'/') {
        return Ok(());
    }
    let mut depth = 0usize;
    for part in path.split(|b| *b == b'/') {
        match part {
            b"" | b"." => {}
            b".." => {
                depth =
                    depth.checked_sub(1).ok_or_else(|| invalid("path leaves the workspace: use an absolute path"))?;
            }
            _ => depth += 1,
        }
    }
    Ok(())
}

/// As [`super::decode_payload`], for who only wants to know whether it works.
fn check_payload(name: &str, text: Option<&str>, base64: Option<&str>) -> Result<(), ErrorBody> {
    match (text, base64) {
        (Some(_), Some(_)) => Err(invalid(format!("give {name} or {name}_base64, not both"))),
        (None, Some(encoded)) => match STANDARD.decode(encoded) {
            Ok(_) => Ok(()),
            Err(error) => Err(invalid(format!("{name}_base64 is not valid base64: {error}"))),
        },
        (_, None) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_bash_cannot_be_given_is_refused() {
        let request = |cmd: &str, name: &str| ExecRequest {
            cmd: cmd.into(),
            env: [(name.to_owned(), "v".to_owned())].into(),
            ..ExecRequest::default()
        };
        assert!(request("true", "A_1").check().is_ok());
        for (cmd, name) in [("a\0b", "A"), ("true", "1A"), ("true", "A B"), ("true", ""), ("true", "A;reboot")] {
            assert_eq!(request(cmd, name).check().unwrap_err().error_code, ErrorCode::InvalidRequest);
        }
        let cwd = ExecRequest { cwd: Some("a\0".into()), ..ExecRequest::default() };
        let ends = ExecRequest { ends_bytes: Some(MAX_ENDS_BYTES + 1), ..ExecRequest::default() };
        let value = ExecRequest { env: [("A".to_owned(), "\0".to_owned())].into(), ..ExecRequest::default() };
        for bad in [cwd, ends, value] {
            assert!(bad.check().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_run_needs_a_program() {
        let run = |argv: &[&str]| RunRequest {
            argv: argv.iter().map(|word| (*word).to_owned()).collect(),
            ..RunRequest::default()
        };
        assert!(run(&["true", ""]).check().is_ok());
        for bad in [run(&[]), run(&["", "x"]), run(&["a\0b"])] {
            assert!(bad.check().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn what_no_kernel_takes_is_refused_with_its_length() {
        let run = |argv: Vec<String>, cwd: Option<String>| RunRequest { argv, cwd, ..RunRequest::default() };
        let word = |bytes: usize| "x".repeat(bytes);
        let program = |last: String| vec!["true".to_owned(), last];
        assert!(run(program(word(MAX_ARG_BYTES)), Some(word(MAX_PATH_BYTES))).check().is_ok());
        assert!(run(vec![word(MAX_PATH_BYTES)], None).check().is_ok());
        let many = vec![word(MAX_ARG_BYTES); MAX_ARGV_BYTES / MAX_ARG_BYTES];
        for (bad, number) in [
            (run(vec![word(200_000)], None), "200000"),
            (run(program(word(MAX_ARG_BYTES + 1)), None), "131072"),
            (run([program(String::new()), many].concat(), None), "6291456"),
            (run(vec![String::from("x"); 1_000_000], None), "6291456"),
            (run(program(String::new()), Some(word(70_000))), "70000"),
        ] {
            let refused = bad.check().unwrap_err().to_string();
            assert!(refused.contains(number) && refused.len() < 200, "{refused}");
        }
        let cwd = Some(word(MAX_PATH_BYTES + 1));
        assert!(ExecRequest { cwd: cwd.clone(), ..ExecRequest::default() }.check().is_err());
        assert!(OpenShellRequest { cwd, ..OpenShellRequest::default() }.check().is_err());
    }

    #[test]
    fn a_page_has_from_one_to_a_thousand_execs() {
        assert_eq!(check_page_limit(None).unwrap(), MAX_PAGE_EXECS);
        assert_eq!(check_page_limit(Some(7)).unwrap(), 7);
        for bad in [0, MAX_PAGE_EXECS as u64 + 1, u64::MAX] {
            assert!(check_page_limit(Some(bad)).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_payload_comes_once_and_in_base64_where_it_says_so() {
        let input = |data: Option<&str>, base64: Option<&str>| InputRequest {
            shell: None,
            data: data.map(str::to_owned),
            data_base64: base64.map(str::to_owned),
        };
        assert!(input(Some(""), None).check().is_ok() && input(None, Some("YQ==")).check().is_ok());
        for bad in [input(None, None), input(Some("a"), Some("YQ==")), input(None, Some("Y"))] {
            assert!(bad.check().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_terminal_has_from_one_to_a_thousand_columns_and_rows() {
        for (cols, rows, fits) in
            [(None, None, true), (Some(1), Some(1000), true), (Some(0), None, false), (None, Some(1001), false)]
        {
            assert_eq!(check_size(cols, rows).is_ok(), fits, "{cols:?} {rows:?}");
        }
    }

    #[test]
    fn a_relative_path_stays_below_the_workspace() {
        for good in [&b"a"[..], b".", b"a/../b", b"/..", b"a//b/", b"./..a"] {
            assert!(check_path(good).is_ok(), "{good:?}");
        }
        let long = vec![b'a'; MAX_PATH_BYTES + 1];
        for bad in [&b""[..], b"a\0b", b"..", b"a/../..", b"./../x", &long] {
            assert!(check_path(bad).is_err(), "{bad:?}");
        }
    }
}

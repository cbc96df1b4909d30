//! Reads a command line to learn which program's output comes. A hint, not a promise: views confirm it by what they see.
//!
//! It understands what people type before a program: variables, `cd x &&`, `sudo`, `time`, `env`, `timeout 10`, `npx`, `uv run`,
//! `python -m`, `bash -c '…'`. Of a pipeline the last program counts, unless it only passes lines on (`tail`, `head`, `tee`). It expands
//! nothing and runs nothing.

/// Programs whose output has a view of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    Pytest,
    Unittest,
    Cargo,
    GoTest,
    Jest,
    Compiler,
    Eslint,
    Packages,
    Build,
    GitStatus,
    GitDiff,
    GitLog,
    Ls,
    Find,
    Tree,
    Grep,
    Curl,
    Table,
    /// Shows files as they are: `cat`, `sed`, `head`.
    Data,
    /// Prints nothing when all is well: `cd`, `export`, `mkdir`.
    Silent,
    Other,
}

/// Commands after this one are not looked at.
const MAX_COMMANDS: usize = 32;
/// `bash -c "bash -c …"` is followed this deep.
const MAX_DEPTH: usize = 3;

/// The programs that a command line runs.
#[derive(Clone, Debug, Default)]
pub struct CommandHint {
    programs: Vec<Program>,
}

impl CommandHint {
    /// Reads a command line as a shell would, without running or expanding anything.
    pub fn of(command: &str) -> Self {
        let mut hint = Self::default();
        hint.read(command, 0);
        hint
    }

    /// The program whose output this is, if there is only one that prints something.
    pub(crate) fn only(&self) -> Option<Program> {
        let mut printing = self.programs.iter().filter(|program| **program != Program::Silent);
        let first = *printing.next()?;
        printing.all(|other| *other == first).then_some(first)
    }

    fn read(&mut self, command: &str, depth: usize) {
        let mut pipeline: Vec<Program> = Vec::new();
        for Simple { words, is_piped_on } in split(command) {
            if self.programs.len() >= MAX_COMMANDS {
                break;
            }
            if let (true, Some(inner)) = (depth < MAX_DEPTH, inner_command(&words)) {
                self.read(&inner, depth + 1);
                continue;
            }
            let program = program_of(&words);
            let passes_on = program == Program::Data && !pipeline.is_empty();
            pipeline.push(if passes_on { *pipeline.last().unwrap_or(&program) } else { program });
            if !is_piped_on {
                self.programs.extend(pipeline.last());
                pipeline.clear();
            }
        }
        self.programs.extend(pipeline.last());
    }
}

struct Simple {
    words: Vec<String>,
    is_piped_on: bool,
}

/// Splits at `;`, `&`, `|` and newlines outside of quotes, and each command into words.
fn split(command: &str) -> Vec<Simple> {
    let (mut out, mut words, mut word) = (Vec::new(), Vec::new(), String::new());
    let (mut quote, mut is_redirect) = (None, false);
    let mut chars = command.chars().peekable();
    let end_word = |word: &mut String, words: &mut Vec<String>| {
        if !word.is_empty() {
            words.push(std::mem::take(word));
        }
    };
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some(_), c) => word.push(c),
            (None, '\'' | '"') => quote = Some(c),
            (None, '\\') => word.extend(chars.next().filter(|next| *next != '\n')),
            (None, '>' | '<') => {
                is_redirect = true;
                word.push(c);
            }
            (None, '&') if is_redirect => word.push(c),
            (None, ';' | '&' | '|' | '\n' | '(' | ')') => {
                end_word(&mut word, &mut words);
                let is_double = chars.next_if_eq(&c).is_some();
                out.push(Simple { words: std::mem::take(&mut words), is_piped_on: c == '|' && !is_double });
                is_redirect = false;
            }
            (None, c) if c.is_whitespace() => {
                end_word(&mut word, &mut words);
                is_redirect = false;
            }
            (None, c) => word.push(c),
        }
    }
    end_word(&mut word, &mut words);
    out.push(Simple { words, is_piped_on: false });
    out.retain(|simple| !simple.words.is_empty());
    out
}

/// The text after `bash -c`.
fn inner_command(words: &[String]) -> Option<String> {
    let shell = words.iter().position(|word| matches!(base(word), "bash" | "sh" | "dash" | "zsh"))?;
    let flag = words.iter().skip(shell).position(|word| word.starts_with('-') && word.ends_with('c'))?;
    words.get(shell + flag + 1).cloned()
}

fn base(word: &str) -> &str {
    word.rsplit('/').next().unwrap_or(word)
}

/// Takes away what stands before the program, then names the program.
fn program_of(words: &[String]) -> Program {
    let mut words: Vec<&str> = words.iter().map(String::as_str).collect();
    loop {
        let Some(&first) = words.first() else { return Program::Silent };
        let is_variable =
            first.split_once('=').is_some_and(|(name, _)| name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_'));
        let second = words.get(1).copied().unwrap_or_default();
        let skip = match base(first) {
            _ if is_variable || first.starts_with(['>', '<']) => 1,
            "sudo" | "time" | "nice" | "env" | "nohup" | "stdbuf" | "xvfb-run" | "command" | "exec" | "npx"
            | "bunx" | "timeout" | "ionice" => 1 + options(&words),
            "uv" | "poetry" | "pdm" | "pipenv" | "hatch" | "bundle" if second == "run" => 2,
            "pnpm" | "yarn" | "npm" | "bundle" if matches!(second, "exec" | "dlx") => 2,
            python if python.starts_with("python") && second == "-m" => 2,
            "then" | "do" | "else" | "if" | "!" | "{" | "while" => 1,
            _ => return named(base(first), words.get(1..).unwrap_or_default()),
        };
        words.drain(..skip.min(words.len()));
    }
}

/// The options of `sudo -u x`, `timeout 10`, `nice -n 19`: they start with a dash or a digit, or follow a short option that takes a value.
fn options(words: &[&str]) -> usize {
    let mut count = 0;
    let mut takes_value = false;
    for word in words.iter().skip(1) {
        let is_option = word.starts_with('-') || word.starts_with(|c: char| c.is_ascii_digit());
        if !is_option && !takes_value {
            break;
        }
        takes_value = matches!(*word, "-u" | "-g" | "-n" | "-s" | "-k" | "-p" | "--package");
        count += 1;
    }
    count
}

fn named(program: &str, arguments: &[&str]) -> Program {
    let first = arguments.iter().find(|word| !word.starts_with('-')).copied().unwrap_or_default();
    match program {
        "pytest" | "py.test" => Program::Pytest,
        "unittest" => Program::Unittest,
        "cargo" if first == "tree" => Program::Tree,
        "cargo" | "rustc" => Program::Cargo,
        "go" if matches!(first, "test" | "build" | "vet" | "run") => Program::GoTest,
        "jest" | "vitest" | "mocha" => Program::Jest,
        "eslint" => Program::Eslint,
        "npm" | "pnpm" if matches!(first, "ls" | "list") => Program::Tree,
        "npm" | "pnpm" | "yarn" | "pip" | "pip3" | "uv" | "apt" | "apt-get" | "bun" => Program::Packages,
        "make" | "gmake" | "cmake" | "ninja" | "bazel" => Program::Build,
        "gcc" | "g++" | "cc" | "c++" | "clang" | "clang++" | "tsc" | "javac" | "mypy" | "ruff" => Program::Compiler,
        "git" => git(arguments),
        "ls" | "ll" => Program::Ls,
        "find" | "fd" => Program::Find,
        "tree" => Program::Tree,
        "grep" | "rg" | "ag" | "ack" | "egrep" => Program::Grep,
        "curl" | "wget" => Program::Curl,
        "psql" | "kubectl" | "sqlite3" | "mysql" | "docker" | "ps" | "df" => Program::Table,
        "cat" | "sed" | "head" | "tail" | "tee" | "less" | "more" | "bat" | "nl" | "jq" | "awk" | "sort" | "uniq"
        | "cut" | "column" | "xxd" => Program::Data,
        "cd" | "export" | "set" | "mkdir" | "true" | "rm" | "cp" | "mv" | "touch" | "chmod" | "sleep" | "source"
        | "." | "pushd" | "popd" | "unset" | "ulimit" | "fi" | "done" => Program::Silent,
        clang if clang.starts_with("clang-") || clang.starts_with("gcc-") => Program::Compiler,
        _ => Program::Other,
    }
}

fn git(arguments: &[&str]) -> Program {
    let mut arguments = arguments.iter();
    while let Some(word) = arguments.next() {
        match *word {
            "-C" | "-c" => {
                arguments.next();
            }
            "status" => return Program::GitStatus,
            "diff" | "show" => return Program::GitDiff,
            "log" => return Program::GitLog,
            "ls-files" => return Program::Find,
            "grep" => return Program::Grep,
            word if word.starts_with('-') => {}
            _ => return Program::Other,
        }
    }
    Program::Other
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_before_a_program_is_skipped() {
        for command in [
            "pytest -q",
            "cd x && pytest",
            "A=1 B='2 3' pytest",
            "python3 -m pytest -v",
            "sudo -u me pytest",
            "time pytest",
            "timeout 10 pytest",
            "env A=1 pytest",
            "uv run pytest",
            "/usr/bin/pytest",
            "bash -lc 'cd x; pytest'",
            "pytest 2>&1 | tail -20",
            "nice -n 19 pytest",
            "pytest > log 2>&1",
        ] {
            assert_eq!(CommandHint::of(command).only(), Some(Program::Pytest), "{command}");
        }
    }

    #[test]
    fn the_last_program_of_a_pipeline_counts() {
        assert_eq!(CommandHint::of("cat a | grep -n b").only(), Some(Program::Grep));
        assert_eq!(CommandHint::of("git -C x log --oneline").only(), Some(Program::GitLog));
        assert_eq!(CommandHint::of("npx vitest run").only(), Some(Program::Jest));
    }

    #[test]
    fn two_programs_give_no_hint() {
        assert_eq!(CommandHint::of("npm ci && pytest").only(), None);
        assert_eq!(CommandHint::of("").only(), None);
        assert_eq!(CommandHint::of("echo 'a; pytest'").only(), Some(Program::Other));
    }
}

//! The views: each knows the output of one kind of program. This file chooses between them.
//!
//! A view starts because the command line names its program, or because a line is one that only its program prints; so `make check` and
//! `npm test` get the views of what they run. A view that is not sure of a line passes it on, and the generic filters keep it.

mod build;
mod cargo;
mod compiler;
mod curl;
mod eslint;
mod git_diff;
mod git_log;
mod git_status;
mod go_test;
mod grep;
mod jest;
mod json;
mod listing;
mod packages;
mod pytest;
mod table;
mod unittest;

use crate::command::{CommandHint, Program};
use crate::out::Out;

/// What a view did with a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    Taken,
    /// Not understood: the line goes to the generic filters.
    Pass,
    /// Understood, and the last line of this program.
    Done,
}

pub(crate) trait View: Send {
    fn line(&mut self, line: &str, out: &mut Out) -> Reading;

    /// Writes what the view still holds. The program may have been killed before it wrote a summary.
    fn finish(&mut self, _exit_code: Option<i32>, _out: &mut Out) {}

    fn held_bytes(&self) -> usize {
        0
    }
}

/// The view of the command line's program, and the one that the output called for.
pub(crate) struct Views {
    program: Option<Program>,
    hinted: Option<Box<dyn View>>,
    active: Option<Box<dyn View>>,
}

impl Views {
    pub(crate) fn new(hint: &CommandHint) -> Self {
        let program = hint.only();
        Self { program, hinted: program.and_then(view_of), active: None }
    }

    /// How many alike lines in a row are shown before they are counted: more for programs whose output is data.
    pub(crate) fn run_lines(&self) -> u32 {
        match self.program {
            Some(
                Program::Data
                | Program::Table
                | Program::Ls
                | Program::Find
                | Program::Tree
                | Program::Grep
                | Program::Curl,
            ) => 60,
            _ => 12,
        }
    }

    pub(crate) fn line(&mut self, line: &str, out: &mut Out) {
        if let Some(active) = &mut self.active {
            match active.line(line, out) {
                Reading::Taken => return,
                Reading::Done => {
                    active.finish(Some(0), out);
                    self.active = None;
                    return;
                }
                Reading::Pass => {}
            }
        }
        if let Some(hinted) = &mut self.hinted
            && hinted.line(line, out) != Reading::Pass
        {
            return;
        }
        let started = program_of(line).filter(|program| Some(*program) != self.program).and_then(view_of);
        let Some(mut view) = started else { return out.line(line) };
        if view.line(line, out) == Reading::Pass {
            return out.line(line);
        }
        if let Some(mut before) = self.active.replace(view) {
            before.finish(Some(0), out);
        }
    }

    pub(crate) fn finish(&mut self, exit_code: Option<i32>, out: &mut Out) {
        for view in [&mut self.active, &mut self.hinted].into_iter().flatten() {
            view.finish(exit_code, out);
        }
    }

    pub(crate) fn held_bytes(&self) -> usize {
        [&self.active, &self.hinted].into_iter().flatten().map(|view| view.held_bytes()).sum()
    }
}

fn view_of(program: Program) -> Option<Box<dyn View>> {
    Some(match program {
        Program::Pytest => Box::new(pytest::Pytest::default()),
        Program::Unittest => Box::new(unittest::Unittest::default()),
        Program::Cargo => Box::new(cargo::Cargo::default()),
        Program::GoTest => Box::new(go_test::GoTest::default()),
        Program::Jest => Box::new(jest::Jest::default()),
        Program::Compiler => Box::new(compiler::Compiler::default()),
        Program::Eslint => Box::new(eslint::Eslint::default()),
        Program::Packages => Box::new(packages::Packages::default()),
        Program::Build => Box::new(build::Build::default()),
        Program::GitStatus => Box::new(git_status::GitStatus),
        Program::GitDiff => Box::new(git_diff::GitDiff::default()),
        Program::GitLog => Box::new(git_log::GitLog::default()),
        Program::Ls | Program::Find | Program::Tree => Box::new(listing::Listing::new(program)),
        Program::Grep => Box::new(grep::Grep::default()),
        Program::Curl => Box::new(curl::Curl::default()),
        Program::Table => Box::new(table::Table::default()),
        Program::Data => Box::new(json::Json::default()),
        Program::Silent | Program::Other => return None,
    })
}

/// The program that alone prints such a line. Most lines of a log fail at the first byte.
fn program_of(line: &str) -> Option<Program> {
    let text = line.trim_ascii_start();
    let starts = |starts: &[&str]| starts.iter().any(|start| text.starts_with(start));
    match text.as_bytes().first()? {
        b'=' if text.contains(" test session starts ") => Some(Program::Pytest),
        b'=' if starts(&["=== RUN   "]) => Some(Program::GoTest),
        b'-' if starts(&["--- FAIL: ", "--- PASS: "]) => Some(Program::GoTest),
        b'o' if starts(&["ok  \t"]) => Some(Program::GoTest),
        b'r' if starts(&["running "]) && text.ends_with([' ', 's', 't']) && text.contains(" test") => {
            Some(Program::Cargo)
        }
        b'C' if starts(&["Compiling ", "Checking "]) && line.starts_with("   ") => Some(Program::Cargo),
        b'C' if starts(&["Collecting "]) => Some(Program::Packages),
        b'R' if starts(&["Requirement already satisfied"]) => Some(Program::Packages),
        b'n' if starts(&["npm warn", "npm error", "npm WARN", "npm ERR!"]) => Some(Program::Packages),
        b'P' if line.starts_with("PASS ") => Some(Program::Jest),
        b'F' if line.starts_with("FAIL ") => Some(Program::Jest),
        b'R' if line.starts_with(" RUN  v") => Some(Program::Jest),
        b'd' if starts(&["diff --git a/"]) => Some(Program::GitDiff),
        b't' if text.starts_with("test") && unittest::is_result(text) => Some(Program::Unittest),
        _ if compiler::is_diagnostic(line) => Some(Program::Compiler),
        _ => None,
    }
}

#[cfg(test)]
pub(crate) fn compact(command: &str, output: &str) -> String {
    let mut compactor = crate::Compactor::new(CommandHint::of(command), crate::Options::default());
    compactor.push(output.as_bytes());
    compactor.finish(None).text
}

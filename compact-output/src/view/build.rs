//! make, cmake and ninja: errors first, steps that succeed and long compile commands as a count.

use super::{Reading, View};
use crate::out::Out;
use crate::words::{Weight, weight_of};

#[derive(Default)]
pub(crate) struct Build {
    steps: u64,
    checks: u64,
}

impl View for Build {
    fn line(&mut self, line: &str, out: &mut Out) -> Reading {
        let program = line.split([':', '[']).next().unwrap_or_default();
        if matches!(program, "make" | "gmake" | "ninja") {
            if line.contains("***") || line.contains("Error ") || line.contains("error: ") || line.contains(" stopped")
            {
                out.failure(line);
                return Reading::Taken;
            }
            let is_noise = line.contains("Entering directory")
                || line.contains("Leaving directory")
                || line.contains("Waiting for unfinished jobs");
            return if is_noise { Reading::Taken } else { Reading::Pass };
        }
        if line.starts_with("FAILED: ") || line.starts_with("CMake Error") {
            out.failure(line);
            return Reading::Taken;
        }
        if weight_of(line) != Weight::Plain {
            return Reading::Pass;
        }
        if line.starts_with("-- ") && !line.contains("written to") && !line.contains("done") {
            self.checks += 1;
            return Reading::Taken;
        }
        // The step that makes a program or a target stays if it is the last one; the filter of alike lines sees to that.
        let is_step = is_progress(line)
            && (line.contains(" Building ")
                || line.contains(" -c ")
                || line.contains("Linking ")
                || line.contains(" qc "));
        if is_step || (is_command(line) && line.contains(" -c ")) {
            self.steps += 1;
            return Reading::Taken;
        }
        Reading::Pass
    }

    fn finish(&mut self, _exit_code: Option<i32>, out: &mut Out) {
        if self.steps > 0 {
            out.summary(&format!("{} compile steps", self.steps));
        }
        if self.checks > 0 {
            out.summary(&format!("{} checks of the configuration", self.checks));
        }
        (self.steps, self.checks) = (0, 0);
    }
}

/// `[ 12%] …`, `[3/60] …`
fn is_progress(line: &str) -> bool {
    let Some((inside, _)) = line.strip_prefix('[').and_then(|rest| rest.split_once(']')) else { return false };
    !inside.is_empty() && inside.bytes().all(|byte| byte.is_ascii_digit() || b" %/".contains(&byte))
}

fn is_command(line: &str) -> bool {
    let first = line.split(' ').next().unwrap_or_default();
    let name = first.rsplit('/').next().unwrap_or(first);
    matches!(name, "cc" | "gcc" | "g++" | "c++" | "clang" | "clang++")
}

#[cfg(test)]
mod tests {
    use crate::view::compact;

    #[test]
    fn compile_commands_become_a_count_and_the_link_stays() {
        let text = compact("make", "cc -O1 -c -o a.o a.c\ncc -O1 -c -o b.o b.c\ncc -o app a.o b.o\n");
        assert_eq!(text, "2 compile steps\ncc -o app a.o b.o\n");
    }

    #[test]
    fn a_failed_rule_comes_first() {
        assert_eq!(
            compact("make", "checking\nmake: *** [Makefile:2: all] Error 3\n"),
            "make: *** [Makefile:2: all] Error 3\nchecking\n"
        );
    }
}

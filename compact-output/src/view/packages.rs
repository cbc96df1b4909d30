//! npm, pnpm, yarn, pip, uv and apt: errors first, what was installed stays, downloads become a count.

use super::{Reading, View};
use crate::out::Out;
use crate::words::{Weight, weight_of};

#[derive(Default)]
pub(crate) struct Packages {
    steps: u64,
    satisfied: u64,
}

/// Steps that succeed for every package.
const STEPS: &[&str] = &[
    "Collecting ",
    "Downloading ",
    "Using cached ",
    "Installing collected packages",
    "Attempting uninstall",
    "Found existing installation",
    "Uninstalling ",
    "Successfully uninstalled",
    "Preparing metadata",
    "Getting requirements to build",
    "Installing build dependencies",
    "Building wheel for ",
    "Created wheel for ",
    "Stored in directory",
    "Obtaining dependency information",
    "Progress: resolved",
    "Inst ",
    "Conf ",
    "Reading package lists",
    "Building dependency tree",
    "Reading state information",
    "[1/",
    "[2/",
    "[3/",
    "[4/",
    "[5/",
    "Get:",
    "Hit:",
    "Selecting previously",
    "Preparing to unpack",
    "Unpacking ",
    "info Direct dependencies",
    "info All dependencies",
    "[notice]",
    "npm notice",
    "├─ ",
    "└─ ",
    "++++",
];

impl View for Packages {
    fn line(&mut self, line: &str, out: &mut Out) -> Reading {
        let text = line.trim_ascii_start();
        let starts = |start: &&str| text.starts_with(*start);
        if text.starts_with("Requirement already satisfied") {
            self.satisfied += 1;
            // The first one tells that there was nothing to do.
            return if self.satisfied == 1 { Reading::Pass } else { Reading::Taken };
        }
        let errors = ["npm error", "npm ERR!", "ERROR:", "error ", "error:", "E: ", "ERR_PNPM", "× ", "╰─", "hint: "];
        if errors.iter().any(starts) {
            if text.contains("A complete log of this run") || text.trim_ascii_end() == "npm error" {
                return Reading::Taken;
            }
            out.failure(line);
            return Reading::Taken;
        }
        let is_bar = text.contains("━━")
            || text.contains("██")
            || text.starts_with(['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏']);
        if (is_bar || STEPS.iter().any(starts)) && weight_of(line) != Weight::Failure {
            self.steps += 1;
            return Reading::Taken;
        }
        Reading::Pass
    }

    fn finish(&mut self, exit_code: Option<i32>, out: &mut Out) {
        if self.satisfied > 1 {
            out.summary(&format!("{} requirements were already satisfied", self.satisfied));
        }
        if self.steps > 0 && exit_code == Some(0) {
            out.summary(&format!("{} steps succeeded", self.steps));
        }
        (self.steps, self.satisfied) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use crate::view::compact;

    #[test]
    fn what_was_installed_stays_and_downloads_go() {
        let text = compact(
            "pip install flask",
            "Collecting flask\n  Downloading flask.whl (100 kB)\nInstalling collected packages: flask\nSuccessfully installed flask-3.0.3\n",
        );
        assert_eq!(text, "Successfully installed flask-3.0.3\n");
    }

    #[test]
    fn a_step_that_fails_is_not_counted_as_a_success() {
        assert_eq!(compact("yarn", "[2/4] Fetching failed: disk full\n"), "[2/4] Fetching failed: disk full\n");
    }

    #[test]
    fn errors_come_first() {
        let text =
            compact("npm install", "npm warn deprecated x\nnpm error code E404\nnpm error\nnpm error 404 Not Found\n");
        assert_eq!(text, "npm error code E404\nnpm error 404 Not Found\nnpm warn deprecated x\n");
    }
}

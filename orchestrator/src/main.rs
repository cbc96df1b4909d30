//! Nothing is decided here.

use std::process::ExitCode;

fn main() -> ExitCode {
    orchestrator::helper_main().unwrap_or(ExitCode::SUCCESS)
}

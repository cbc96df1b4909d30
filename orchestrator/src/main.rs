//! Nothing is decided here.

use std::process::ExitCode;

fn main() -> ExitCode {
    orchestrator::runtime::local::launcher_main().unwrap_or(ExitCode::SUCCESS)
}

//! The program `cove`; all code is in the library beside it.

fn main() -> std::process::ExitCode {
    orchestrator::helper_main().unwrap_or_else(orchestrator::cli::main)
}

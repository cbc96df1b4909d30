//! Nothing is decided here.

fn main() -> std::process::ExitCode {
    orchestrator::helper_main().unwrap_or_else(orchestrator::cli::main)
}

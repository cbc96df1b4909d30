//! Nothing is decided here.

fn main() -> std::process::ExitCode {
    orchestrator::cli::main()
}

//! The program `runner`; everything is in the library beside it.

fn main() -> std::process::ExitCode {
    runner::boot::main()
}

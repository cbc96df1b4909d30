//! The command line of `cove`: it parses the arguments, runs one command, and turns its result into an exit code.
//!
//! Each command has a file of its own. A command returns an exit code or a `Failure`; only this file prints failures and ends the
//! process. Standard output carries what was asked for and nothing else; every message goes to standard error.

mod completion;
mod connect;
mod cp;
mod doctor;
mod exec;
mod exit;
mod feed;
mod follow;
mod forward;
mod image;
mod interrupt;
mod key;
mod network;
mod network_option;
mod options;
mod output;
mod pause;
mod pool;
mod ports;
mod private;
mod progress;
mod ps;
mod rm;
mod run;
mod serve;
mod shell;
mod stdin;
mod table;
mod tty;
mod update;
mod version;
mod words;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use exit::Failure;

use crate::sys::sched;

const AFTER_HELP: &str = "\
`cove` without a command is `cove serve`.

Commands find the daemon by --url and --api-key, or by COVE_URL and COVE_API_KEY. Without these they
use the daemon that runs on the data directory (--data-dir, COVE_DATA_DIR, or ~/.local/share/cove).
If no daemon runs, `cove run` and `cove shell` start a private one and end it when they are done.

  cove serve                                    start the daemon
  cove run -- python3 -c 'print(6 * 7)'         run one command in a new sandbox
  cove shell                                    open a terminal in a new sandbox";

/// Sandboxed Linux machines for AI agents, with a shell that remembers.
#[derive(Parser)]
#[command(name = "cove", version, max_term_width = 100, after_help = AFTER_HELP, disable_help_subcommand = true)]
#[command(subcommand_required = true, arg_required_else_help = false)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Serve(serve::ServeArgs),
    Run(run::RunArgs),
    Shell(shell::ShellArgs),
    Exec(exec::ExecArgs),
    Ps(ps::PsArgs),
    Rm(rm::RmArgs),
    Pause(pause::PauseArgs),
    Resume(pause::ResumeArgs),
    Update(update::UpdateArgs),
    Cp(cp::CpArgs),
    Ports(ports::PortsArgs),
    Forward(forward::ForwardArgs),
    Pool(pool::PoolArgs),
    Image(image::ImageArgs),
    Key(key::KeyArgs),
    Network(network::NetworkArgs),
    Doctor(doctor::DoctorArgs),
    Version(version::VersionArgs),
    Completion(completion::CompletionArgs),
}

/// The whole program.
pub fn main() -> ExitCode {
    let cli = Cli::parse_from(with_default_command(std::env::args_os().collect()));
    let result = match cli.command {
        Command::Serve(args) => return report(drive(tokio::runtime::Builder::new_multi_thread(), serve::serve(args))),
        Command::Run(args) => on_one_thread(run::run(args)),
        Command::Shell(args) => on_one_thread(shell::shell(args)),
        Command::Exec(args) => on_one_thread(exec::exec(args)),
        Command::Ps(args) => on_one_thread(ps::ps(args)),
        Command::Rm(args) => on_one_thread(rm::rm(args)),
        Command::Pause(args) => on_one_thread(pause::pause(args)),
        Command::Resume(args) => on_one_thread(pause::resume(args)),
        Command::Update(args) => on_one_thread(update::update(args)),
        Command::Cp(args) => on_one_thread(cp::cp(args)),
        Command::Ports(args) => on_one_thread(ports::ports(args)),
        Command::Forward(args) => on_one_thread(forward::forward(args)),
        Command::Pool(args) => on_one_thread(pool::pool(args)),
        Command::Image(args) => image::image(&args),
        Command::Key(args) => on_one_thread(key::key(args)),
        Command::Network(args) => on_one_thread(network::network(args)),
        Command::Doctor(args) => on_one_thread(doctor::doctor(args)),
        Command::Version(args) => version::version(&args),
        Command::Completion(args) => completion::completion(&args),
    };
    report(result.map(ExitCode::from))
}

fn report(result: Result<ExitCode, Failure>) -> ExitCode {
    result.unwrap_or_else(|failure| {
        failure.print();
        ExitCode::from(failure.code())
    })
}

/// Adds `serve` where no command is given: `cove` alone, or `cove` with options of `serve`.
fn with_default_command(mut args: Vec<OsString>) -> Vec<OsString> {
    let own = ["-h", "--help", "-V", "--version"];
    let serves = match args.get(1).map(|first| first.to_string_lossy()) {
        None => true,
        Some(first) => first.starts_with('-') && !own.contains(&first.as_ref()),
    };
    if serves {
        if args.is_empty() {
            args.push("cove".into());
        }
        args.insert(1, "serve".into());
    }
    args
}

/// Runs a command on one thread, which is enough for one connection and starts faster.
fn on_one_thread(work: impl Future<Output = Result<u8, Failure>>) -> Result<u8, Failure> {
    drive(tokio::runtime::Builder::new_current_thread(), work)
}

fn drive<T>(
    mut builder: tokio::runtime::Builder,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let runtime = builder.enable_all().on_thread_start(sched::use_short_time_slices).build();
    sched::use_short_time_slices();
    let runtime = runtime.map_err(|e| Failure::new(exit::FAILED, format!("cannot start: {e}")))?;
    let result = runtime.block_on(work);
    // Without waiting for other threads: one may hang in a write to a pipe that nobody reads.
    runtime.shutdown_background();
    result
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn args(line: &str) -> Vec<OsString> {
        line.split_whitespace().map(OsString::from).collect()
    }

    #[test]
    fn the_definition_of_the_command_line_holds_together() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_bare_cove_serves_and_so_do_its_options() {
        assert_eq!(with_default_command(args("cove")), args("cove serve"));
        assert_eq!(with_default_command(args("cove --listen x")), args("cove serve --listen x"));
        for kept in ["cove ps", "cove --help", "cove -V", "cove serve --listen x"] {
            assert_eq!(with_default_command(args(kept)), args(kept));
        }
    }

    #[test]
    fn the_words_after_two_dashes_are_the_commands_own() {
        let cli = Cli::try_parse_from(args("cove run python -e A=1 -- ls -la --json")).unwrap();
        let Command::Run(run) = cli.command else { panic!("not run") };
        assert_eq!((run.image.as_deref(), run.argv.join(" ")), (Some("python"), "ls -la --json".to_owned()));
        let cli = Cli::try_parse_from(args("cove exec 7183cb80-d6c --timeout 5s ls -la --json")).unwrap();
        let Command::Exec(exec) = cli.command else { panic!("not exec") };
        assert_eq!((exec.words.join(" "), exec.json), ("ls -la --json".to_owned(), false));
    }

    #[test]
    fn every_command_has_an_example() {
        for command in Cli::command().get_subcommands() {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains("cove "), "{} has no example", command.get_name());
        }
    }
}

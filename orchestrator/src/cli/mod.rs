//! The command line of `cove`: it parses the arguments, runs one command, and turns its result into an exit code.
//!
//! Each command has a file of its own. A command returns an exit code or a `Failure`; only this file prints failures and ends the
//! process. Standard output carries what was asked for and nothing else; every message goes to standard error.

mod completion;
mod connect;
mod cp;
mod create;
mod docker_words;
mod doctor;
mod exec;
mod exit;
mod feed;
mod follow;
mod forward;
mod image;
mod inject_option;
mod inspect;
mod interrupt;
mod key;
mod kill;
mod learn;
mod list;
mod logs;
mod man;
mod mcp;
mod network;
mod network_option;
mod options;
mod output;
mod pause;
mod pool;
mod ports;
mod private;
mod progress;
mod prune;
mod ps;
mod rm;
mod run;
mod secret;
mod serve;
mod session_ref;
mod shell;
mod snapshot;
mod stats;
mod stdin;
mod table;
mod tail;
mod tty;
mod update;
mod version;
mod watch;
mod words;
mod workspace;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory as _, Parser, Subcommand};

use exit::Failure;

use crate::sys::sched;

const AFTER_HELP: &str = "\
`cove` without a command is `cove serve`.

Commands find the daemon by --url and --api-key, or by COVE_URL and COVE_API_KEY. Without these they
use the daemon that runs on the data directory (--data-dir, COVE_DATA_DIR, or ~/.local/share/cove).
If no daemon runs, `cove run`, `cove shell` and `cove mcp` start a private one and end it when they are
done.

  cove serve                                    start the daemon
  cove run -- python3 -c 'print(6 * 7)'         run one command in a new sandbox
  cove shell                                    open a terminal in a new sandbox
  cove create --name web python                 create a session that stays
  cove exec web 'echo hello'                    run a command in it
  cove help exec                                describe a command";

/// Sandboxed Linux machines for AI agents, with a shell that remembers.
#[derive(Parser)]
#[command(name = "cove", version, max_term_width = 100, after_help = AFTER_HELP)]
#[command(subcommand_required = true, arg_required_else_help = false)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Serve(serve::ServeArgs),
    Create(create::CreateArgs),
    Run(run::RunArgs),
    Shell(shell::ShellArgs),
    Exec(exec::ExecArgs),
    #[command(visible_aliases = ["ls", "list"])]
    Ps(ps::PsArgs),
    Inspect(inspect::InspectArgs),
    Logs(logs::LogsArgs),
    Stats(stats::StatsArgs),
    Kill(kill::KillArgs),
    Rm(rm::RmArgs),
    Pause(pause::PauseArgs),
    #[command(visible_alias = "unpause")]
    Resume(pause::ResumeArgs),
    Stop(pause::StopArgs),
    Start(pause::StartArgs),
    Snapshot(snapshot::SnapshotArgs),
    Fork(snapshot::ForkArgs),
    Update(update::UpdateArgs),
    Cp(cp::CpArgs),
    Watch(watch::WatchArgs),
    Workspace(workspace::WorkspaceArgs),
    #[command(visible_alias = "port")]
    Ports(ports::PortsArgs),
    Forward(forward::ForwardArgs),
    Pool(pool::PoolArgs),
    Image(image::ImageArgs),
    Key(key::KeyArgs),
    Secret(secret::SecretArgs),
    Network(network::NetworkArgs),
    Mcp(mcp::McpArgs),
    Prune(prune::PruneArgs),
    Doctor(doctor::DoctorArgs),
    Version(version::VersionArgs),
    Completion(completion::CompletionArgs),
    Man(man::ManArgs),
    #[command(name = "__complete", hide = true)]
    Candidates(completion::CandidatesArgs),
}

/// The whole program.
pub fn main() -> ExitCode {
    let args = docker_words::translated(std::env::args_os().collect());
    let cli = match parse(with_default_command(args)) {
        Ok(cli) => cli,
        Err(error) => return refused(&error),
    };
    let result = match cli.command {
        Command::Serve(args) => return report(drive(tokio::runtime::Builder::new_multi_thread(), serve::serve(args))),
        Command::Create(args) => on_one_thread(create::create(args)),
        Command::Run(args) => on_one_thread(run::run(args)),
        Command::Shell(args) => on_one_thread(shell::shell(args)),
        Command::Exec(args) => on_one_thread(exec::exec(args)),
        Command::Ps(args) => on_one_thread(ps::ps(args)),
        Command::Inspect(args) => on_one_thread(inspect::inspect(args)),
        Command::Logs(args) => on_one_thread(logs::logs(args)),
        Command::Stats(args) => on_one_thread(stats::stats(args)),
        Command::Kill(args) => on_one_thread(kill::kill(args)),
        Command::Rm(args) => on_one_thread(rm::rm(args)),
        Command::Pause(args) => on_one_thread(pause::pause(args)),
        Command::Resume(args) => on_one_thread(pause::resume(args)),
        Command::Stop(args) => on_one_thread(pause::stop(args)),
        Command::Start(args) => on_one_thread(pause::start(args)),
        Command::Snapshot(args) => on_one_thread(snapshot::snapshot(args)),
        Command::Fork(args) => on_one_thread(snapshot::fork(args)),
        Command::Update(args) => on_one_thread(update::update(args)),
        Command::Cp(args) => on_one_thread(cp::cp(args)),
        Command::Watch(args) => on_one_thread(watch::watch(args)),
        Command::Workspace(args) => on_one_thread(workspace::workspace(args)),
        Command::Ports(args) => on_one_thread(ports::ports(args)),
        Command::Forward(args) => on_one_thread(forward::forward(args)),
        Command::Pool(args) => on_one_thread(pool::pool(args)),
        Command::Image(args) => on_one_thread(image::image(args)),
        Command::Key(args) => on_one_thread(key::key(args)),
        Command::Secret(args) => on_one_thread(secret::secret(args)),
        Command::Network(args) => on_one_thread(network::network(args)),
        Command::Mcp(args) => on_one_thread(mcp::mcp(args)),
        Command::Prune(args) => on_one_thread(prune::prune(args)),
        Command::Doctor(args) => on_one_thread(doctor::doctor(args)),
        Command::Version(args) => version::version(&args),
        Command::Completion(args) => completion::completion(&args),
        Command::Man(args) => man::man(&args),
        Command::Candidates(args) => on_one_thread(completion::candidates(args)),
    };
    report(result.map(ExitCode::from))
}

/// Parses the arguments. In `cove run`, a `--` before the program ends cove's own words; one behind it belongs to the program.
fn parse(args: Vec<OsString>) -> Result<Cli, clap::Error> {
    let is_run = args.get(1).is_some_and(|word| word == "run");
    if let Some(at) = args.iter().position(|arg| arg == "--").filter(|_| is_run)
        && let Ok(Cli { command: Command::Run(mut run) }) = Cli::try_parse_from(&args[..at])
        && run.argv.is_empty()
    {
        let program: Result<Vec<String>, OsString> =
            args[at + 1..].iter().cloned().map(OsString::into_string).collect();
        run.argv = program.map_err(|_| Cli::command().error(ErrorKind::InvalidUtf8, "an argument is not UTF-8"))?;
        run.is_behind_dashes = true;
        return Ok(Cli { command: Command::Run(run) });
    }
    Cli::try_parse_from(args)
}

/// Prints why the arguments cannot be used, or the help that was asked for. What docker has and Cove does not gets a sentence of its own.
fn refused(error: &clap::Error) -> ExitCode {
    let given = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let about = match error.kind() {
        ErrorKind::InvalidSubcommand => given(ContextKind::InvalidSubcommand).and_then(docker_words::about_command),
        ErrorKind::UnknownArgument => given(ContextKind::InvalidArg).and_then(docker_words::about_option),
        _ => None,
    };
    if let Some(about) = about {
        return report(Err(Failure::usage(about)));
    }
    // If nobody reads it, there is nothing else to do.
    let _ = error.print();
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(exit::USAGE))
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
        for (line, image, program) in [
            ("cove run python -e A=1 -- ls -la --json", Some("python"), "ls -la --json"),
            ("cove run -- ls -la", None, "ls -la"),
            (
                "cove run -it --rm -e A=1 python:3.12 python3 -m http.server",
                Some("python:3.12"),
                "python3 -m http.server",
            ),
            ("cove run python -e A=1 git log -- file", Some("python"), "git log -- file"),
            ("cove run python -- git log -- file", Some("python"), "git log -- file"),
            ("cove run -m 2g --cpus 2 -p 8000 python ls", Some("python"), "ls"),
            ("cove run python", Some("python"), ""),
        ] {
            let Command::Run(run) = parse(args(line)).unwrap_or_else(|e| panic!("{line}: {e}")).command else {
                panic!("not run")
            };
            assert_eq!((run.image.as_deref(), run.argv.join(" ").as_str()), (image, program), "{line}");
        }
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

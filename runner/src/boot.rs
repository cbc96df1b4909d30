//! From the command line to a running server, and from a signal to the end: no logic, only the order of things.

use std::cell::Cell;
use std::path::PathBuf;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::app::App;
use crate::config::{self, Command, Config, INHERITED_SOCKET, Listen, OWN_VARIABLES};
use crate::environment::{Environment, User};
use crate::exec::ExecTable;
use crate::oom::OomCounter;
use crate::reaper::Reaper;
use crate::shell::{Context, ScratchRoot, ShellTable};
use crate::sys::identity::{self, Identity};
use crate::sys::{fork, sched};
use crate::{http, init, log, process_limit, shutdown, signals};

/// As sysexits.h has it: the command line was wrong.
const EXIT_USAGE: u8 = 64;

/// So that those who stream get to read how their command ended.
const LAST_WORDS: Duration = Duration::from_millis(50);

pub fn main() -> ExitCode {
    log::init();
    match config::parse(std::env::args_os().skip(1), |name| std::env::var_os(name)) {
        Ok(Command::Version) => {
            println!("runner {}", env!("CARGO_PKG_VERSION"));
            ExitCode::SUCCESS
        }
        Ok(Command::Help) => {
            print!("{}", config::USAGE);
            ExitCode::SUCCESS
        }
        Ok(Command::Init(command)) => ExitCode::from(init::run(&command)),
        Ok(Command::Serve(config)) => match serve(config) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("runner: {error}");
                ExitCode::FAILURE
            }
        },
        Err(error) => {
            eprintln!("runner: {error}");
            ExitCode::from(EXIT_USAGE)
        }
    }
}

fn serve(config: Config) -> std::io::Result<()> {
    // Whatever else we were started with is not for commands.
    fork::close_from(if config.listen == Listen::Inherited { INHERITED_SOCKET + 1 } else { INHERITED_SOCKET });
    // Before there is anything to see or anyone to look.
    identity::scrub_environment(|name| name.starts_with(OWN_VARIABLES.as_bytes()));
    identity::forbid_inspection()?;
    identity::adopt_orphans()?;
    if let Some(max) = config.max_processes
        && let Err(error) = process_limit::set(max)
    {
        tracing::warn!(%error, max, "the limit of processes is only that of the host");
    }
    // What the runner makes gets its mode by name; commands get 022.
    nix::sys::stat::umask(nix::sys::stat::Mode::empty());
    sched::take_short_turns();
    let signals = signals::open()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
    let tasks = tokio::task::LocalSet::new();
    tasks.block_on(&runtime, async {
        let app = make_app(config)?;
        let listener = http::Listener::bind(&app.config.listen)?;
        if let (Listen::Unix(path), Some(owner)) = (&app.config.listen, app.config.socket_owner) {
            std::os::unix::fs::chown(path, Some(owner), None)?;
        }
        let server = tokio::task::spawn_local(http::serve(app.clone(), listener));
        signals::until_told_to_end(signals, &app.reaper, app.identity).await?;
        app.draining.set(true);
        app.shells.drain();
        let grace = Duration::from_millis(app.config.grace_ms);
        if !shutdown::end_everything(&app.reaper, grace).await {
            tracing::error!("processes are left that KILL did not end");
        }
        tokio::time::sleep(LAST_WORDS).await;
        server.abort();
        http::unlink_socket(&app.config.listen);
        Ok(())
    })
}

/// Before there is any command that could put a link in their place.
fn give(directories: &[PathBuf], to: Identity) -> std::io::Result<()> {
    for path in directories {
        std::os::unix::fs::lchown(path, Some(to.uid), Some(to.gid)).map_err(|error| {
            std::io::Error::new(
                error.kind(),
                format!("{} cannot be given to the user of commands: {error}", path.display()),
            )
        })?;
    }
    Ok(())
}

fn make_app(config: Config) -> std::io::Result<Rc<App>> {
    let own_uid = nix::unistd::geteuid().as_raw();
    let identity = if own_uid == 0 {
        Identity { uid: config.uid, gid: config.gid, switch: true }
    } else {
        Identity { uid: own_uid, gid: nix::unistd::getegid().as_raw(), switch: false }
    };
    give(&config.own, identity)?;
    let user = User::of_commands(identity.uid, &config.workspace);
    let environment = Environment::new(std::env::vars_os(), user, &config.workspace);
    let scratch = ScratchRoot::new(config.scratch.as_deref()).map_err(|error| {
        std::io::Error::new(error.kind(), format!("no scratch directory could be made (--scratch DIR): {error}"))
    })?;
    let reaper = Reaper::default();
    let execs = ExecTable::default();
    let oom = Rc::new(OomCounter::new());
    let context = Context {
        config: Rc::new(config.clone()),
        identity,
        environment: Rc::new(environment.clone()),
        reaper: reaper.clone(),
        execs: execs.clone(),
        oom: oom.clone(),
        scratch: Rc::new(scratch),
    };
    Ok(Rc::new(App {
        config,
        identity,
        environment,
        reaper,
        oom,
        execs,
        shells: ShellTable::new(context),
        started: Instant::now(),
        draining: Cell::new(false),
        file_operations: Cell::new(0),
    }))
}

//! Starts and ends the runner: from the command line to a running server, and from a signal to the exit. It holds no logic,
//! only the order of the steps.

use std::cell::Cell;
use std::path::PathBuf;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::config::{self, Command, Config, INHERITED_SOCKET, Listen, OWN_VARIABLES, PROC_FILES_FDS};
use crate::environment::{Environment, StartDir, User};
use crate::exec::ExecTable;
use crate::files::{FileOperations, Roots};
use crate::hold::Hold;
use crate::http::App;
use crate::network::NetworkListener;
use crate::oom::OomCounter;
use crate::ports::Ports;
use crate::reaper::Reaper;
use crate::run::Runs;
use crate::shell::{Context, ScratchRoot, ShellTable};
use crate::sys::identity::{self, Identity};
use crate::sys::{cgroup, environ, fd, sched, spawn, user_namespace};
use crate::{http, init, log, proc_files, process_limit, shutdown, signals};

/// The exit code for a wrong command line, as in sysexits.h.
const EXIT_USAGE: u8 = 64;

/// The time between the end of all processes and the exit, so that clients can read how their command ended.
const LAST_REPLIES: Duration = Duration::from_millis(50);

/// Runs the whole program.
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
        Ok(Command::Init(config)) => ExitCode::from(init::run(&config)),
        Ok(Command::Serve(config)) => match serve(&config) {
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

fn serve(config: &Config) -> std::io::Result<()> {
    // Commands must not inherit any other descriptor that the runner was started with.
    let cgroup_fds = INHERITED_SOCKET + 1..INHERITED_SOCKET + 1 + i32::from(config.commands_cgroup_fds);
    let after_namespace = config.root_namespace_fd.map_or(cgroup_fds.end, |number| number + 1);
    let connections = config.proc_files.then_some(after_namespace);
    let first_unused = connections.map_or(after_namespace, |first| first + PROC_FILES_FDS);
    fd::close_from(if config.listen == Listen::Inherited { first_unused } else { INHERITED_SOCKET });
    cgroup::keep_entrances(cgroup_fds)?;
    if let Some(number) = config.root_namespace_fd {
        user_namespace::keep(number)?;
    }
    // Secrets are removed before any other process exists that could read them.
    environ::scrub(|name| name.starts_with(OWN_VARIABLES.as_bytes()));
    identity::forbid_inspection()?;
    identity::adopt_orphans()?;
    if let Some(max) = config.max_processes
        && let Err(error) = process_limit::set(max)
    {
        tracing::warn!(%error, max, "the limit of processes could not be set; the limit of the host applies");
    }
    if let Some(max) = config.open_files {
        spawn::limit_open_files(max)?;
    }
    // The runner gives each file that it makes its mode explicitly. Commands get a umask of 022.
    nix::sys::stat::umask(nix::sys::stat::Mode::empty());
    sched::request_short_slices();
    let signals = signals::open()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
    let tasks = tokio::task::LocalSet::new();
    tasks.block_on(&runtime, async {
        if let Some(first) = connections {
            proc_files::start(first)?;
        }
        let reaper = Reaper::default();
        let app = make_app(config, &reaper)?;
        let listener = http::Listener::bind(&config.listen)?;
        if let (Listen::Unix(path), Some(owner)) = (&config.listen, config.socket_owner) {
            std::os::unix::fs::chown(path, Some(owner), None)?;
        }
        let server = tokio::task::spawn_local(http::serve(app.clone(), listener));
        signals::until_told_to_end(signals, &reaper, app.identity).await?;
        app.draining.set(true);
        app.shells.drain();
        let grace = Duration::from_millis(config.grace_ms);
        if !shutdown::end_everything(&reaper, grace).await {
            tracing::error!("some processes did not end after KILL");
        }
        tokio::time::sleep(LAST_REPLIES).await;
        server.abort();
        http::unlink_socket(&config.listen);
        Ok(())
    })
}

/// Makes the sandbox user the owner of `directories`. No command runs yet that could replace them by links.
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

/// Makes the objects that own all state, and opens the main shell.
fn make_app(config: &Config, reaper: &Reaper) -> std::io::Result<Rc<App>> {
    let own_uid = nix::unistd::geteuid().as_raw();
    let identity = if own_uid == 0 {
        Identity { uid: config.uid, gid: config.gid, switch: true }
    } else {
        Identity { uid: own_uid, gid: nix::unistd::getegid().as_raw(), switch: false }
    };
    give(&config.own, identity)?;
    let seen_by_commands = if user_namespace::is_kept() { identity::ROOT } else { identity.uid };
    let user = User::of_commands(seen_by_commands, &config.workspace);
    let start = StartDir { wanted: config.start_dir.as_deref(), workspace: &config.workspace };
    let mut environment = Environment::new(std::env::vars_os(), user, start, &config.session_variables);
    if let Some(port) = config.network_proxy_port {
        environment.add_network_proxy(port);
    }
    let scratch = ScratchRoot::new(config.scratch.as_deref(), config.state.as_deref()).map_err(|error| {
        std::io::Error::new(error.kind(), format!("no scratch directory could be made (--scratch DIR): {error}"))
    })?;
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
    let runs = Runs { identity, environment: environment.clone(), reaper: reaper.clone(), execs: execs.clone(), oom };
    let roots = Roots::new(&config.files_root, &config.workspace);
    Ok(Rc::new(App {
        listen: config.listen.clone(),
        identity,
        environment,
        execs,
        shells: ShellTable::new(context),
        runs,
        files: FileOperations::new(roots, identity, reaper.clone()),
        ports: Ports::default(),
        network: config.network_proxy_port.map(NetworkListener::start).transpose()?,
        hold: Hold::new(reaper.clone()),
        started: Instant::now(),
        draining: Cell::new(false),
    }))
}

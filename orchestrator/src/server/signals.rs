//! When to stop: TERM, INT, or the end of standard input for a private daemon. A second signal ends the program at once.

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{oneshot, watch};
use tracing::{info, warn};

/// As a shell shows a program that a signal has ended.
const TERMINATED: i32 = 128 + 15;

/// Turns true when the daemon is to stop. Must be called within the runtime.
pub fn stop_on_signals(until_stdin_closes: bool) -> std::io::Result<watch::Receiver<bool>> {
    let (sender, receiver) = watch::channel(false);
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    // A client that goes away is an error of its write, not the end of the daemon.
    let mut hang_up = signal(SignalKind::hangup())?;
    tokio::spawn(async move {
        let stdin = async {
            if until_stdin_closes {
                drain_stdin().await;
            } else {
                std::future::pending::<()>().await;
            }
        };
        let cause = tokio::select! {
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
            _ = hang_up.recv() => "SIGHUP",
            () = stdin => "end of standard input",
        };
        info!(cause, "stopping");
        sender.send_replace(true);
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        warn!("second signal: ending at once; what is left is removed at the next start");
        std::process::exit(TERMINATED);
    });
    Ok(receiver)
}

/// On a thread of its own, which is left behind: a read cannot be taken back, and must not hold up the program's end.
async fn drain_stdin() {
    let (sender, ended) = oneshot::channel();
    let reading = std::thread::Builder::new().name("stdin".into()).spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        let _ = sender.send(());
    });
    match reading {
        Ok(_) => drop(ended.await),
        Err(cause) => {
            warn!(%cause, "the end of standard input cannot be waited for");
            std::future::pending::<()>().await;
        }
    }
}

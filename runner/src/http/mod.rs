//! The runner's HTTP server: who may connect, the limits of a connection, and the choice of the handler. See
//! `docs/reference/runner-protocol.md`.
//!
//! Every process that can open the Unix socket may use it: its mode is 0600, and commands run as another user. On TCP every
//! call except `/healthz` needs the token.

mod app;
mod attach;
mod body;
mod claim;
mod disk;
mod exec;
mod files;
#[cfg(any(test, fuzzing))]
#[path = "fuzz_test.rs"]
pub mod fuzz;
mod network;
mod ports;
mod query;
mod request;
mod request_body;
mod shells;
mod state;
mod stdin;
mod upgrade;

use std::os::unix::fs::{DirBuilderExt, FileTypeExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request};
use hyper_util::rt::{TokioIo, TokioTimer};
use shared_protocol::runner::{HealthView, Separation};
use shared_protocol::{ErrorBody, ErrorCode};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

pub use app::{App, SharedApp};
pub use body::{Body, Reply};
pub use request::decode;

use request_body::RequestBody;

use crate::config::{INHERITED_SOCKET, Listen};

/// The most open connections. Further ones wait in the listener's backlog.
const MAX_CONNECTIONS: usize = 1024;

/// How long a request's head may take to arrive.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// The buffer of a connection in each direction.
const CONNECTION_BUFFER: usize = 64 << 10;

/// The pause after a failed accept: descriptors may have run out, and a retry at once would spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A listening socket.
pub enum Listener {
    Unix(UnixListener),
    Tcp(TcpListener),
}

impl Listener {
    pub fn bind(listen: &Listen) -> std::io::Result<Self> {
        let named = |what: String| {
            move |e: std::io::Error| std::io::Error::new(e.kind(), format!("cannot listen on {what}: {e}"))
        };
        match listen {
            Listen::Unix(path) => {
                let named = named(path.display().to_string());
                if let Some(dir) = path.parent().filter(|dir| !dir.exists()) {
                    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(&named)?;
                }
                remove_stale_socket(path);
                // With this umask, the socket is private from the first moment, and not only after a chmod.
                let before = nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o177));
                let bound = UnixListener::bind(path);
                nix::sys::stat::umask(before);
                let listener = bound.map_err(&named)?;
                std::fs::set_permissions(path, PermissionsExt::from_mode(0o600))?;
                tracing::info!(socket = %path.display(), "listening");
                Ok(Self::Unix(listener))
            }
            Listen::Inherited => {
                let listener = crate::sys::fd::inherited_listener(INHERITED_SOCKET)
                    .map_err(named("the inherited socket".into()))?;
                tracing::info!("listening on the inherited socket");
                Ok(Self::Unix(UnixListener::from_std(listener)?))
            }
            Listen::Tcp { address, .. } => {
                let bound = std::net::TcpListener::bind(address).map_err(named(address.to_string()))?;
                bound.set_nonblocking(true)?;
                tracing::info!(address = %bound.local_addr()?, "listening");
                Ok(Self::Tcp(TcpListener::from_std(bound)?))
            }
        }
    }
}

/// Removes a socket that a killed runner left behind, and nothing else.
fn remove_stale_socket(path: &Path) {
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|m| m.file_type().is_socket());
    if is_socket && std::os::unix::net::UnixStream::connect(path).is_err() {
        let _ = std::fs::remove_file(path);
    }
}

/// Removes the Unix socket's path.
pub fn unlink_socket(listen: &Listen) {
    if let Listen::Unix(path) = listen {
        let _ = std::fs::remove_file(path);
    }
}

/// Accepts connections forever.
pub async fn serve(app: SharedApp, listener: Listener) {
    let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok(slot) = slots.clone().acquire_owned().await else { return };
        match &listener {
            Listener::Unix(unix) => match unix.accept().await {
                Ok((stream, _)) => spawn_connection(app.clone(), stream, slot),
                Err(error) => accept_failed(&error).await,
            },
            Listener::Tcp(tcp) => match tcp.accept().await {
                Ok((stream, _)) => {
                    let _ = stream.set_nodelay(true);
                    spawn_connection(app.clone(), stream, slot);
                }
                Err(error) => accept_failed(&error).await,
            },
        }
    }
}

async fn accept_failed(error: &std::io::Error) {
    tracing::warn!(%error, "a connection could not be accepted");
    tokio::time::sleep(ACCEPT_PAUSE).await;
}

fn spawn_connection<S>(app: SharedApp, stream: S, slot: OwnedSemaphorePermit)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    tokio::task::spawn_local(async move {
        let service = service_fn(|request| {
            let app = app.clone();
            async move { Ok::<_, std::convert::Infallible>(answer(&app, request).await) }
        });
        let served = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIMEOUT)
            .max_buf_size(CONNECTION_BUFFER)
            .serve_connection(TokioIo::new(stream), service)
            .with_upgrades()
            .await;
        if let Err(error) = served {
            tracing::debug!(%error, "a connection ended early");
        }
        drop(slot);
    });
}

async fn answer(app: &SharedApp, request: Request<Incoming>) -> Reply {
    let (head, body) = request.into_parts();
    let (body, rest) = request_body::split(body);
    let reply = match route(app, Request::from_parts(head, body)).await {
        Ok(reply) => reply,
        Err(error) => body::error(&error),
    };
    rest.discard();
    reply
}

async fn route(app: &SharedApp, request: Request<RequestBody>) -> Result<Reply, ErrorBody> {
    let path = request.uri().path().to_owned();
    if path == "/healthz" {
        allow(&request, &[Method::GET])?;
        return Ok(body::json(200, &health(app)));
    }
    authorize(app, &request)?;
    if app.draining.get() {
        return Err(ErrorBody::new(ErrorCode::SandboxLost, "the runner is ending"));
    }
    let Some(route) = path.strip_prefix("/v1/") else { return Err(no_route(&path)) };
    let segments: Vec<&str> = route.split('/').collect();
    match segments.as_slice() {
        ["hold"] => return disk::hold(app, &request),
        ["release"] => return disk::release(app, &request),
        ["disk"] => return disk::copy(app, request).await,
        // As in a frozen sandbox.
        _ => app.hold.released().await,
    }
    match segments.as_slice() {
        ["claim"] => claim::claim(app, request).await,
        ["state"] => state::give(app, &request).await,
        ["restore"] => state::restore(app, request).await,
        ["exec"] => exec::exec(app, request).await,
        ["run"] => exec::run(app, request).await,
        ["execs"] => exec::list(app, &request),
        ["execs", id] => exec::reattach(app, &request, id).await,
        ["execs", id, "stdin"] => stdin::write(app, request, id).await,
        ["input"] => shells::input(app, request).await,
        ["signal"] => shells::signal(app, request).await,
        ["resize"] => shells::resize(app, request).await,
        ["shells"] => shells::list_or_open(app, request).await,
        ["shells", name] => shells::close(app, &request, name).await,
        ["shells", name, "reset"] => shells::reset(app, &request, name).await,
        ["shells", name, "end"] => shells::end(app, &request, name),
        ["shells", name, "attach"] => attach::attach(app, request, name).await,
        ["network", "accept"] => network::accept(app, request).await,
        ["ports"] => ports::list(app, &request).await,
        ["ports", port, "connect"] => ports::connect(app, request, port).await,
        ["files" | "archive" | "fs", ..] => files::handle(app, request, route).await,
        _ => Err(no_route(&path)),
    }
}

fn no_route(path: &str) -> ErrorBody {
    let shown: String = path.chars().take(100).collect();
    ErrorBody::new(ErrorCode::NotFound, format!("no route {shown}"))
}

/// Refuses a method that a route does not have.
pub(crate) fn allow(request: &Request<RequestBody>, methods: &[Method]) -> Result<(), ErrorBody> {
    if methods.contains(request.method()) {
        return Ok(());
    }
    let names: Vec<&str> = methods.iter().map(Method::as_str).collect();
    let message = format!("{} is not allowed here: use {}", request.method(), names.join(" or "));
    Err(ErrorBody::new(ErrorCode::MethodNotAllowed, message))
}

fn authorize(app: &App, request: &Request<RequestBody>) -> Result<(), ErrorBody> {
    let Listen::Tcp { token, .. } = &app.listen else { return Ok(()) };
    let given = request.headers().get(hyper::header::AUTHORIZATION).map(|v| v.as_bytes()).unwrap_or_default();
    let given = given.strip_prefix(b"Bearer ").unwrap_or_default();
    if equal_in_constant_time(given, token.0.as_bytes()) {
        Ok(())
    } else {
        Err(ErrorBody::new(ErrorCode::Unauthorized, "send the runner's token as Authorization: Bearer TOKEN"))
    }
}

/// Compares in constant time, so that the time does not show where the two differ.
fn equal_in_constant_time(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |differs, (x, y)| differs | (x ^ y)) == 0
}

fn health(app: &App) -> HealthView {
    HealthView {
        status: if app.draining.get() { "draining" } else { "ok" }.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        uptime_ms: u64::try_from(app.started.elapsed().as_millis()).unwrap_or(u64::MAX),
        separation: Separation {
            runner_uid: nix::unistd::geteuid().as_raw(),
            command_uid: app.identity.uid,
            command_gid: app.identity.gid,
            separate_user: app.identity.switch,
            no_new_privs: true,
        },
        shells: app.shells.len(),
        execs: app.execs.len(),
        claimed: app.environment.is_claimed(),
        network_proxy: app.network.is_some(),
        copies_disk: true,
    }
}

#[cfg(test)]
mod tests {
    use super::equal_in_constant_time;

    #[test]
    fn tokens_are_compared_whole() {
        assert!(equal_in_constant_time(b"abc", b"abc"));
        for wrong in [&b"abd"[..], b"ab", b"abcd", b""] {
            assert!(!equal_in_constant_time(wrong, b"abc"));
        }
    }
}

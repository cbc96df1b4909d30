//! For tests: the routes on a real port, over the real runner as a plain process.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use axum::body::Body;
use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::{HeaderMap, Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use shared_protocol::SessionId;
use tokio::net::{TcpListener, TcpStream};

use super::{ApiState, router};
use crate::config::Config;
use crate::metrics::Metrics;
use crate::runner_client::RunnerClient;
use crate::runtime::RunnerAddress;
use crate::session::{Registry, SessionHandle};

/// One session on one runner. Its process ends with this value.
pub struct Live {
    pub port: u16,
    pub session: SessionHandle,
    pub workspace: std::path::PathBuf,
    runner: Child,
    _dir: tempfile::TempDir,
}

impl Drop for Live {
    fn drop(&mut self) {
        let _ = self.runner.kill();
        let _ = self.runner.wait();
    }
}

/// An answer whose body is still to come. Dropping it hangs up.
pub struct Coming {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Incoming,
    connection: tokio::task::JoinHandle<()>,
}

impl Drop for Coming {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

impl Coming {
    /// The next piece; empty at the end or where the connection was cut.
    pub async fn piece(&mut self) -> Bytes {
        match self.body.frame().await {
            Some(Ok(frame)) => frame.into_data().unwrap_or_default(),
            _ => Bytes::new(),
        }
    }

    pub async fn bytes(&mut self) -> Bytes {
        (&mut self.body).collect().await.unwrap().to_bytes()
    }
}

impl Live {
    pub async fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (program, socket) = (dir.path().join("runner"), dir.path().join("s"));
        let workspace = dir.path().join("workspace");
        std::fs::create_dir(&workspace).unwrap();
        std::fs::set_permissions(&workspace, PermissionsExt::from_mode(0o777)).unwrap();
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let mut file = std::fs::File::create(&program).unwrap();
        file.write_all(crate::EMBEDDED_RUNNER).unwrap();
        file.set_permissions(PermissionsExt::from_mode(0o755)).unwrap();
        drop(file);
        let mut command = Command::new(&program);
        command.arg("--socket").arg(&socket).arg("--workspace").arg(&workspace).stderr(Stdio::piped());
        // Another thread's fork may hold the file open for writing for a moment.
        let mut runner = loop {
            match command.spawn() {
                Err(error) if error.kind() == std::io::ErrorKind::ExecutableFileBusy => std::thread::yield_now(),
                spawned => break spawned.unwrap(),
            }
        };
        let mut log = BufReader::new(runner.stderr.take().unwrap());
        let mut line = String::new();
        while !line.contains("listening") {
            line.clear();
            assert_ne!(log.read_line(&mut line).unwrap(), 0, "the runner ended before it listened");
        }
        std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));

        let sessions = Registry::default();
        let session =
            sessions.insert(SessionId::new("s").unwrap(), RunnerClient::new(RunnerAddress::Unix(socket.clone())));
        let state = ApiState { sessions, config: Arc::new(Config::default()), metrics: Metrics };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move { axum::serve(listener, router(state)).await });
        Self { port, session, workspace, runner, _dir: dir }
    }

    /// Sends a request to `/v1/sessions/s/{path}`.
    pub async fn send(&self, method: Method, path: &str, headers: &[(&str, &str)], body: impl Into<Body>) -> Coming {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).await.unwrap();
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        let connection = tokio::spawn(async move { drop(connection.await) });
        let mut request = Request::builder().method(method).uri(format!("/v1/sessions/s/{path}")).header("host", "x");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (head, body) = sender.send_request(request.body(body.into()).unwrap()).await.unwrap().into_parts();
        Coming { status: head.status, headers: head.headers, body, connection }
    }

    pub async fn get(&self, path: &str) -> Coming {
        self.send(Method::GET, path, &[], Body::empty()).await
    }

    pub async fn put(&self, path: &str, body: impl Into<Body>) -> StatusCode {
        self.send(Method::PUT, path, &[], body).await.status
    }

    /// A JSON document each way.
    pub async fn post(&self, path: &str, body: Value) -> (StatusCode, Value) {
        let mut answer = self.send(Method::POST, path, &[], body.to_string()).await;
        let bytes = answer.bytes().await;
        (answer.status, serde_json::from_slice(&bytes).unwrap())
    }

    /// A command that must be answered with 200.
    pub async fn exec(&self, body: Value) -> Value {
        let (status, reply) = self.post("exec", body).await;
        assert_eq!(status, StatusCode::OK, "{reply}");
        reply
    }

    pub async fn json(&self, path: &str) -> (StatusCode, Value) {
        let mut answer = self.get(path).await;
        let bytes = answer.bytes().await;
        (answer.status, serde_json::from_slice(&bytes).unwrap())
    }
}

/// Server-sent events, from pieces of a stream.
#[derive(Default)]
pub struct Events(Vec<u8>);

#[derive(Debug)]
pub struct Event {
    pub name: String,
    pub id: u64,
    pub data: Value,
}

impl Events {
    /// The events that are whole now.
    pub fn push(&mut self, piece: &[u8]) -> Vec<Event> {
        self.0.extend_from_slice(piece);
        let mut events = Vec::new();
        while let Some(end) = self.0.windows(2).position(|two| two == b"\n\n") {
            let block = String::from_utf8(self.0.drain(..end + 2).collect()).unwrap();
            let field = |name: &str| block.lines().find_map(|line| line.strip_prefix(name));
            if let (Some(name), Some(id), Some(data)) = (field("event: "), field("id: "), field("data: ")) {
                let data = serde_json::from_str(data).unwrap();
                events.push(Event { name: name.to_owned(), id: id.parse().unwrap(), data });
            }
        }
        events
    }
}

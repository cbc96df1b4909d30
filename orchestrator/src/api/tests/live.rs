//! A test fixture: the routes on a real port, with sessions whose sandbox is the real runner as a plain process.

use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use axum::body::Body;
use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::{HeaderMap, Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use shared_protocol::api::{CreateSessionRequest, ImageView, StatsView};
use shared_protocol::{RuntimeName, SessionId};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

use crate::api::ports::Previews;
use crate::api::{ApiState, router};
use crate::config::{Config, ServeFlags};
use crate::key::KeyTable;
use crate::mcp::Mcp;
use crate::metrics::Metrics;
use crate::runner_address::RunnerAddress;
use crate::runtime::{Origin, Runtime, RuntimeError, Sandbox, SandboxSpec};
use crate::service::ports::LinkKey;
use crate::service::workspaces::Workspaces;
use crate::service::{Caller, Role, Service, ServiceParts};
use crate::session::{Registry, RegistryParts, SessionHandle};
use crate::spec::SessionSpec;
use crate::workspace::WorkspaceDirs;

/// A runtime without isolation: each sandbox is a runner process in a directory of its own.
struct Processes {
    dir: PathBuf,
    running: Mutex<HashMap<SessionId, (Child, oneshot::Sender<String>)>>,
}

impl Processes {
    fn stop(&self, id: &SessionId) {
        if let Some((mut child, _)) = self.running.lock().unwrap().remove(id) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        for (mut child, _) in self.running.lock().unwrap().drain().map(|(_, process)| process) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[async_trait]
impl Runtime for Processes {
    fn name(&self) -> RuntimeName {
        RuntimeName::new("local").unwrap()
    }

    async fn images(&self) -> Vec<ImageView> {
        vec![ImageView { name: "base".into(), runtime: self.name(), source: "host".into(), default: true }]
    }

    async fn check(&self, _: &SessionSpec, _: &Origin) -> Result<(), RuntimeError> {
        Ok(())
    }

    async fn create(&self, spec: &SandboxSpec) -> Result<Sandbox, RuntimeError> {
        let (socket, sender_and_end) = (self.dir.join("s"), oneshot::channel());
        let (sender, ended) = sender_and_end;
        let child = start_runner(&self.dir, &socket);
        self.running.lock().unwrap().insert(spec.id.clone(), (child, sender));
        Ok(Sandbox {
            address: RunnerAddress::Unix(socket),
            ended,
            network: None,
            start_dir: None,
            state: None,
            newer_variables: BTreeMap::new(),
        })
    }

    async fn adopt(&self, id: &SessionId) -> Result<Sandbox, RuntimeError> {
        Err(RuntimeError::Gone(id.clone()))
    }

    async fn stats(&self, id: &SessionId) -> Result<StatsView, RuntimeError> {
        Err(RuntimeError::Gone(id.clone()))
    }

    async fn pause(&self, _: &SessionId) -> Result<(), RuntimeError> {
        Ok(())
    }

    async fn resume(&self, _: &SessionId) -> Result<(), RuntimeError> {
        Ok(())
    }

    async fn destroy(&self, id: &SessionId) -> Result<(), RuntimeError> {
        self.stop(id);
        Ok(())
    }

    async fn list(&self) -> Result<Vec<SessionId>, RuntimeError> {
        Ok(self.running.lock().unwrap().keys().cloned().collect())
    }
}

/// Starts a runner and waits until it listens.
fn start_runner(dir: &Path, socket: &Path) -> Child {
    let program = dir.join("runner");
    let mut file = std::fs::File::create(&program).unwrap();
    file.write_all(crate::EMBEDDED_RUNNER).unwrap();
    file.set_permissions(PermissionsExt::from_mode(0o755)).unwrap();
    drop(file);
    let mut command = Command::new(&program);
    command.arg("--socket").arg(socket).arg("--workspace").arg(dir.join("workspace")).stderr(Stdio::piped());
    // A fork of another thread may hold the file open for writing for a moment.
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
    runner
}

/// One session on one runner. Dropping it ends the runner's process.
pub struct Live {
    pub port: u16,
    pub sessions: Registry,
    pub session: SessionHandle,
    pub workspace: PathBuf,
    runtime: Arc<Processes>,
    _dir: tempfile::TempDir,
    /// The daemon stops when it is dropped.
    _stop: tokio::sync::watch::Sender<bool>,
}

impl Drop for Live {
    fn drop(&mut self) {
        self.runtime.stop(self.session.id());
    }
}

/// A response whose body is still arriving. Dropping it closes the connection.
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
    /// Returns the next piece of the body. It is empty at the end, and when the connection was cut.
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
        let workspace = dir.path().join("workspace");
        std::fs::create_dir(&workspace).unwrap();
        std::fs::set_permissions(&workspace, PermissionsExt::from_mode(0o777)).unwrap();
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).unwrap();

        let flags = ServeFlags { data_dir: Some(dir.path().join("data")), ..ServeFlags::default() };
        let config = Config::load(&flags).unwrap();
        let runtime = Arc::new(Processes { dir: dir.path().to_owned(), running: Mutex::default() });
        let metrics = Metrics::new();
        let store = crate::store::Store::in_memory();
        let dirs = WorkspaceDirs::open(dir.path().join("workspaces")).unwrap();
        let parts = RegistryParts {
            network: crate::network::Network::for_test(),
            runtimes: vec![runtime.clone()],
            config: config.sessions.clone(),
            snapshots: crate::config::SnapshotsConfig::default(),
            workspaces: dirs.clone(),
            metrics: metrics.clone(),
            store: store.clone(),
            clock: crate::session::Clock::start(),
        };
        let sessions = Registry::new(parts).unwrap();
        let view = sessions.create(CreateSessionRequest::default(), None).await.unwrap();
        let session = sessions.get(&view.id).unwrap();
        let workspaces = Workspaces::new(dirs, sessions.clone());
        let keys = KeyTable::open("no-request-has-it", store);
        let parts = ServiceParts {
            registry: sessions.clone(),
            keys,
            network: crate::network::Network::for_test(),
            workspaces,
            metrics,
            exec: config.exec.clone(),
            puller: crate::image::Puller::new(&config.data_dir.join("images"), config.images.clone()),
            link_key: LinkKey::new([7; 32]),
        };
        let previews = Previews::new(config.preview.clone(), 8080);
        let service = Service::new(parts);
        let (stop, stopped) = tokio::sync::watch::channel(false);
        let mcp = Mcp::new(service.clone(), previews.link_url(), stopped);
        let router = router(ApiState { service, previews, mcp });
        // The caller that the gate would attach to each request.
        let router = router.layer(axum::Extension(Caller::of("test", Role::Admin)));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { port, sessions, session, workspace, runtime, _dir: dir, _stop: stop }
    }

    /// The full path of a call of the session.
    pub fn path(&self, path: &str) -> String {
        format!("/v1/sessions/{}/{path}", self.session.id())
    }

    /// Sends a request to the session.
    pub async fn send(&self, method: Method, path: &str, headers: &[(&str, &str)], body: impl Into<Body>) -> Coming {
        self.send_to(method, &self.path(path), headers, body).await
    }

    /// Sends a request to any path.
    pub async fn send_to(&self, method: Method, path: &str, headers: &[(&str, &str)], body: impl Into<Body>) -> Coming {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).await.unwrap();
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        let connection = tokio::spawn(async move { drop(connection.await) });
        let mut request = Request::builder().method(method).uri(path).header("host", "x");
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

    /// Sends a JSON document and returns the JSON answer.
    pub async fn post(&self, path: &str, body: Value) -> (StatusCode, Value) {
        let mut answer = self.send(Method::POST, path, &[], body.to_string()).await;
        let bytes = answer.bytes().await;
        (answer.status, serde_json::from_slice(&bytes).unwrap())
    }

    /// Runs a command, which must be answered with 200.
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

/// Parses server-sent events from the pieces of a stream.
#[derive(Default)]
pub struct Events(Vec<u8>);

#[derive(Debug)]
pub struct Event {
    pub name: String,
    pub id: u64,
    pub data: Value,
}

impl Events {
    /// Adds a piece and returns the events that are complete now.
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

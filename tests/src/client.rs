//! The client of the runner: one connection for each call, with the types of the protocol. A request that cannot be sent, or
//! an answer that cannot be read, fails the test at once; a refusal of the runner is returned as a [`Refused`].

use std::path::PathBuf;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::HeaderValue;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use shared_protocol::ErrorBody;
use shared_protocol::runner::{
    ExecRequest, ExecView, HealthView, InputRequest, OpenShellRequest, ResizeRequest, RunRequest, ShellView,
    SignalRequest,
};

use crate::http::{Address, Answer, Connection};
use crate::request::Ask as _;
use crate::request::ask;
use crate::stream::{Finished, FrameStream};
use crate::wait::DEADLINE;

#[derive(Debug, Clone)]
pub struct Client {
    pub(crate) address: Address,
    pub(crate) token: Option<String>,
    pub(crate) log: PathBuf,
}

/// An error answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    pub status: u16,
    pub body: ErrorBody,
}

impl Refused {
    fn from(answer: &Answer) -> Self {
        Self { status: answer.status, body: answer.error() }
    }
}

/// The terminal's bytes, in both directions.
pub type Attached = TokioIo<hyper::upgrade::Upgraded>;

impl Client {
    /// A client of the same runner with another token, or none.
    pub fn with_token(&self, token: Option<&str>) -> Self {
        Self { token: token.map(str::to_owned), ..self.clone() }
    }

    /// Opens a connection to the runner, for one request after another.
    pub async fn connect(&self) -> anyhow::Result<Connection> {
        Connection::open(&self.address).await
    }

    /// Makes a request for the runner, with the client's token.
    pub fn request(&self, method: Method, path: &str, body: impl Into<Bytes>) -> anyhow::Result<Request<Full<Bytes>>> {
        let mut request = Request::builder().method(method).uri(path).header("host", "runner");
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        Ok(request.body(Full::new(body.into()))?)
    }

    /// Sends a request on a new connection. An error means that nobody listens there (yet, or any more).
    pub async fn send(&self, request: Request<Full<Bytes>>) -> anyhow::Result<Response<Incoming>> {
        let mut connection = self.connect().await?;
        tokio::time::timeout(DEADLINE, connection.send(request)).await?
    }

    /// Sends a request that may be a bad one.
    pub async fn raw(&self, method: Method, path: &str, body: impl Into<Bytes>) -> Answer {
        self.try_raw(method, path, body).await.unwrap_or_else(|e| panic!("{path}: {e:#}\n{}", self.log_text()))
    }

    pub async fn try_raw(&self, method: Method, path: &str, body: impl Into<Bytes>) -> anyhow::Result<Answer> {
        Answer::read(self.send(self.request(method, path, body)?).await?).await
    }

    async fn call<T: DeserializeOwned>(&self, method: Method, path: &str, body: Vec<u8>) -> Result<T, Refused> {
        let answer = self.raw(method, path, body).await;
        if answer.status >= 300 {
            return Err(Refused::from(&answer));
        }
        Ok(serde_json::from_slice(&answer.body).unwrap_or_else(|e| panic!("{path}: {e}: {}", answer.text())))
    }

    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Refused> {
        self.call(Method::GET, path, Vec::new()).await
    }

    pub async fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, Refused> {
        self.call(Method::POST, path, serde_json::to_vec(body).expect("serializable")).await
    }

    async fn frames(&self, method: Method, path: &str, body: Vec<u8>, from: u64) -> Result<FrameStream, Refused> {
        let request = self.request(method, path, body).expect("a valid request");
        let response = self.send(request).await.unwrap_or_else(|e| panic!("{path}: {e:#}\n{}", self.log_text()));
        if response.status() != StatusCode::OK {
            return Err(Refused::from(&Answer::read(response).await.expect("a whole answer")));
        }
        Ok(FrameStream::new(response.into_body(), from, self.log.clone()))
    }

    /// Starts a command. The stream is its output as it arrives.
    pub async fn try_exec_stream(&self, request: &ExecRequest) -> Result<FrameStream, Refused> {
        self.frames(Method::POST, "/v1/exec", serde_json::to_vec(request).expect("serializable"), 0).await
    }

    pub async fn exec_stream(&self, request: ExecRequest) -> FrameStream {
        let cmd: String = request.cmd.chars().take(80).collect();
        self.try_exec_stream(&request).await.unwrap_or_else(|e| panic!("{cmd:?} was refused: {e:?}"))
    }

    pub async fn exec(&self, request: ExecRequest) -> Finished {
        self.exec_stream(request).await.finish().await
    }

    /// Runs a command in the main shell with merged streams.
    pub async fn sh(&self, cmd: &str) -> Finished {
        self.exec(ask(cmd)).await
    }

    /// The output of a command that must succeed.
    pub async fn output_of(&self, cmd: &str) -> String {
        let finished = self.sh(cmd).await;
        assert_eq!(finished.code(), 0, "{cmd:?} failed: {}", finished.text());
        finished.text()
    }

    pub async fn split(&self, cmd: &str) -> Finished {
        self.exec(ask(cmd).split()).await
    }

    pub async fn tty(&self, cmd: &str) -> Finished {
        self.exec(ask(cmd).tty()).await
    }

    pub async fn run_stream(&self, request: RunRequest) -> Result<FrameStream, Refused> {
        self.frames(Method::POST, "/v1/run", serde_json::to_vec(&request).expect("serializable"), 0).await
    }

    pub async fn run(&self, request: RunRequest) -> Finished {
        let argv = request.argv.clone();
        let stream = self.run_stream(request).await.unwrap_or_else(|e| panic!("{argv:?} was refused: {e:?}"));
        stream.finish().await
    }

    /// Reattaches to an exec from an offset: with `follow` until its end, otherwise up to the current output.
    pub async fn reattach(&self, exec_id: &str, from: u64, follow: bool) -> Result<FrameStream, Refused> {
        let follow = u8::from(follow);
        self.frames(Method::GET, &format!("/v1/execs/{exec_id}?from={from}&follow={follow}"), Vec::new(), from).await
    }

    pub async fn execs(&self) -> Vec<ExecView> {
        self.get("/v1/execs").await.expect("a list of execs")
    }

    pub async fn exec_view(&self, exec_id: &str) -> ExecView {
        let execs = self.execs().await;
        execs.into_iter().find(|e| e.exec_id.as_str() == exec_id).unwrap_or_else(|| panic!("{exec_id} is not listed"))
    }

    pub async fn try_health(&self) -> anyhow::Result<HealthView> {
        let answer = self.try_raw(Method::GET, "/healthz", Bytes::new()).await?;
        Ok(serde_json::from_slice(&answer.body)?)
    }

    pub async fn health(&self) -> HealthView {
        self.try_health().await.unwrap_or_else(|e| panic!("no health: {e:#}\n{}", self.log_text()))
    }

    /// Types at the main shell's terminal.
    pub async fn input(&self, data: &str) {
        self.input_to(None, data).await;
    }

    pub async fn input_to(&self, shell: Option<&str>, data: &str) {
        let shell = shell.map(|s| s.to_owned().try_into().expect("a valid name"));
        let request = InputRequest { shell, data: Some(data.to_owned()), ..InputRequest::default() };
        let _: Value = self.post("/v1/input", &request).await.expect("input is accepted");
    }

    /// Signals the foreground program of the main shell.
    pub async fn signal(&self, signal: &str) {
        let request = SignalRequest { signal: signal.to_owned(), ..SignalRequest::default() };
        let _: Value = self.post("/v1/signal", &request).await.expect("the signal is accepted");
    }

    pub async fn signal_exec(&self, exec_id: &str, signal: &str) {
        let request = json!({ "signal": signal, "exec_id": exec_id });
        let _: Value = self.post("/v1/signal", &request).await.expect("the signal is accepted");
    }

    pub async fn resize(&self, shell: Option<&str>, cols: u16, rows: u16) {
        let shell = shell.map(|s| s.to_owned().try_into().expect("a valid name"));
        let request = ResizeRequest { shell, cols, rows };
        let _: Value = self.post("/v1/resize", &request).await.expect("the size is accepted");
    }

    pub async fn shells(&self) -> Vec<ShellView> {
        self.get("/v1/shells").await.expect("a list of shells")
    }

    pub async fn shell(&self, name: &str) -> ShellView {
        let shells = self.shells().await;
        shells.into_iter().find(|s| s.name.as_str() == name).unwrap_or_else(|| panic!("{name} is not listed"))
    }

    pub async fn open_shell(&self, request: &OpenShellRequest) -> ShellView {
        self.post("/v1/shells", request).await.unwrap_or_else(|e| panic!("{request:?} was refused: {e:?}"))
    }

    /// Opens a shell for execs with this name.
    pub async fn open(&self, name: &str) -> ShellView {
        let name = Some(name.to_owned().try_into().expect("a valid name"));
        self.open_shell(&OpenShellRequest { name, ..OpenShellRequest::default() }).await
    }

    pub async fn reset_shell(&self, name: &str) -> ShellView {
        self.post(&format!("/v1/shells/{name}/reset"), &json!({})).await.expect("the shell is reset")
    }

    pub async fn close_shell(&self, name: &str) {
        let _: Value =
            self.call(Method::DELETE, &format!("/v1/shells/{name}"), Vec::new()).await.expect("the shell is closed");
    }

    /// Attaches to the terminal of a shell by an HTTP upgrade.
    pub async fn attach(&self, shell: &str, cols: u16, rows: u16) -> Attached {
        let path = format!("/v1/shells/{shell}/attach?cols={cols}&rows={rows}");
        let mut request = self.request(Method::GET, &path, Bytes::new()).expect("a valid request");
        request.headers_mut().insert("connection", HeaderValue::from_static("Upgrade"));
        request.headers_mut().insert("upgrade", HeaderValue::from_static("cove-terminal"));
        let response = self.send(request).await.expect("an answer to the upgrade");
        assert_eq!(response.status(), StatusCode::SWITCHING_PROTOCOLS, "{response:?}\n{}", self.log_text());
        TokioIo::new(hyper::upgrade::on(response).await.expect("the connection is ours now"))
    }

    /// What the runner has logged so far.
    pub fn log_text(&self) -> String {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        format!("-- the runner's log:\n{log}")
    }
}

//! A client of the runner: one connection a call, typed by the protocol. What cannot be sent or understood fails the test
//! at once; what the runner refuses comes back as a [`Refused`].

use std::net::SocketAddr;
use std::path::PathBuf;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
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
use tokio::net::{TcpStream, UnixStream};

use crate::request::Ask as _;
use crate::request::ask;
use crate::stream::{Finished, FrameStream};
use crate::wait::DEADLINE;

#[derive(Debug, Clone)]
pub(crate) enum Endpoint {
    Unix(PathBuf),
    Tcp(SocketAddr),
}

#[derive(Debug, Clone)]
pub struct Client {
    pub(crate) endpoint: Endpoint,
    pub(crate) token: Option<String>,
    pub(crate) log: PathBuf,
}

/// An answer in the one error shape.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    pub status: u16,
    pub body: ErrorBody,
}

/// Any answer, as it came.
#[derive(Debug, Clone)]
pub struct Reply {
    pub status: u16,
    pub body: Bytes,
}

impl Reply {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The error this answer must be.
    pub fn refused(&self) -> Refused {
        let body = serde_json::from_slice(&self.body)
            .unwrap_or_else(|e| panic!("{} without an error body ({e}): {}", self.status, self.text()));
        Refused { status: self.status, body }
    }
}

/// The terminal's bytes, both ways.
pub type Attached = TokioIo<hyper::upgrade::Upgraded>;

impl Client {
    /// The same runner, asked with another token or none.
    pub fn with_token(&self, token: Option<&str>) -> Self {
        Self { token: token.map(str::to_owned), ..self.clone() }
    }

    /// Sends one request on a connection of its own. An error means that nobody listens there (yet, or any more).
    pub async fn send(&self, request: Request<Full<Bytes>>) -> anyhow::Result<Response<Incoming>> {
        match &self.endpoint {
            Endpoint::Unix(path) => self.send_over(UnixStream::connect(path).await?, request).await,
            Endpoint::Tcp(address) => self.send_over(TcpStream::connect(address).await?, request).await,
        }
    }

    async fn send_over<I>(&self, io: I, mut request: Request<Full<Bytes>>) -> anyhow::Result<Response<Incoming>>
    where
        I: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    {
        request.headers_mut().insert("host", "runner".parse()?);
        if let Some(token) = &self.token {
            request.headers_mut().insert("authorization", format!("Bearer {token}").parse()?);
        }
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(io)).await?;
        // Ends with the connection, which ends when the response's body is dropped.
        tokio::spawn(connection.with_upgrades());
        Ok(tokio::time::timeout(DEADLINE, sender.send_request(request)).await??)
    }

    /// Any request, for bad ones too.
    pub async fn raw(&self, method: Method, path: &str, body: impl Into<Bytes>) -> Reply {
        self.try_raw(method, path, body).await.unwrap_or_else(|e| panic!("{path}: {e:#}\n{}", self.log_text()))
    }

    pub async fn try_raw(&self, method: Method, path: &str, body: impl Into<Bytes>) -> anyhow::Result<Reply> {
        let request = Request::builder().method(method).uri(path).body(Full::new(body.into()))?;
        let response = self.send(request).await?;
        let status = response.status().as_u16();
        let body = tokio::time::timeout(DEADLINE, response.into_body().collect()).await??.to_bytes();
        Ok(Reply { status, body })
    }

    async fn call<T: DeserializeOwned>(&self, method: Method, path: &str, body: Vec<u8>) -> Result<T, Refused> {
        let reply = self.raw(method, path, body).await;
        if reply.status >= 300 {
            return Err(reply.refused());
        }
        Ok(serde_json::from_slice(&reply.body).unwrap_or_else(|e| panic!("{path}: {e}: {}", reply.text())))
    }

    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Refused> {
        self.call(Method::GET, path, Vec::new()).await
    }

    pub async fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, Refused> {
        self.call(Method::POST, path, serde_json::to_vec(body).expect("serializable")).await
    }

    async fn frames(&self, method: Method, path: &str, body: Vec<u8>, from: u64) -> Result<FrameStream, Refused> {
        let request =
            Request::builder().method(method).uri(path).body(Full::new(body.into())).expect("a valid request");
        let response = self.send(request).await.unwrap_or_else(|e| panic!("{path}: {e:#}\n{}", self.log_text()));
        let status = response.status().as_u16();
        if status != 200 {
            let body = response.into_body().collect().await.expect("a whole answer").to_bytes();
            return Err(Reply { status, body }.refused());
        }
        Ok(FrameStream::new(response.into_body(), from, self.log.clone()))
    }

    /// Starts a command; the stream is its output as it comes.
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

    /// A command in the main shell with its streams merged.
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

    /// Comes back to an exec from an offset: with `follow` until its end, without it what there is now.
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
        let reply = self.try_raw(Method::GET, "/healthz", Bytes::new()).await?;
        Ok(serde_json::from_slice(&reply.body)?)
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

    /// A shell for execs with this name.
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

    /// Takes the terminal of a shell over, by an HTTP upgrade.
    pub async fn attach(&self, shell: &str, cols: u16, rows: u16) -> Attached {
        let request = Request::builder()
            .uri(format!("/v1/shells/{shell}/attach?cols={cols}&rows={rows}"))
            .header("connection", "Upgrade")
            .header("upgrade", "cove-terminal")
            .body(Full::default())
            .expect("a valid request");
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

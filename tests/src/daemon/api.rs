//! The client of the daemon: one connection for each call, with JSON in both directions.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Incoming};
use hyper::{Method, Request, Response, StatusCode};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::{EventStream, Pattern, Session};
use crate::http::{Address, Answer, Connection};
use crate::wait::{DEADLINE, LONG_DEADLINE};

#[derive(Debug, Clone)]
pub struct Api {
    pub address: SocketAddr,
    pub key: Option<String>,
    /// The headers of every request. Each replaces a header with the same name.
    pub headers: Vec<(&'static str, String)>,
    /// The longest wait for the begin of an answer.
    pub patience: Duration,
}

impl Api {
    /// A client of the same daemon with another key, or none.
    pub fn with_key(&self, key: Option<&str>) -> Self {
        Self { key: key.map(str::to_owned), ..self.clone() }
    }

    /// A client of the same daemon with more time for each answer, for requests that wait for many others.
    pub fn patient(&self) -> Self {
        Self { patience: LONG_DEADLINE, ..self.clone() }
    }

    pub fn with_header(&self, name: &'static str, value: &str) -> Self {
        let mut other = self.clone();
        other.headers.push((name, value.to_owned()));
        other
    }

    /// Opens a connection to the daemon, for one request after another.
    pub async fn connect(&self) -> anyhow::Result<Connection> {
        Connection::open(&Address::Tcp(self.address)).await
    }

    /// Makes a request for the daemon, with the client's key and headers.
    pub fn request<B: Body>(&self, method: Method, path: &str, body: B) -> anyhow::Result<Request<B>> {
        let mut request = Request::builder().method(method).uri(path).body(body)?;
        let headers = request.headers_mut();
        headers.insert("host", self.address.to_string().parse()?);
        headers.insert("content-type", "application/json".parse()?);
        if let Some(key) = &self.key {
            headers.insert("authorization", format!("Bearer {key}").parse()?);
        }
        for (name, value) in &self.headers {
            headers.insert(*name, value.parse()?);
        }
        Ok(request)
    }

    /// Sends a request on a new connection and returns the head of the answer, before its body.
    pub async fn open(&self, method: Method, path: &str, body: impl Into<Bytes>) -> anyhow::Result<Response<Incoming>> {
        let request = self.request(method, path, Full::new(body.into()))?;
        let mut connection = self.connect().await?;
        tokio::time::timeout(self.patience, connection.send(request)).await?
    }

    /// Sends bytes that no HTTP library would send, and returns the first answer to them.
    pub async fn raw(&self, request: &[u8]) -> anyhow::Result<Answer> {
        let mut stream = TcpStream::connect(self.address).await?;
        stream.write_all(request).await?;
        let mut all = Vec::new();
        loop {
            let count = tokio::time::timeout(DEADLINE, stream.read_buf(&mut all)).await??;
            match Answer::parse(&all) {
                Some(answer) => return Ok(answer),
                None if count == 0 => anyhow::bail!("no answer: {:?}", String::from_utf8_lossy(&all)),
                None => {}
            }
        }
    }

    /// Uploads this many bytes of the [`Pattern`], without keeping them in memory.
    pub async fn put_pattern(&self, path: &str, length: u64) -> anyhow::Result<Answer> {
        self.send_pattern(Method::PUT, path, length).await
    }

    pub async fn send_pattern(&self, method: Method, path: &str, length: u64) -> anyhow::Result<Answer> {
        let bytes = self.with_header("content-type", "application/octet-stream");
        let request = bytes.request(method, path, Pattern::new(length))?;
        let mut connection = Connection::open(&Address::Tcp(self.address)).await?;
        Answer::read(tokio::time::timeout(LONG_DEADLINE, connection.send(request)).await??).await
    }

    pub async fn try_send(&self, method: Method, path: &str, body: impl Into<Bytes>) -> anyhow::Result<Answer> {
        Answer::read(self.open(method, path, body).await?).await
    }

    pub async fn send(&self, method: Method, path: &str, body: impl Into<Bytes>) -> Answer {
        let shown = format!("{method} {path}");
        self.try_send(method, path, body).await.unwrap_or_else(|e| panic!("{shown}: {e:#}"))
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, Bytes::new()).await
    }

    pub async fn post(&self, path: &str, body: Value) -> Answer {
        self.send(Method::POST, path, body.to_string()).await
    }

    pub async fn put(&self, path: &str, body: Value) -> Answer {
        self.send(Method::PUT, path, body.to_string()).await
    }

    pub async fn delete(&self, path: &str) -> Answer {
        self.send(Method::DELETE, path, Bytes::new()).await
    }

    pub async fn events(&self, method: Method, path: &str, body: Value) -> EventStream {
        let body = if body.is_null() { Bytes::new() } else { body.to_string().into() };
        let response = self.open(method, path, body).await.unwrap_or_else(|e| panic!("{path}: {e:#}"));
        if response.status() != StatusCode::OK {
            let answer = Answer::read(response).await.expect("a whole answer");
            panic!("{path}: {}: {}", answer.status, answer.text());
        }
        EventStream::new(response)
    }

    /// Creates a session with default settings.
    pub async fn session(&self) -> Session {
        self.create(serde_json::json!({})).await
    }

    pub async fn create(&self, request: Value) -> Session {
        let answer = self.post("/v1/sessions", request).await;
        assert_eq!(answer.status, 201, "{}", answer.text());
        let id = answer.json()["id"].as_str().expect("a session has an id").to_owned();
        Session { api: self.clone(), id }
    }
}

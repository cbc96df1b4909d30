//! A client of the daemon: one connection a call, JSON both ways.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::{Answer, EventStream, Pattern, Session};
use crate::wait::{DEADLINE, LONG_DEADLINE};

#[derive(Debug, Clone)]
pub struct Api {
    pub address: SocketAddr,
    pub key: Option<String>,
    /// Added to every request, over what is sent otherwise.
    pub headers: Vec<(&'static str, String)>,
    /// How long an answer may take to begin.
    pub patience: Duration,
}

impl Api {
    /// The same daemon, asked with another key or none.
    pub fn with_key(&self, key: Option<&str>) -> Self {
        Self { key: key.map(str::to_owned), ..self.clone() }
    }

    /// For requests that wait for many others.
    pub fn patient(&self) -> Self {
        Self { patience: LONG_DEADLINE, ..self.clone() }
    }

    pub fn with_header(&self, name: &'static str, value: &str) -> Self {
        let mut other = self.clone();
        other.headers.push((name, value.to_owned()));
        other
    }

    fn request(&self, method: Method, path: &str, body: Bytes) -> anyhow::Result<Request<Full<Bytes>>> {
        let mut request = Request::builder().method(method).uri(path).body(Full::new(body))?;
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

    /// Sends one request on a connection of its own and returns the answer's head with its body still to come.
    pub async fn open(&self, method: Method, path: &str, body: impl Into<Bytes>) -> anyhow::Result<Response<Incoming>> {
        let request = self.request(method, path, body.into())?;
        let stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection.with_upgrades());
        Ok(tokio::time::timeout(self.patience, sender.send_request(request)).await??)
    }

    /// Bytes as they are, for what no client library would send; the first answer to them.
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

    /// Puts that many bytes of the [`Pattern`], none of them kept.
    pub async fn put_pattern(&self, path: &str, length: u64) -> anyhow::Result<Answer> {
        let request = self.request(Method::PUT, path, Bytes::new())?;
        let (mut parts, _) = request.into_parts();
        parts.headers.insert("content-type", "application/octet-stream".parse()?);
        let request = Request::from_parts(parts, Pattern::new(length));
        let stream = TcpStream::connect(self.address).await?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        let response = tokio::time::timeout(LONG_DEADLINE, sender.send_request(request)).await??;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let body = tokio::time::timeout(DEADLINE, response.into_body().collect()).await??.to_bytes();
        Ok(Answer { status, headers, body })
    }

    pub async fn try_send(&self, method: Method, path: &str, body: impl Into<Bytes>) -> anyhow::Result<Answer> {
        let response = self.open(method, path, body).await?;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let body = tokio::time::timeout(DEADLINE, response.into_body().collect()).await??.to_bytes();
        Ok(Answer { status, headers, body })
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
        let status = response.status().as_u16();
        if status != 200 {
            let body = response.into_body().collect().await.expect("a whole answer").to_bytes();
            panic!("{path}: {status}: {}", String::from_utf8_lossy(&body));
        }
        EventStream::new(response)
    }

    /// A session of the defaults.
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

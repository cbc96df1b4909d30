//! A client of the daemon: one connection, one request after the other.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use e2e::daemon::Daemon;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1::SendRequest;
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpStream;

use crate::figures::Times;
use crate::{CREATE_SAMPLES, PRINT_IT, WARM_UP};

/// One connection, kept open.
pub struct Client {
    sender: SendRequest<Full<Bytes>>,
    host: String,
    key: String,
}

impl Client {
    pub async fn connect(daemon: &Daemon) -> Result<Self> {
        let stream = TcpStream::connect(daemon.address).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(Self { sender, host: daemon.address.to_string(), key: daemon.key.clone().unwrap_or_default() })
    }

    fn request(&self, method: Method, path: &str, body: &str) -> Result<Request<Full<Bytes>>> {
        Ok(Request::builder()
            .method(method)
            .uri(path)
            .header("host", &self.host)
            .header("authorization", format!("Bearer {}", self.key))
            .header("content-type", "application/json")
            .header("accept", "application/x-ndjson")
            .body(Full::new(Bytes::copy_from_slice(body.as_bytes())))?)
    }

    pub async fn send(&mut self, method: Method, path: &str, body: &str) -> Result<Bytes> {
        self.sender.ready().await?;
        let response = self.sender.send_request(self.request(method, path, body)?).await?;
        let status = response.status();
        let body = response.into_body().collect().await?.to_bytes();
        ensure!(status.is_success(), "{path}: {status}: {}", String::from_utf8_lossy(&body));
        Ok(body)
    }

    /// The path of a new session.
    pub async fn create(&mut self, body: &str) -> Result<String> {
        let session: Value = serde_json::from_slice(&self.send(Method::POST, "/v1/sessions", body).await?)?;
        Ok(format!("/v1/sessions/{}", session["id"].as_str().unwrap_or_default()))
    }

    pub async fn measure(&mut self, samples: usize, method: Method, path: &str, body: &str) -> Result<Times> {
        self.samples(WARM_UP, &method, path, body).await?;
        Ok(Times::of(self.samples(samples, &method, path, body).await?))
    }

    /// How long each of so many requests took.
    pub async fn samples(&mut self, count: usize, method: &Method, path: &str, body: &str) -> Result<Vec<Duration>> {
        let mut times = Vec::with_capacity(count);
        for _ in 0..count {
            let start = Instant::now();
            self.send(method.clone(), path, body).await?;
            times.push(start.elapsed());
        }
        Ok(times)
    }

    /// From asking for a session to the answer of its first command.
    pub async fn creates(&mut self) -> Result<Times> {
        let mut times = Vec::with_capacity(CREATE_SAMPLES);
        for _ in 0..CREATE_SAMPLES {
            let start = Instant::now();
            let path = self.create("{}").await?;
            self.send(Method::POST, &format!("{path}/exec"), r#"{"cmd":"true"}"#).await?;
            times.push(start.elapsed());
            self.send(Method::DELETE, &path, "").await?;
        }
        Ok(Times::of(times))
    }

    /// The bytes that a command printed, counted by the offsets of its last frame.
    pub async fn stream(&mut self, path: &str) -> Result<u64> {
        self.sender.ready().await?;
        let body = json!({ "cmd": PRINT_IT, "timeout_ms": 600_000 }).to_string();
        let mut body = self.sender.send_request(self.request(Method::POST, path, &body)?).await?.into_body();
        let mut last = Vec::new();
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame?.into_data() else { continue };
            // Only the last line is wanted: what comes behind the last line's end but one.
            match data.iter().rposition(|b| *b == b'\n') {
                Some(end) if end + 1 < data.len() => last = data[end + 1..].to_vec(),
                Some(end) => {
                    let start = data[..end].iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
                    if start > 0 {
                        last.clear();
                    }
                    last.extend_from_slice(&data[start..]);
                }
                None => last.extend_from_slice(&data),
            }
        }
        let done: Value = serde_json::from_slice(last.trim_ascii_end())?;
        ensure!(done["event"] == "done" && done["exit_code"] == 0, "{done}");
        Ok(done["output_bytes"].as_u64().unwrap_or(0))
    }
}

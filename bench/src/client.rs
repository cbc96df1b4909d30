//! The benchmark's client of the daemon: one connection, one request after the other.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use e2e::daemon::{Api, Daemon};
use e2e::http::{Answer, Connection, Lines};
use http_body_util::Full;
use hyper::Method;
use serde_json::{Value, json};

use crate::figures::Times;
use crate::scale::Scale;

/// The request of an exec that does nothing.
pub const EXEC_TRUE: &str = r#"{"cmd":"true"}"#;

const STREAM_TIMEOUT: Duration = Duration::from_secs(600);

/// One connection to a daemon, kept open.
pub struct Client {
    api: Api,
    connection: Connection,
}

impl Client {
    pub async fn connect(daemon: &Daemon) -> Result<Self> {
        let api = daemon.api().with_header("accept", "application/x-ndjson");
        let connection = api.connect().await?;
        Ok(Self { api, connection })
    }

    /// Sends a request that must succeed, and returns the body of the answer.
    pub async fn send(&mut self, method: Method, path: &str, body: &str) -> Result<Bytes> {
        let request = self.api.request(method, path, Full::new(Bytes::copy_from_slice(body.as_bytes())))?;
        let answer = Answer::read(self.connection.send(request).await?).await?;
        ensure!((200..300).contains(&answer.status), "{path}: {}: {}", answer.status, answer.text());
        Ok(answer.body)
    }

    /// Creates a session and returns its path.
    pub async fn create(&mut self, body: &str) -> Result<String> {
        let session: Value = serde_json::from_slice(&self.send(Method::POST, "/v1/sessions", body).await?)?;
        session_path(&session)
    }

    /// The times of `count` requests, after the warm-up.
    pub async fn measure(
        &mut self,
        scale: &Scale,
        count: usize,
        method: Method,
        path: &str,
        body: &str,
    ) -> Result<Times> {
        self.samples(scale.warm_up, &method, path, body).await?;
        Ok(Times::of(self.samples(count, &method, path, body).await?))
    }

    /// The duration of each of `count` requests.
    pub async fn samples(&mut self, count: usize, method: &Method, path: &str, body: &str) -> Result<Vec<Duration>> {
        let mut times = Vec::with_capacity(count);
        for _ in 0..count {
            let start = Instant::now();
            self.send(method.clone(), path, body).await?;
            times.push(start.elapsed());
        }
        Ok(times)
    }

    /// The times from asking for a session to the answer of its first command.
    pub async fn creates(&mut self, scale: &Scale) -> Result<Times> {
        let mut times = Vec::with_capacity(scale.creates);
        for _ in 0..scale.creates {
            let start = Instant::now();
            let path = self.create("{}").await?;
            self.send(Method::POST, &format!("{path}/exec"), EXEC_TRUE).await?;
            times.push(start.elapsed());
            self.send(Method::DELETE, &path, "").await?;
        }
        Ok(Times::of(times))
    }

    /// Streams the output of a command that prints `scale.streamed_bytes`, and returns how long that took.
    pub async fn stream(&mut self, scale: &Scale, session: &str) -> Result<Duration> {
        let start = Instant::now();
        let timeout_ms = u64::try_from(STREAM_TIMEOUT.as_millis())?;
        let body = json!({ "cmd": scale.print_command(), "timeout_ms": timeout_ms }).to_string();
        let request = self.api.request(Method::POST, &format!("{session}/exec/stream"), Full::new(body.into()))?;
        let mut lines = Lines::new(self.connection.send(request).await?.into_body());
        let mut last = None;
        while let Some(line) = lines.next().await? {
            last = Some(line);
        }
        let done: Value = serde_json::from_slice(&last.context("a stream without a line")?)?;
        ensure!(done["event"] == "done" && done["exit_code"] == 0, "{done}");
        ensure!(done["output_bytes"] == scale.streamed_bytes, "not all bytes arrived: {done}");
        Ok(start.elapsed())
    }
}

/// The path of a session, from the answer to its create.
pub fn session_path(session: &Value) -> Result<String> {
    Ok(format!("/v1/sessions/{}", session["id"].as_str().context("a session without an id")?))
}

//! What a command and a session cost through the daemon, over HTTP on loopback.

use std::time::Instant;

use anyhow::{Result, ensure};
use e2e::daemon::Daemon;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1::SendRequest;
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpStream;

use crate::baseline::{Bash, bubblewrap};
use crate::figures::{Times, megabytes_per_second, row};
use crate::{PRINT_IT, SAMPLES, STREAMED_BYTES, WARM_UP};

/// Starting a sandbox is slower still.
const CREATE_SAMPLES: usize = 50;

pub async fn report() -> Result<()> {
    let daemon = Daemon::start().await;
    let mut client = Client::connect(&daemon).await?;
    let path = client.create().await?;

    let exec = client.measure(SAMPLES, Method::POST, &format!("{path}/exec"), r#"{"cmd":"true"}"#).await?;
    let round_trip = client.measure(SAMPLES, Method::GET, "/healthz", "").await?;
    let bash = Bash::start()?.measure("true")?;
    println!("\n{:<44} {:>9} {:>9} {:>9}", "the daemon", "p50", "p99", "ratio");
    row("exec true, over the API", &exec, None);
    row("  one loopback round trip (/healthz)", &round_trip, Some(&exec));
    row("  bare bash over pipes", &bash, Some(&exec));
    let budget = bash.p50 * 3 + round_trip.p50;
    println!(
        "{:<44} {:>6.0} µs   the figure to be under: 3 × bare bash and a round trip",
        "",
        budget.as_secs_f64() * 1e6
    );

    let create = client.creates().await?;
    row("create, to the first exec's answer", &create, None);
    match bubblewrap(CREATE_SAMPLES)? {
        Some(jail) => row("  bwrap … bash -lc true", &jail, Some(&create)),
        None => println!("  bwrap … bash -lc true: skipped, bubblewrap is not installed"),
    }

    let start = Instant::now();
    let received = client.stream(&format!("{path}/exec/stream")).await?;
    ensure!(received == STREAMED_BYTES, "{received} bytes arrived");
    println!("\n1 GiB of output, over the API: {:.0} MB/s", megabytes_per_second(received, start.elapsed()));
    println!("the daemon's peak RSS: {} KiB", e2e::procfs::status_kib(daemon.pid(), "VmHWM"));
    daemon.stop().await;
    Ok(())
}

/// One connection, kept open.
struct Client {
    sender: SendRequest<Full<Bytes>>,
    host: String,
    key: String,
}

impl Client {
    async fn connect(daemon: &Daemon) -> Result<Self> {
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

    async fn send(&mut self, method: Method, path: &str, body: &str) -> Result<Bytes> {
        self.sender.ready().await?;
        let response = self.sender.send_request(self.request(method, path, body)?).await?;
        let status = response.status();
        let body = response.into_body().collect().await?.to_bytes();
        ensure!(status.is_success(), "{path}: {status}: {}", String::from_utf8_lossy(&body));
        Ok(body)
    }

    /// The path of a new session.
    async fn create(&mut self) -> Result<String> {
        let session: Value = serde_json::from_slice(&self.send(Method::POST, "/v1/sessions", "{}").await?)?;
        Ok(format!("/v1/sessions/{}", session["id"].as_str().unwrap_or_default()))
    }

    async fn measure(&mut self, samples: usize, method: Method, path: &str, body: &str) -> Result<Times> {
        let mut times = Vec::with_capacity(samples);
        for i in 0..WARM_UP + samples {
            let start = Instant::now();
            self.send(method.clone(), path, body).await?;
            if i >= WARM_UP {
                times.push(start.elapsed());
            }
        }
        Ok(Times::of(times))
    }

    async fn creates(&mut self) -> Result<Times> {
        let mut times = Vec::with_capacity(CREATE_SAMPLES);
        for _ in 0..CREATE_SAMPLES {
            let start = Instant::now();
            let path = self.create().await?;
            self.send(Method::POST, &format!("{path}/exec"), r#"{"cmd":"true"}"#).await?;
            times.push(start.elapsed());
            self.send(Method::DELETE, &path, "").await?;
        }
        Ok(Times::of(times))
    }

    /// The bytes that a command printed, counted by the offsets of its last frame.
    async fn stream(&mut self, path: &str) -> Result<u64> {
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

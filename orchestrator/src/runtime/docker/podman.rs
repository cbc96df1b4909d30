//! Podman's own API, on the same socket: it prepares a container without starting it, and tells where the configuration of
//! its OCI runtime is. The daemon checks that configuration before any program of the image runs.
//!
//! Podman's Docker-compatible `inspect` shows only half of the request. The configuration of the OCI runtime is complete, so
//! `oci` checks that. The daemon must be able to read that file, which is below the engine's storage.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bollard::errors::Error;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::io::AsyncReadExt as _;
use tokio::net::UnixStream;

use super::connect::ENGINE_TIMEOUT_SECONDS;
use super::engine;
use crate::runtime::RuntimeError;

/// The oldest version of the API; newer versions of Podman understand it too.
const API: &str = "/v4.0.0/libpod";
/// The largest answer or configuration that is read. Each is about 20 KiB.
const MAX_BYTES: usize = 4 << 20;

/// A container that is prepared and not started, as Podman and its OCI runtime describe it.
pub struct Prepared {
    pub inspected: Value,
    /// `config.json` of the OCI runtime.
    pub spec: Value,
}

pub async fn prepare(socket: &Path, container: &str) -> Result<Prepared, RuntimeError> {
    let ask = |method, what| ask(socket, method, format!("{API}/containers/{container}/{what}"));
    let step = "preparing the container";
    ask(Method::POST, "init").await.map_err(|error| engine::failed(step, error))?;
    let inspected = ask(Method::GET, "json").await.map_err(|error| engine::failed(step, error))?;
    let step = "reading what Podman tells its OCI runtime";
    let inspected: Value = serde_json::from_slice(&inspected).map_err(|error| RuntimeError::failed(step, error))?;
    let path = inspected["OCIConfigPath"].as_str().map(PathBuf::from);
    let path = path.ok_or_else(|| RuntimeError::failed(step, "Podman does not tell where that is"))?;
    let spec = read(&path).await.map_err(|error| RuntimeError::failed(format!("{step}: {}", path.display()), error))?;
    Ok(Prepared { inspected, spec })
}

async fn read(path: &Path) -> std::io::Result<Value> {
    let mut text = Vec::new();
    let limit = u64::try_from(MAX_BYTES).unwrap_or(u64::MAX);
    tokio::fs::File::open(path).await?.take(limit).read_to_end(&mut text).await?;
    Ok(serde_json::from_slice(&text)?)
}

/// Sends one request and returns the body of the answer. Its errors have bollard's type.
async fn ask(socket: &Path, method: Method, path: String) -> Result<Bytes, Error> {
    let work = async {
        let stream = UnixStream::connect(socket).await?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        let request = Request::builder().method(method).uri(path).header("Host", "podman");
        let request = request.body(Empty::<Bytes>::new()).map_err(std::io::Error::other)?;
        let exchange = async {
            let answer = sender.send_request(request).await?;
            let status = answer.status();
            let body = Limited::new(answer.into_body(), MAX_BYTES).collect().await.map_err(std::io::Error::other)?;
            Ok::<_, Error>((status, body.to_bytes()))
        };
        // Both run in this task, so that giving up on the answer closes the connection. The connection may end after it
        // delivered the answer, so only the exchange decides.
        let carried = async {
            let _ = connection.await;
            std::future::pending::<std::convert::Infallible>().await
        };
        let (status, body) = tokio::select! {
            answer = exchange => answer?,
            never = carried => match never {},
        };
        if status.is_success() || status == hyper::StatusCode::NOT_MODIFIED {
            return Ok(body);
        }
        Err(Error::DockerResponseServerError { status_code: status.as_u16(), message: message(&body) })
    };
    match tokio::time::timeout(Duration::from_secs(ENGINE_TIMEOUT_SECONDS), work).await {
        Ok(answer) => answer,
        Err(_) => Err(Error::RequestTimeoutError),
    }
}

/// The error message in the body. If the body is JSON, it is the message inside.
fn message(body: &[u8]) -> String {
    let told: Value = serde_json::from_slice(body).unwrap_or_default();
    told["message"].as_str().map_or_else(|| String::from_utf8_lossy(body).into_owned(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt as _;

    /// Starts a fake engine that gives one answer to each connection.
    async fn answering(directory: &Path, answers: Vec<String>) -> PathBuf {
        let socket = directory.join("podman.sock");
        let listener = tokio::net::UnixListener::bind(&socket).unwrap();
        tokio::spawn(async move {
            for answer in answers {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = [0; 1024];
                assert_ne!(stream.read(&mut request).await.unwrap(), 0);
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        socket
    }

    fn reply(status: &str, body: &str) -> String {
        format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len())
    }

    #[tokio::test]
    async fn what_the_oci_runtime_reads_is_found_by_inspect() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("config.json");
        std::fs::write(&file, r#"{"ociVersion":"1"}"#).unwrap();
        let inspected = format!(r#"{{"OCIConfigPath":{:?}}}"#, file);
        let answers = vec!["HTTP/1.1 204 No Content\r\n\r\n".into(), reply("200 OK", &inspected)];
        let prepared = prepare(&answering(directory.path(), answers).await, "x").await.unwrap();
        assert_eq!(prepared.spec["ociVersion"], "1");
    }

    #[tokio::test]
    async fn without_a_readable_configuration_there_is_no_sandbox() {
        let refused = reply("500 Internal Server Error", r#"{"cause":"c","message":"no runtime","response":500}"#);
        let silent = vec![reply("204 No Content", ""), reply("200 OK", "{}")];
        let unreadable = vec![reply("204 No Content", ""), reply("200 OK", r#"{"OCIConfigPath":"/nowhere/x"}"#)];
        for (answers, why) in [
            (vec![refused], "no runtime"),
            (silent, "does not tell where"),
            (unreadable, "No such file"),
            (vec![String::new()], "closed"),
        ] {
            let directory = tempfile::tempdir().unwrap();
            let failed = prepare(&answering(directory.path(), answers).await, "x").await.err().unwrap();
            let cause = std::error::Error::source(&failed).unwrap().to_string();
            assert!(cause.contains(why), "{cause:?} for {why:?}");
        }
    }
}

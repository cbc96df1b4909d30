//! Upgrades: a shell's terminal, or another stream of bytes in both directions on a connection of its own, until either side
//! ends.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf as _, Bytes};
use hyper::Method;
use hyper::header::{CONNECTION, HeaderValue, UPGRADE};
use shared_protocol::ShellName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;
use tokio::sync::OwnedSemaphorePermit;

use super::answer::Answer;
use super::connection::{Connection, Upgrade};
use super::outgoing::Outgoing;
use super::{HEAD_TIMEOUT, RunnerClient, RunnerError, request};

const PROTOCOL: &str = "cove-terminal";

/// The bytes of an upgraded connection. Dropping it closes the connection, and does not end the shell of a terminal.
pub struct Attached {
    socket: UnixStream,
    /// The bytes that arrived with the answer's head. Their number is limited by the read buffer of a connection.
    ahead: Bytes,
    permit: AttachedPermit,
}

/// The place of an upgraded connection among those of its runner.
#[derive(Debug)]
pub struct AttachedPermit(
    #[expect(dead_code, reason = "it is held, and returned when it is dropped")] OwnedSemaphorePermit,
);

#[cfg(test)]
impl AttachedPermit {
    pub fn for_test() -> Self {
        let semaphore = std::sync::Arc::new(tokio::sync::Semaphore::new(1));
        Self(semaphore.try_acquire_owned().expect("a new one is free"))
    }
}

impl Attached {
    /// The socket, and the bytes that arrived before it is read.
    pub fn into_parts(self) -> (UnixStream, Bytes, AttachedPermit) {
        (self.socket, self.ahead, self.permit)
    }
}

impl RunnerClient {
    pub async fn attach(
        &self,
        shell: &ShellName,
        cols: Option<u16>,
        rows: Option<u16>,
    ) -> Result<Attached, RunnerError> {
        let mut target = format!("/v1/shells/{shell}/attach");
        let sides = [("cols", cols), ("rows", rows)];
        for (name, value) in sides.into_iter().filter_map(|(name, value)| Some((name, value?))) {
            target.push(if target.contains('?') { '&' } else { '?' });
            target.push_str(&format!("{name}={value}"));
        }
        self.upgraded(&target, PROTOCOL, "terminal").await
    }

    /// Asks for an upgrade on a connection of its own. `what` names in an error what did not come in time.
    pub(super) async fn upgraded(
        &self,
        target: &str,
        protocol: &'static str,
        what: &str,
    ) -> Result<Attached, RunnerError> {
        // This never uses an idle connection, because bytes must not go to a connection that the runner has closed.
        let work = async { self.upgrade(self.0.fresh().await?, target, protocol).await };
        let attached = self.pulse().in_time(HEAD_TIMEOUT, work).await;
        self.noted(
            attached.unwrap_or_else(|| {
                Err(RunnerError::Lost(format!("no {what} within {} seconds", HEAD_TIMEOUT.as_secs())))
            }),
        )
    }
}

impl RunnerClient {
    /// Asks for an upgrade, and waits for it without a limit.
    pub(super) async fn upgrade(
        &self,
        connection: Connection,
        target: &str,
        protocol: &'static str,
    ) -> Result<Attached, RunnerError> {
        let mut request = request(Method::GET, target, Outgoing::empty())?;
        request.headers_mut().insert(CONNECTION, HeaderValue::from_static("upgrade"));
        request.headers_mut().insert(UPGRADE, HeaderValue::from_static(protocol));
        match connection.upgrade(request).await? {
            Upgrade::Done { socket, ahead, permit } => Ok(Attached { socket, ahead, permit: AttachedPermit(permit) }),
            Upgrade::Refused(refused) => {
                let (answer, connection) = *refused;
                let (head, body) = answer.into_parts();
                Err(Answer::new(connection, body, self.0.clone()).into_error(head.status.as_u16()).await)
            }
        }
    }
}

impl AsyncRead for Attached {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.ahead.is_empty() {
            return Pin::new(&mut self.socket).poll_read(cx, buffer);
        }
        let count = self.ahead.len().min(buffer.remaining());
        buffer.put_slice(&self.ahead[..count]);
        self.ahead.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Attached {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}

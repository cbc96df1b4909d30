//! One connection to a server, and the addresses of servers.

use std::error::Error;
use std::net::SocketAddr;
use std::path::PathBuf;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Incoming};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

/// Where a server listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    Unix(PathBuf),
    Tcp(SocketAddr),
}

/// An open connection. It closes when it and the body of its last answer are dropped.
pub struct Connection<B = Full<Bytes>> {
    sender: SendRequest<B>,
}

impl<B> Connection<B>
where
    B: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
{
    /// Connects. An error means that nobody listens there (yet, or any more).
    pub async fn open(address: &Address) -> anyhow::Result<Self> {
        match address {
            Address::Unix(path) => Self::over(UnixStream::connect(path).await?).await,
            Address::Tcp(address) => {
                let stream = TcpStream::connect(address).await?;
                stream.set_nodelay(true)?;
                Self::over(stream).await
            }
        }
    }

    async fn over(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> anyhow::Result<Self> {
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        // A caller that waits for an answer gets the connection's error with it.
        tokio::spawn(connection.with_upgrades());
        Ok(Self { sender })
    }

    /// Sends a request after the previous answer has been read, and returns the head of its answer.
    pub async fn send(&mut self, request: Request<B>) -> anyhow::Result<Response<Incoming>> {
        self.sender.ready().await?;
        Ok(self.sender.send_request(request).await?)
    }
}

//! What the servers answer.
//!
//! ```text
//!  GET /            hello from ADDRESS          GET /bytes/N    N bytes of the block below, again and again
//!  GET /hold        nothing, until the end      GET /drip       one byte, then nothing until the end
//!  POST /count      how many bytes came, and whether they were those of the block
//!  GET /after-eof   answers after the client has closed its half
//!  echo …           what came, until the client closes its half
//!  anything else    `seen`
//! ```
//!
//! A connection can carry many requests. Every head and the first bytes are recorded.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::Recorder;

/// The most bytes of one connection that are recorded.
const MAX_RECORDED: usize = 64 << 10;
const GREETING: &[u8] = b"SSH-2.0-upstream\r\n";
/// The length of the block that downloads and uploads repeat.
const BLOCK: usize = 64 << 10;
/// The longest wait for a client that says nothing.
const PATIENCE: Duration = Duration::from_secs(300);

pub(super) struct Connection {
    pub stream: TcpStream,
    pub recorder: Recorder,
    pub number: usize,
}

/// The block: not two bytes of the same value side by side, and no period that divides a buffer.
pub fn block() -> Vec<u8> {
    (0..BLOCK).map(|at| u8::try_from((at * 7 + at / 251) % 251).expect("less than 251")).collect()
}

impl Connection {
    pub async fn serve(mut self, is_first_to_speak: bool) {
        let _ = tokio::time::timeout(PATIENCE, self.answer_all(is_first_to_speak)).await;
        if let Some(seen) = self.recorder.records().seen.get_mut(self.number) {
            seen.is_closed = true;
        }
    }

    /// Adds what comes to `held`. `false` at the end.
    async fn more(&mut self, held: &mut Vec<u8>) -> std::io::Result<bool> {
        let before = held.len();
        let count = self.stream.read_buf(held).await?;
        if let Some(seen) = self.recorder.records().seen.get_mut(self.number) {
            let room = MAX_RECORDED.saturating_sub(seen.bytes.len());
            seen.bytes.extend_from_slice(&held[before..before + count.min(room)]);
        }
        Ok(count > 0)
    }

    async fn answer_all(&mut self, is_first_to_speak: bool) -> std::io::Result<()> {
        let _ = self.stream.set_nodelay(true);
        // One read takes all that is there: what comes at once gets one answer.
        let mut held = Vec::with_capacity(BLOCK);
        if is_first_to_speak {
            self.stream.write_all(GREETING).await?;
        }
        loop {
            if held.is_empty() && !self.more(&mut held).await? {
                return Ok(());
            }
            if held.starts_with(b"echo") {
                return self.echo(held).await;
            }
            if !held.starts_with(b"GET ") && !held.starts_with(b"POST ") {
                self.stream.write_all(b"seen\n").await?;
                held.clear();
                continue;
            }
            let Some(end) = memchr::memmem::find(&held, b"\r\n\r\n").map(|at| at + 4) else {
                if !self.more(&mut held).await? {
                    return Ok(());
                }
                continue;
            };
            let head = String::from_utf8_lossy(&held[..end]).into_owned();
            held.drain(..end);
            self.answer(&head, &mut held).await?;
        }
    }

    async fn echo(&mut self, mut held: Vec<u8>) -> std::io::Result<()> {
        loop {
            self.stream.write_all(&held).await?;
            held.clear();
            if !self.more(&mut held).await? {
                return self.stream.shutdown().await;
            }
        }
    }

    async fn answer(&mut self, head: &str, held: &mut Vec<u8>) -> std::io::Result<()> {
        let path = head.split(' ').nth(1).unwrap_or_default();
        let path = path.split_once('?').map_or(path, |(path, _)| path);
        if let Some(count) = path.strip_prefix("/bytes/").and_then(|count| count.parse::<usize>().ok()) {
            let status = format!("HTTP/1.1 200 OK\r\nContent-Length: {count}\r\n\r\n");
            self.stream.write_all(status.as_bytes()).await?;
            return self.send_block(count).await;
        }
        match path {
            "/hold" => self.until_end(held).await,
            "/drip" => {
                self.stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n.").await?;
                self.until_end(held).await
            }
            "/after-eof" => {
                while self.more(held).await? {}
                self.reply("after the end").await?;
                self.stream.shutdown().await
            }
            "/count" => self.count(head, held).await,
            _ => {
                let hello = format!("hello from {}\n", self.stream.local_addr()?.ip());
                self.reply(&hello).await
            }
        }
    }

    async fn reply(&mut self, text: &str) -> std::io::Result<()> {
        let reply = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{text}", text.len());
        self.stream.write_all(reply.as_bytes()).await
    }

    /// Waits until the client closes the connection.
    async fn until_end(&mut self, held: &mut Vec<u8>) -> std::io::Result<()> {
        while self.more(held).await? {
            held.clear();
        }
        Ok(())
    }

    async fn send_block(&mut self, mut left: usize) -> std::io::Result<()> {
        let block = block();
        while left > 0 {
            let count = left.min(block.len());
            self.stream.write_all(&block[..count]).await?;
            left -= count;
        }
        Ok(())
    }

    /// Compares the body with the block.
    async fn count(&mut self, head: &str, held: &mut Vec<u8>) -> std::io::Result<()> {
        let length =
            head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
        let (length, block) = (length.unwrap_or(0_usize), block());
        let (mut at, mut is_exact) = (0, true);
        while at < length {
            if held.is_empty() && !self.more(held).await? {
                return Ok(());
            }
            let place = at % block.len();
            let count = held.len().min(block.len() - place).min(length - at);
            is_exact &= held[..count] == block[place..place + count];
            held.drain(..count);
            at += count;
        }
        self.reply(&format!("{at} {}", if is_exact { "exact" } else { "wrong" })).await
    }
}

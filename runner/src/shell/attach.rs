//! The clients that are attached to a terminal. Each gets the last output first, and then everything that is printed.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;

use super::replay::without_queries;

/// The most bytes of earlier output that a new client gets first.
const REPLAY_BYTES: usize = 64 << 10;

/// The most pieces of output that wait between a terminal and one client.
const ATTACHMENT_DEPTH: usize = 16;

/// How long a client that reads nothing may hold up a terminal before it is detached. It can attach again.
const ATTACHMENT_PATIENCE: Duration = Duration::from_secs(10);

pub struct Attachment {
    /// The output from before the client attached, without the questions in it that a terminal would answer.
    pub replay: Bytes,
    /// The output from then on. It ends when the terminal ends or the client is detached.
    pub output: mpsc::Receiver<Bytes>,
}

#[derive(Default)]
pub struct Attachments {
    senders: Vec<mpsc::Sender<Bytes>>,
    recent: VecDeque<u8>,
}

impl Attachments {
    pub fn add(&mut self) -> Attachment {
        let (sender, output) = mpsc::channel(ATTACHMENT_DEPTH);
        self.senders.push(sender);
        Attachment { replay: without_queries(self.recent.iter().copied()).into(), output }
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.recent.extend(bytes);
        let excess = self.recent.len().saturating_sub(REPLAY_BYTES);
        self.recent.drain(..excess);
        if !self.senders.is_empty() {
            let bytes = Bytes::copy_from_slice(bytes);
            self.senders.retain(|sender| sender.try_send(bytes.clone()).is_ok());
        }
    }

    /// Whether every client has room for the next piece.
    pub fn are_ready(&self) -> bool {
        self.senders.iter().all(|sender| sender.capacity() > 0 || sender.is_closed())
    }

    /// Waits until every client has room, and detaches those that have none in time.
    pub async fn wait(&mut self) {
        let all = async {
            for sender in &self.senders {
                let _ = sender.reserve().await;
            }
        };
        if tokio::time::timeout(ATTACHMENT_PATIENCE, all).await.is_err() {
            self.senders.retain(|sender| sender.capacity() > 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_nothing_is_detached_and_the_others_stay() {
        let mut attachments = Attachments::default();
        let mut stuck = attachments.add();
        let mut awake = attachments.add();
        for _ in 0..ATTACHMENT_DEPTH {
            attachments.send(b"x");
            awake.output.recv().await.unwrap();
        }
        assert!(!attachments.are_ready());
        attachments.wait().await;
        assert!(attachments.are_ready());
        attachments.send(b"y");
        assert_eq!(awake.output.recv().await.unwrap(), "y");
        for _ in 0..ATTACHMENT_DEPTH {
            assert_eq!(stuck.output.recv().await.unwrap(), "x");
        }
        assert_eq!(stuck.output.recv().await, None);
        assert_eq!(attachments.add().replay.len(), ATTACHMENT_DEPTH + 1);
    }
}

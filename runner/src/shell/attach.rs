//! Those who watch a terminal: each gets all that is printed from when it came, after the last screenful.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;

/// What one that comes late is shown first.
const REPLAY_BYTES: usize = 64 << 10;

/// Pieces that lie between a terminal and one who watches it.
const ATTACHMENT_DEPTH: usize = 16;

/// How long one who takes nothing may hold a terminal back before it is let go. It can attach again.
const ATTACHMENT_PATIENCE: Duration = Duration::from_secs(10);

pub struct Attachment {
    /// What was printed before.
    pub replay: Bytes,
    /// Ends when the terminal ends, or when this one has been let go.
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
        Attachment { replay: self.recent.iter().copied().collect(), output }
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

    /// Whether everyone can take the next piece.
    pub fn are_ready(&self) -> bool {
        self.senders.iter().all(|sender| sender.capacity() > 0 || sender.is_closed())
    }

    /// Waits until everyone can, and lets those go who could not in time.
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
    async fn one_who_takes_nothing_is_let_go_and_the_others_stay() {
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

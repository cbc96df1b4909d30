//! Changes a session's lifetime and labels. The change is stored before it takes effect, so that it outlives the daemon.

use tokio::sync::oneshot;

use super::Driver;
use crate::session::SessionError;
use crate::session::resolve::Update;

/// The most changes that wait for one session's driver. Further clients wait for a place.
pub const MAX_UPDATES_ASKED: usize = 8;

/// A change that a client asked for, and the sender for its outcome.
pub type UpdateAsked = (Update, oneshot::Sender<Result<(), SessionError>>);

impl Driver {
    pub(super) async fn update(&self, (update, asked): UpdateAsked) {
        let stored = self.record.update(&update).await;
        if stored.is_ok() {
            self.shared.update(update);
        }
        // A client that has disconnected needs no answer.
        let _ = asked.send(stored);
    }
}

//! Waits with a pooled sandbox until a session's driver claims it.
//!
//! Once a claim is accepted, the sandbox is always handed over, even if it has just ended: the session's driver finds that
//! out and creates another one. So the sandbox always has exactly one owner.

use tokio::sync::oneshot;

use super::{Gone, UNSEEN_END};
use crate::runtime::Sandbox;
use crate::session::EndReason;
use crate::session::shared::Shared;

/// Asks a pooled sandbox's driver for the sandbox. If it is dropped unused, the driver removes the sandbox.
pub type HandOver = oneshot::Sender<oneshot::Sender<Sandbox>>;
/// The driver's end of a [`HandOver`].
pub type HandOverRequest = oneshot::Receiver<oneshot::Sender<Sandbox>>;

pub(super) async fn wait_for_claim(shared: &Shared, request: &mut HandOverRequest, mut sandbox: Sandbox) -> Gone {
    let end = tokio::select! {
        biased;
        asked = &mut *request => match asked {
            Ok(to) => return hand_over(sandbox, to),
            Err(_) => return Gone::Over(EndReason::Destroyed),
        },
        ended = &mut sandbox.ended => EndReason::Crashed(ended.unwrap_or_else(|_| UNSEEN_END.into())),
        () = shared.destroy_asked.notified() => EndReason::Destroyed,
    };
    // A session may have asked for it at the same moment.
    request.close();
    match request.try_recv() {
        Ok(to) => hand_over(sandbox, to),
        Err(_) => Gone::Over(end),
    }
}

fn hand_over(sandbox: Sandbox, to: oneshot::Sender<Sandbox>) -> Gone {
    match to.send(sandbox) {
        Ok(()) => Gone::HandedOver,
        Err(_) => Gone::Over(EndReason::Destroyed),
    }
}

//! The changes below a directory of a sandbox, for as long as a client wants to know them.
//!
//! To begin a watch counts as activity and wakes a paused session. An open watch does not: the session can be paused, and then nothing
//! changes; and it can expire, which ends the watch.

use std::pin::Pin;
use std::task::{Context, Poll};

use shared_protocol::ErrorBody;
use shared_protocol::runner::WatchFrame;

use crate::runner_client::WatchStream;
use crate::service::CallError;
use crate::service::in_sandbox::Ended;
use crate::session::Activity;

/// The frames of a watch. The last one is `ended` or `error`.
pub struct Changes {
    frames: WatchStream,
    session_ended: Ended,
    is_over: bool,
}

impl Changes {
    pub(super) fn new(activity: &Activity, frames: WatchStream) -> Self {
        Self { frames, session_ended: Box::pin(activity.ended()), is_over: false }
    }

    /// The next frame; `None` after the last one. Nothing is lost if the caller stops waiting.
    pub async fn next(&mut self) -> Option<WatchFrame> {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<WatchFrame>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        let error: CallError = match self.frames.poll_next(cx) {
            Poll::Ready(Ok(frame)) => {
                self.is_over = matches!(frame, None | Some(WatchFrame::Ended { .. }));
                return Poll::Ready(frame);
            }
            // If the session is over, that is why the runner is lost.
            Poll::Ready(Err(error)) => match self.end_of_session(cx) {
                Poll::Ready(end) => end,
                Poll::Pending => error.into(),
            },
            Poll::Pending => std::task::ready!(self.end_of_session(cx)),
        };
        self.is_over = true;
        Poll::Ready(Some(WatchFrame::Error(ErrorBody::from(error))))
    }

    fn end_of_session(&mut self, cx: &mut Context<'_>) -> Poll<CallError> {
        Pin::new(&mut self.session_ended).poll(cx).map(CallError::from)
    }
}

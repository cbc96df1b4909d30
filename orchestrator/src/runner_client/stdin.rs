//! Sends input to the open standard input of a run. Bytes are passed on as they arrive and never stored.

use hyper::{Method, StatusCode};
use shared_protocol::ExecId;
use shared_protocol::runner::StdinView;

use super::{HEAD_TIMEOUT, Outgoing, RunnerClient, RunnerError, request};

/// What happens to standard input after the bytes of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterInput {
    KeepOpen,
    Close,
}

impl RunnerClient {
    /// Writes to a run's standard input. It has no time limit, because a program reads when it likes: the call ends with the
    /// client's request, with the program, or with the session. It is never sent twice.
    pub async fn write_stdin(&self, id: &ExecId, body: Outgoing, after: AfterInput) -> Result<StdinView, RunnerError> {
        let close = u8::from(after == AfterInput::Close);
        let request = request(Method::POST, &format!("/v1/execs/{id}/stdin?close={close}"), body)?;
        let opened = self.send_streamed(request).await?;
        let work = async {
            if opened.status == StatusCode::OK {
                opened.answer.document().await
            } else {
                Err(opened.answer.into_error(opened.status.as_u16()).await)
            }
        };
        let lost = || RunnerError::Lost(format!("its answer was not whole within {} seconds", HEAD_TIMEOUT.as_secs()));
        tokio::time::timeout(HEAD_TIMEOUT, work).await.unwrap_or_else(|_| Err(lost()))
    }
}

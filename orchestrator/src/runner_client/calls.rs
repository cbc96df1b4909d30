//! The calls that send one document and get one document back.

use std::future::Future;
use std::time::Duration;

use hyper::{Method, StatusCode};
use serde::de::DeserializeOwned;
use shared_protocol::api::OkView;
use shared_protocol::runner::{
    ClaimRequest, ExecView, HealthView, InputRequest, MORE_HEADER, OpenShellRequest, ResizeRequest, RestoreRequest,
    SandboxState, ShellEndView, ShellView, SignalRequest,
};
use shared_protocol::{ExecId, ShellName};

use super::sequence::check_outcome;
use super::{Call, ENDING_TIMEOUT, Repeat, RunnerClient, RunnerError};

/// The most shells in a list; a runner has at most 64.
const MAX_SHELLS: usize = 256;

/// The longest text in a view.
const MAX_TEXT_BYTES: usize = 16 << 10;

fn bounded(what: &str, text: &str) -> Result<(), RunnerError> {
    if text.len() <= MAX_TEXT_BYTES { Ok(()) } else { Err(RunnerError::hostile(format!("{what} is too long"))) }
}

fn checked_shell(view: ShellView) -> Result<ShellView, RunnerError> {
    bounded("a shell's directory", &view.cwd)?;
    Ok(view)
}

/// A part of the list of execs, the oldest first.
#[derive(Debug)]
pub struct ExecPage {
    pub views: Vec<ExecView>,
    pub has_more: bool,
}

impl RunnerClient {
    pub async fn health(&self) -> Result<HealthView, RunnerError> {
        let view: HealthView = self.document(Call::get("/healthz"), StatusCode::OK).await?;
        bounded("the status", &view.status)?;
        bounded("the version", &view.version)?;
        Ok(view)
    }

    /// Claims the sandbox for a session. It is never sent twice, because the runner accepts one claim.
    pub async fn claim(&self, request: &ClaimRequest) -> Result<(), RunnerError> {
        self.done(Call::post("/v1/claim", request)?).await
    }

    /// The state of the shells, which comes from inside the sandbox: it is bounded, and nobody looks into it.
    pub async fn state(&self) -> Result<SandboxState, RunnerError> {
        let state: SandboxState = self.document(Call::get("/v1/state"), StatusCode::OK).await?;
        state.check().map_err(|refused| RunnerError::hostile(refused.message))?;
        Ok(state)
    }

    /// Opens the shells of a state. It is never sent twice, because a runner accepts one state.
    pub async fn restore(&self, request: &RestoreRequest) -> Result<(), RunnerError> {
        self.done(Call::post("/v1/restore", request)?).await
    }

    /// Stops all processes of the sandbox, and lets other calls wait until `release`.
    pub async fn hold(&self) -> Result<(), RunnerError> {
        self.done(Call { repeat: Repeat::Harmless, ..Call::post("/v1/hold", &serde_json::json!({}))? }).await
    }

    /// Lets all processes go on.
    pub async fn release(&self) -> Result<(), RunnerError> {
        self.done(Call { repeat: Repeat::Harmless, ..Call::post("/v1/release", &serde_json::json!({}))? }).await
    }

    /// A page of the list of execs: at most `limit` of them, after the exec `after`.
    pub async fn execs(&self, after: Option<&ExecId>, limit: usize) -> Result<ExecPage, RunnerError> {
        let after = after.map(|after| format!("&after={after}")).unwrap_or_default();
        let call = Call::get(format!("/v1/execs?limit={limit}{after}"));
        let timeout = call.head_timeout;
        let opened = self.expect(call, StatusCode::OK).await?;
        let has_more = opened.headers.contains_key(MORE_HEADER);
        let views: Vec<ExecView> = self.whole(timeout, opened.answer.document()).await?;
        if views.len() > limit || (has_more && views.is_empty()) {
            return Err(RunnerError::hostile("a page of execs has another length than was asked for"));
        }
        for view in &views {
            if let Some(outcome) = &view.outcome {
                check_outcome(outcome).map_err(RunnerError::Hostile)?;
            }
            if view.outcome.as_ref().is_some_and(|outcome| outcome.exec_id != view.exec_id) {
                return Err(RunnerError::hostile("an exec has the outcome of another"));
            }
        }
        Ok(ExecPage { views, has_more })
    }

    pub async fn shells(&self) -> Result<Vec<ShellView>, RunnerError> {
        let views: Vec<ShellView> = self.document(Call::get("/v1/shells"), StatusCode::OK).await?;
        if views.len() > MAX_SHELLS {
            return Err(RunnerError::hostile("more shells than a runner has"));
        }
        views.into_iter().map(checked_shell).collect()
    }

    pub async fn open_shell(&self, request: &OpenShellRequest) -> Result<ShellView, RunnerError> {
        let view: ShellView = self.document(Call::post("/v1/shells", request)?, StatusCode::CREATED).await?;
        if request.name.as_ref().is_some_and(|name| *name != view.name) {
            return Err(RunnerError::hostile("it opened another shell than it was asked for"));
        }
        checked_shell(view)
    }

    pub async fn close_shell(&self, name: &ShellName) -> Result<(), RunnerError> {
        let target = format!("/v1/shells/{name}");
        let call = Call { method: Method::DELETE, repeat: Repeat::Never, ..Call::get(target) };
        self.done(Call { head_timeout: ENDING_TIMEOUT, ..call }).await
    }

    /// How a terminal ended by itself, if the runner still knows it.
    pub async fn shell_end(&self, name: &ShellName) -> Result<ShellEndView, RunnerError> {
        self.document(Call::get(format!("/v1/shells/{name}/end")), StatusCode::OK).await
    }

    pub async fn reset_shell(&self, name: &ShellName) -> Result<ShellView, RunnerError> {
        let target = format!("/v1/shells/{name}/reset");
        let call = Call { method: Method::POST, repeat: Repeat::Never, ..Call::get(target) };
        let view: ShellView = self.document(Call { head_timeout: ENDING_TIMEOUT, ..call }, StatusCode::OK).await?;
        if view.name != *name {
            return Err(RunnerError::hostile("it reset another shell than it was asked for"));
        }
        checked_shell(view)
    }

    pub async fn input(&self, request: &InputRequest) -> Result<(), RunnerError> {
        self.done(Call::post("/v1/input", request)?).await
    }

    pub async fn signal(&self, request: &SignalRequest) -> Result<(), RunnerError> {
        self.done(Call::post("/v1/signal", request)?).await
    }

    pub async fn resize(&self, request: &ResizeRequest) -> Result<(), RunnerError> {
        self.done(Call::post("/v1/resize", request)?).await
    }

    /// Makes a call whose answer only confirms it.
    async fn done(&self, call: Call<'_>) -> Result<(), RunnerError> {
        let OkView { ok } = self.document(call, StatusCode::OK).await?;
        if ok { Ok(()) } else { Err(RunnerError::hostile("it did and did not do what it was asked")) }
    }

    pub(super) async fn document<T: DeserializeOwned>(
        &self,
        call: Call<'_>,
        status: StatusCode,
    ) -> Result<T, RunnerError> {
        let timeout = call.head_timeout;
        let opened = self.expect(call, status).await?;
        self.whole(timeout, opened.answer.document()).await
    }

    /// Waits for the rest of an answer.
    async fn whole<T>(
        &self,
        timeout: Duration,
        document: impl Future<Output = Result<T, RunnerError>>,
    ) -> Result<T, RunnerError> {
        let document = self.pulse().in_time(timeout, document).await;
        self.noted(document.unwrap_or_else(|| {
            Err(RunnerError::Lost(format!("its answer was not whole within {} seconds", timeout.as_secs())))
        }))
    }
}

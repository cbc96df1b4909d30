//! The one error shape of every call: a stable code for programs, a sentence for people.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ErrorCode {
    InvalidRequest,
    InvalidImage,
    Unauthorized,
    Forbidden,
    NotFound,
    MethodNotAllowed,
    SessionNotFound,
    ShellNotFound,
    FileNotFound,
    ExecNotFound,
    WorkspaceNotFound,
    ShellBusy,
    Conflict,
    SessionExpired,
    TooLarge,
    LimitReached,
    SandboxLost,
    InternalError,
}

impl ErrorCode {
    pub fn http_status(self) -> u16 {
        match self {
            Self::InvalidRequest | Self::InvalidImage => 400,
            Self::Unauthorized => 401,
            Self::Forbidden => 403,
            Self::NotFound
            | Self::SessionNotFound
            | Self::ShellNotFound
            | Self::FileNotFound
            | Self::ExecNotFound
            | Self::WorkspaceNotFound => 404,
            Self::MethodNotAllowed => 405,
            Self::ShellBusy | Self::Conflict => 409,
            Self::SessionExpired => 410,
            Self::TooLarge => 413,
            Self::LimitReached => 429,
            Self::InternalError => 500,
            Self::SandboxLost => 502,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct ErrorBody {
    pub error_code: ErrorCode,
    /// What was wrong and, where there is something to do about it, what to do.
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<serde_json::Value>,
}

impl ErrorBody {
    pub fn new(error_code: ErrorCode, message: impl Into<String>) -> Self {
        Self { error_code, message: message.into(), details: None }
    }
}

impl std::fmt::Display for ErrorBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ErrorBody {}

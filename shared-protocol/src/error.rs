//! The error body that every call returns: a stable code for programs and a sentence for people.

use serde::{Deserialize, Serialize};

/// A stable code for each kind of error. Programs branch on it; each code has one HTTP status.
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
    PortClosed,
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
            Self::SandboxLost | Self::PortClosed => 502,
        }
    }
}

/// The body of every error response.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct ErrorBody {
    /// The kind of error.
    pub error_code: ErrorCode,
    /// What is wrong and, if the caller can do something about it, what to do.
    pub message: String,
    /// Facts for programs, such as the limit that was reached. The fields depend on `error_code`.
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

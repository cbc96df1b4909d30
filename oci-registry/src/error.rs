//! Why a registry did not give what was asked for. Each says what a person can do about it, where there is something.

use std::time::Duration;

#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    #[error(
        "{host} wants a login for {what} (401): log in with `docker login {host}` or `podman login {host}` as the user that pulls"
    )]
    Unauthorized { host: String, what: String },
    #[error("{host} refuses {what} (403): the account may not read it")]
    Forbidden { host: String, what: String },
    #[error("{host} has no {what} (404)")]
    NotFound { host: String, what: String },
    #[error("{host} has had too many requests (429){}", after(.retry_after))]
    TooManyRequests { host: String, retry_after: Option<Duration> },
    #[error("{host} answered {status} for {what}")]
    Status { host: String, what: String, status: u16 },
    #[error("{host} could not be reached: {cause}")]
    Unreachable { host: String, cause: String },
    #[error("the connection to {host} broke: {cause}")]
    Broken { host: String, cause: String },
    #[error("{host} was silent for {} s", .after.as_secs_f64())]
    TimedOut { host: String, after: Duration },
    #[error("{what} does not have the digest that was asked for: it is {found} and not {wanted}")]
    WrongDigest { what: String, wanted: String, found: String },
    #[error("{what} is cut off: {got} of {wanted} bytes came, in {attempts} attempts")]
    CutOff { what: String, got: u64, wanted: u64, attempts: u32 },
    #[error("{what} is larger than it may be: more than {limit} bytes")]
    TooLarge { what: String, limit: u64 },
    #[error("{what} is not understood: {cause}")]
    NotUnderstood { what: String, cause: String },
    #[error("the image is not for this machine ({wanted}); it is for {offered}")]
    NoPlatform { wanted: String, offered: String },
    #[error("{what} has the media type {media_type:?}, which is not supported")]
    MediaType { what: String, media_type: String },
    #[error("{step}")]
    Io {
        step: String,
        #[source]
        source: std::io::Error,
    },
}

fn after(retry: &Option<Duration>) -> String {
    match retry {
        Some(wait) => format!("; try again in {} s", wait.as_secs()),
        None => "; try again later".to_owned(),
    }
}

impl RegistryError {
    /// Whether the same request may succeed when it is sent again at once.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Broken { .. } | Self::TimedOut { .. } => true,
            Self::Status { status, .. } => *status >= 500,
            _ => false,
        }
    }
}

//! Extracts the parts of a request. Every mistake in them is answered as an `ErrorBody`. Nothing here touches a session.

mod address;
mod caller;
mod intake;
mod json;
mod query;
mod range;

pub use address::{
    ExecPath, FilePath, ImagePath, KeyPath, PlacePath, PortPath, SecretPath, SessionPath, ShellPath, SnapshotPath,
    ToolPath, WorkspacePath,
};
pub use caller::{By, ClientAddress, Held};
pub use intake::{Intake, MAX_DRAIN_TIME, drain};
#[cfg(test)]
pub use json::MAX_JSON_BODY_BYTES;
#[cfg(any(test, fuzzing))]
pub use json::parse as parse_json;
pub use json::{ApiJson, JsonOrNothing};
pub use query::{query, repeated_query};
pub use range::byte_range;

use hyper::HeaderMap;

use super::error::ApiError;

/// The most characters of a request's text that an error shows.
const MAX_SHOWN_CHARS: usize = 64;

pub fn shown(text: &str) -> String {
    text.chars().take(MAX_SHOWN_CHARS).collect()
}

/// The value of a header as text, if the request has that header.
pub fn header_text<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, ApiError> {
    let Some(value) = headers.get(name) else { return Ok(None) };
    let text = value.to_str().map_err(|_| ApiError::invalid(format!("the header {name} must be plain ASCII")))?;
    Ok(Some(text))
}

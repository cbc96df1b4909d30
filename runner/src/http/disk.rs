//! Stops all processes and lets them go on, and copies what is on the sandbox's disk: for snapshots and for sessions that are stopped.

use hyper::{Method, Request};
use shared_protocol::{ErrorBody, ErrorCode};

use super::app::SharedApp;
use super::body::{self, Reply};
use super::files::reply;
use super::request_body::RequestBody;
use super::{allow, query};
use crate::files::{Job, RawPath};

/// What separates the paths of a list.
const SEPARATOR: u8 = b':';

pub fn hold(app: &SharedApp, request: &Request<RequestBody>) -> Result<Reply, ErrorBody> {
    allow(request, &[Method::POST])?;
    app.hold.hold().map_err(|error| ErrorBody::new(ErrorCode::Conflict, error.to_string()))?;
    Ok(body::json(200, &serde_json::json!({ "ok": true })))
}

pub fn release(app: &SharedApp, request: &Request<RequestBody>) -> Result<Reply, ErrorBody> {
    allow(request, &[Method::POST])?;
    app.hold.release();
    Ok(body::json(200, &serde_json::json!({ "ok": true })))
}

/// Gives the disk out while everything is held, or takes one before the first shell starts.
pub async fn copy(app: &SharedApp, request: Request<RequestBody>) -> Result<Reply, ErrorBody> {
    allow(&request, &[Method::GET, Method::PUT])?;
    let directories = directories(&query::parse(request.uri().query(), &["directories"])?.path("directories")?)?;
    let conflict = |message: &str| ErrorBody::new(ErrorCode::Conflict, message);
    let job = if request.method() == Method::GET {
        if !app.hold.is_held() {
            return Err(conflict("the disk changes: POST /v1/hold comes first"));
        }
        Job::PackDisk { directories }
    } else {
        if !app.shells.awaits_restore() {
            return Err(conflict("this runner does not wait for a disk"));
        }
        Job::UnpackDisk { directories }
    };
    let (head, data) = app.files.run_on_disk(job, request.into_body()).await?;
    Ok(reply(&head, body::Body::Stream(data)))
}

fn directories(list: &[u8]) -> Result<Vec<RawPath>, ErrorBody> {
    let paths: Vec<RawPath> = list.split(|byte| *byte == SEPARATOR).map(<[u8]>::to_vec).collect();
    if paths.iter().all(|path| path.len() > 1 && path.starts_with(b"/") && !path.ends_with(b"/")) {
        return Ok(paths);
    }
    Err(ErrorBody::new(ErrorCode::InvalidRequest, "directories are absolute paths with a colon between them"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_absolute_paths() {
        assert_eq!(directories(b"/a:/b/c").unwrap(), [b"/a".to_vec(), b"/b/c".to_vec()]);
        for wrong in [&b""[..], b"/", b"a", b"/a:", b"/a/", b"/a:b"] {
            assert!(directories(wrong).is_err(), "{}", String::from_utf8_lossy(wrong));
        }
    }
}

//! The file calls: turns a request into a `Job`, and the job's result into a reply.
//!
//! Methods and parameters that a call does not have are refused. This code touches no file; the job's helper does.

use hyper::header::{CONTENT_LENGTH, CONTENT_RANGE, HeaderValue, RANGE};
use hyper::{HeaderMap, Method};
use shared_protocol::{ErrorBody, ErrorCode};

use super::app::SharedApp;
use super::body::{Body, Reply, with_type};
use super::query;
use super::request_body::RequestBody;
use crate::files::Job;
use crate::files::protocol::{Content, Head};
use crate::files::resolve::FinalLink;
use crate::files::transfer::Range;
use crate::files::watch::Depth;

/// Handles a request whose path after `/v1/` is `route`.
pub async fn handle(app: &SharedApp, request: hyper::Request<RequestBody>, route: &str) -> Result<Reply, ErrorBody> {
    let job = job(request.method(), route, request.uri().query(), request.headers())?;
    let (head, data) = app.files.run(job, request.into_body()).await?;
    Ok(reply(&head, Body::Stream(data)))
}

pub(super) fn reply(head: &Head, body: Body) -> Reply {
    let content_type = match head.content {
        Content::Json => "application/json",
        Content::Bytes => "application/octet-stream",
        Content::Tar => "application/x-tar",
        Content::Ndjson => "application/x-ndjson",
    };
    let mut reply = with_type(head.status, content_type, body);
    if let Some(length) = head.length {
        reply.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
    if let Some(range) = head.range.as_ref().and_then(|range| HeaderValue::try_from(range).ok()) {
        reply.headers_mut().insert(CONTENT_RANGE, range);
    }
    reply
}

fn job(method: &Method, route: &str, query: Option<&str>, headers: &HeaderMap) -> Result<Job, ErrorBody> {
    let parse = |known: &[&'static str]| query::parse(query, known);
    match (route, method.as_str()) {
        ("files", "GET") => Ok(Job::Read { path: parse(&["path"])?.path("path")?, range: range(headers)? }),
        ("files", "PUT") => {
            let query = parse(&["path", "mode"])?;
            Ok(Job::Write { path: query.path("path")?, mode: query.mode("mode")? })
        }
        ("fs/stat", "GET") => {
            let query = parse(&["path", "follow"])?;
            let last = if query.flag("follow")?.unwrap_or(true) { FinalLink::Follow } else { FinalLink::Keep };
            Ok(Job::Stat { path: query.path("path")?, last })
        }
        ("fs/list", "GET") => {
            let query = parse(&["path", "recursive"])?;
            Ok(Job::List { path: query.path("path")?, recursive: query.flag("recursive")?.unwrap_or(false) })
        }
        ("fs/watch", "GET") => {
            let query = parse(&["path", "recursive"])?;
            let depth = if query.flag("recursive")?.unwrap_or(false) { Depth::Tree } else { Depth::Directory };
            Ok(Job::Watch { path: query.path("path")?, depth })
        }
        ("fs/gather", "POST") => {
            parse(&[])?;
            Ok(Job::Gather)
        }
        ("fs/mkdir", "POST") => {
            let query = parse(&["path", "parents", "mode"])?;
            let (parents, mode) = (query.flag("parents")?.unwrap_or(false), query.mode("mode")?);
            Ok(Job::Mkdir { path: query.path("path")?, parents, mode })
        }
        ("fs/move", "POST") => {
            let query = parse(&["from", "to", "overwrite"])?;
            let overwrite = query.flag("overwrite")?.unwrap_or(false);
            Ok(Job::Move { from: query.path("from")?, to: query.path("to")?, overwrite })
        }
        ("fs", "DELETE") => {
            let query = parse(&["path", "recursive"])?;
            Ok(Job::Delete { path: query.path("path")?, recursive: query.flag("recursive")?.unwrap_or(false) })
        }
        ("archive", "GET") => Ok(Job::Pack { path: parse(&["path"])?.path("path")? }),
        ("archive", "PUT") => Ok(Job::Unpack { path: parse(&["path"])?.path("path")? }),
        ("files" | "archive", _) => Err(wrong_method(method, "GET and PUT")),
        ("fs/stat" | "fs/list" | "fs/watch", _) => Err(wrong_method(method, "GET")),
        ("fs/mkdir" | "fs/move" | "fs/gather", _) => Err(wrong_method(method, "POST")),
        ("fs", _) => Err(wrong_method(method, "DELETE")),
        _ => Err(ErrorBody::new(ErrorCode::NotFound, format!("there is no call /v1/{route}"))),
    }
}

fn wrong_method(method: &Method, allowed: &str) -> ErrorBody {
    ErrorBody::new(ErrorCode::MethodNotAllowed, format!("{method} is not a method of this call; it has {allowed}"))
}

fn range(headers: &HeaderMap) -> Result<Option<Range>, ErrorBody> {
    let Some(value) = headers.get(RANGE) else { return Ok(None) };
    let parsed = value.to_str().ok().and_then(parse_range).filter(|_| headers.get_all(RANGE).iter().count() == 1);
    parsed.map(Some).ok_or_else(|| {
        let message = "the Range header must be one range of bytes: bytes=a-b, bytes=a- or bytes=-n";
        ErrorBody::new(ErrorCode::InvalidRequest, message)
    })
}

fn parse_range(value: &str) -> Option<Range> {
    let number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse::<u64>().ok())?;
    let (first, last) = value.trim().strip_prefix("bytes=")?.split_once('-')?;
    match (first, last) {
        ("", last) => Some(Range::Last(number(last)?)),
        (first, "") => Some(Range::From(number(first)?)),
        (first, last) => {
            let (first, last) = (number(first)?, number(last)?);
            (first <= last).then_some(Range::Between(first, last))
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn asked(method: Method, route: &str, query: &str) -> Result<Job, ErrorCode> {
        job(&method, route, Some(query), &HeaderMap::new()).map_err(|error| error.error_code)
    }

    #[test]
    fn each_call_becomes_its_job() {
        let path = || b"a".to_vec();
        assert_eq!(asked(Method::GET, "files", "path=a"), Ok(Job::Read { path: path(), range: None }));
        assert_eq!(asked(Method::PUT, "files", "mode=600&path=a"), Ok(Job::Write { path: path(), mode: Some(0o600) }));
        assert_eq!(asked(Method::GET, "fs/stat", "path=a"), Ok(Job::Stat { path: path(), last: FinalLink::Follow }));
        assert_eq!(
            asked(Method::GET, "fs/stat", "path=a&follow=0"),
            Ok(Job::Stat { path: path(), last: FinalLink::Keep })
        );
        assert_eq!(asked(Method::DELETE, "fs", "path=a"), Ok(Job::Delete { path: path(), recursive: false }));
        assert_eq!(asked(Method::PUT, "archive", "path=a"), Ok(Job::Unpack { path: path() }));
        assert_eq!(asked(Method::POST, "fs/gather", ""), Ok(Job::Gather));
        let watch = |depth| Ok(Job::Watch { path: path(), depth });
        assert_eq!(asked(Method::GET, "fs/watch", "path=a"), watch(Depth::Directory));
        assert_eq!(asked(Method::GET, "fs/watch", "path=a&recursive=1"), watch(Depth::Tree));
    }

    #[test]
    fn what_a_call_does_not_have_is_refused() {
        assert_eq!(asked(Method::POST, "files", "path=a"), Err(ErrorCode::MethodNotAllowed));
        assert_eq!(asked(Method::HEAD, "files", "path=a"), Err(ErrorCode::MethodNotAllowed));
        assert_eq!(asked(Method::GET, "fs", "path=a"), Err(ErrorCode::MethodNotAllowed));
        assert_eq!(asked(Method::GET, "fs/copy", "path=a"), Err(ErrorCode::NotFound));
        assert_eq!(asked(Method::POST, "fs/gather", "path=a"), Err(ErrorCode::InvalidRequest));
        assert_eq!(asked(Method::GET, "fs/gather", ""), Err(ErrorCode::MethodNotAllowed));
        assert_eq!(asked(Method::GET, "fs/list", "path=a&recurse=1"), Err(ErrorCode::InvalidRequest));
        assert_eq!(asked(Method::DELETE, "fs", ""), Err(ErrorCode::InvalidRequest));
        assert_eq!(asked(Method::POST, "fs/move", "from=a"), Err(ErrorCode::InvalidRequest));
    }

    #[test]
    fn ranges_are_one_part_or_an_error() {
        assert_eq!(parse_range("bytes=0-9"), Some(Range::Between(0, 9)));
        assert_eq!(parse_range("bytes=5-"), Some(Range::From(5)));
        assert_eq!(parse_range("bytes=-5"), Some(Range::Last(5)));
        for refused in ["bytes=9-0", "bytes=0-1,3-4", "lines=0-1", "bytes=-", "bytes=+1-2", "bytes=a-b", "0-1"] {
            assert_eq!(parse_range(refused), None, "{refused}");
        }
    }

    proptest! {
        #[test]
        fn no_range_makes_it_panic(value: String) {
            let _ = parse_range(&value);
            let _ = parse_range(&format!("bytes={value}"));
        }
    }
}

//! Writes the body of a request to the open standard input of a run, piece by piece, as fast as the program reads.

use std::time::Duration;

use http_body_util::BodyExt;
use hyper::{Method, Request};
use shared_protocol::runner::StdinView;
use shared_protocol::{ErrorBody, ErrorCode};

use super::app::SharedApp;
use super::body::{self, Reply};
use super::exec::exec_id;
use super::request_body::RequestBody;
use super::{allow, query};
use crate::open_stdin::Writer;

/// The longest time in which a client sends no byte of a body that it has begun.
const CLIENT_STALL: Duration = Duration::from_secs(300);

pub async fn write(app: &SharedApp, request: Request<RequestBody>, id: &str) -> Result<Reply, ErrorBody> {
    allow(&request, &[Method::POST])?;
    let id = exec_id(id)?;
    let close = query::parse(request.uri().query(), &["close"])?.flag("close")?.unwrap_or(false);
    let exec = app.execs.get(&id)?;
    let stdin = exec.stdin.borrow().clone().ok_or_else(|| {
        ErrorBody::new(ErrorCode::Conflict, format!("{id} has no open standard input; start a run with stdin_open"))
    })?;
    let mut body = request.into_body();
    let mut writer = stdin.writer().await;
    copy(&mut body, &mut writer).await?;
    let bytes = writer.written();
    if close {
        writer.close();
    }
    Ok(body::json(200, &StdinView { bytes, closed: close }))
}

async fn copy(body: &mut RequestBody, writer: &mut Writer<'_>) -> Result<(), ErrorBody> {
    writer.check()?;
    loop {
        match tokio::time::timeout(CLIENT_STALL, body.frame()).await {
            Ok(None) => return Ok(()),
            Ok(Some(Ok(frame))) => {
                if let Ok(bytes) = frame.into_data() {
                    writer.write(&bytes).await?;
                }
            }
            Ok(Some(Err(error))) => return Err(cut(writer, &format!("the request was cut off: {error}"))),
            Err(_) => return Err(cut(writer, &format!("nothing was sent for {} s", CLIENT_STALL.as_secs()))),
        }
    }
}

fn cut(writer: &Writer<'_>, why: &str) -> ErrorBody {
    let message = format!("{why}; {} bytes of this request were written", writer.written());
    ErrorBody::new(ErrorCode::InvalidRequest, message)
}

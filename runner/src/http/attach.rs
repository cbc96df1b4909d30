//! Attaches a client to a terminal: after an HTTP upgrade, bytes flow in both directions until either side ends.

use hyper::header::{CONNECTION, HeaderValue, UPGRADE};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use shared_protocol::{ErrorBody, ErrorCode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::allow;
use super::app::SharedApp;
use super::body::{self, Body, Reply};
use super::query;
use super::request_body::RequestBody;
use super::shells::shell_name;
use crate::shell::{self, Attachment, ShellHandle};

pub const PROTOCOL: &str = "cove-terminal";

/// The most typed bytes that are read at once.
const INPUT_BYTES: usize = 4 << 10;

pub async fn attach(app: &SharedApp, mut request: Request<RequestBody>, name: &str) -> Result<Reply, ErrorBody> {
    allow(&request, &[Method::GET])?;
    let wanted = request.headers().get(UPGRADE).is_some_and(|v| v.as_bytes().eq_ignore_ascii_case(PROTOCOL.as_bytes()));
    if !wanted {
        let message = format!("attach needs the headers Connection: Upgrade and Upgrade: {PROTOCOL}");
        return Err(ErrorBody::new(ErrorCode::InvalidRequest, message));
    }
    let query = query::parse(request.uri().query(), &["cols", "rows"])?;
    let side = |name: &str| -> Result<Option<u16>, ErrorBody> {
        let number = query.number(name)?;
        Ok(number.map(|n| u16::try_from(n).unwrap_or(0)))
    };
    let (cols, rows) = (side("cols")?, side("rows")?);
    let shell = app.shells.get(Some(&shell_name(name)?))?;
    if cols.is_some() || rows.is_some() {
        let view = shell.view();
        shell.resize(shell::size(cols.or(Some(view.cols)), rows.or(Some(view.rows)))?).await?;
    }
    let attachment = shell.attach().await?;
    let upgrade = hyper::upgrade::on(&mut request);
    tokio::task::spawn_local(async move {
        match upgrade.await {
            Ok(upgraded) => carry(TokioIo::new(upgraded), shell, attachment).await,
            Err(error) => tracing::debug!(%error, "an upgrade to a terminal failed"),
        }
    });
    let mut reply = body::with_type(200, "application/octet-stream", Body::empty());
    *reply.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    reply.headers_mut().insert(CONNECTION, HeaderValue::from_static("upgrade"));
    reply.headers_mut().insert(UPGRADE, HeaderValue::from_static(PROTOCOL));
    Ok(reply)
}

/// Copies bytes between the client and the terminal.
async fn carry(io: TokioIo<hyper::upgrade::Upgraded>, shell: ShellHandle, mut attachment: Attachment) {
    let (mut from_client, mut to_client) = tokio::io::split(io);
    let printed = async {
        to_client.write_all(&attachment.replay).await?;
        while let Some(bytes) = attachment.output.recv().await {
            to_client.write_all(&bytes).await?;
        }
        to_client.shutdown().await
    };
    let typed = async {
        let mut buffer = [0; INPUT_BYTES];
        loop {
            match from_client.read(&mut buffer).await {
                Ok(0) | Err(_) => return,
                // If the shell has ended, the other direction sees that too.
                Ok(count) => drop(shell.type_in(buffer[..count].to_vec()).await),
            }
        }
    };
    tokio::select! {
        _ = printed => {}
        () = typed => {}
    }
}

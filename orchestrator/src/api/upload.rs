//! `POST …/fs/upload`: files as a form has them, streamed into a directory of the sandbox.
//!
//! The field `path` names the directory, which is made if it is missing; without one it is the workspace. It should come
//! first: what comes before it has to be kept until it is known, and only so much is.

use axum::Json;
use axum::extract::multipart::{Field, Multipart, MultipartError};
use axum::extract::{DefaultBodyLimit, FromRequest as _, Request, State};
use axum::response::{IntoResponse, Response};
use bytes::{Bytes, BytesMut};
use http_body_util::channel::Channel;
use hyper::Method;
use shared_protocol::api::UploadedView;
use shared_protocol::runner::{FileView, WroteView};
use shared_protocol::{ErrorBody, ErrorCode};

use super::ApiState;
use super::error::ApiError;
use super::fs::document;
use super::target::{checked_path, invalid, session_id};
use crate::runner_client::{FileCall, Outgoing};
use crate::session::Activity;

/// Files in one form.
const MAX_FILES: usize = 1000;

/// Of the field `path`.
const MAX_PATH_BYTES: usize = 4096;

/// Bytes of files that came before their directory was known.
const MAX_EARLY_BYTES: usize = 4 << 20;

/// Pieces of a file between the client and the runner.
const PIECES: usize = 2;

/// The directory that relative paths begin at.
const WORKSPACE: &str = "/workspace";

pub async fn upload(State(state): State<ApiState>, request: Request) -> Result<Response, ApiError> {
    let activity = state.sessions.get(&session_id(request.uri())?)?.begin().await?;
    upload_in(&state, activity, request).await
}

pub async fn upload_in(state: &ApiState, activity: Activity, mut request: Request) -> Result<Response, ApiError> {
    DefaultBodyLimit::disable().apply(&mut request);
    let mut form = Multipart::from_request(request, &()).await.map_err(|error| invalid(error.body_text()))?;
    let mut upload = Upload { state, activity, directory: None, is_made: false, early: Vec::new(), paths: Vec::new() };
    while let Some(field) = form.next_field().await.map_err(cut)? {
        upload.take(field).await?;
    }
    let paths = upload.finish().await?;
    Ok(Json(UploadedView { ok: true, paths }).into_response())
}

struct Upload<'a> {
    state: &'a ApiState,
    activity: Activity,
    directory: Option<String>,
    is_made: bool,
    /// Files whose directory is not known yet.
    early: Vec<(String, Bytes)>,
    paths: Vec<String>,
}

impl Upload<'_> {
    async fn take(&mut self, mut field: Field<'_>) -> Result<(), ApiError> {
        let name = field.name().unwrap_or_default().to_owned();
        let file = field.file_name().map(str::to_owned);
        match (name.as_str(), file) {
            ("path", None) => {
                if self.directory.is_some() {
                    return Err(invalid("the field path is given twice"));
                }
                let text = read_whole(&mut field, MAX_PATH_BYTES).await?;
                let text = text.ok_or_else(|| invalid(format!("the field path may have {MAX_PATH_BYTES} bytes")))?;
                let path = String::from_utf8(checked_path("the field path", text.to_vec())?);
                self.directory = Some(path.map_err(|_| invalid("the field path must be UTF-8"))?);
                Ok(())
            }
            ("file", Some(file)) => {
                let file = file_name(&file)?;
                if self.paths.len() + self.early.len() >= MAX_FILES {
                    return Err(invalid(format!("a form may have {MAX_FILES} files; an archive can have more")));
                }
                match self.directory {
                    Some(_) => self.write(&file, Content::Coming(Box::new(field))).await,
                    None => self.keep(file, field).await,
                }
            }
            ("file", None) => Err(invalid("the field file has no filename")),
            (other, _) => {
                let shown: String = other.chars().take(64).collect();
                Err(invalid(format!("unknown field {shown:?}; a form has path and file")))
            }
        }
    }

    async fn keep(&mut self, file: String, mut field: Field<'_>) -> Result<(), ApiError> {
        let kept: usize = self.early.iter().map(|(_, bytes)| bytes.len()).sum();
        let Some(bytes) = read_whole(&mut field, MAX_EARLY_BYTES.saturating_sub(kept)).await? else {
            let message = format!("send the field path before files of more than {MAX_EARLY_BYTES} bytes");
            return Err(ApiError(ErrorBody::new(ErrorCode::TooLarge, message)));
        };
        self.early.push((file, bytes));
        Ok(())
    }

    async fn finish(mut self) -> Result<Vec<String>, ApiError> {
        // In the order that they came in, as far as that is known.
        let late = std::mem::take(&mut self.paths);
        for (file, bytes) in std::mem::take(&mut self.early) {
            self.write(&file, Content::Here(bytes)).await?;
        }
        self.paths.extend(late);
        if self.paths.is_empty() {
            return Err(invalid("the form has no field file"));
        }
        Ok(self.paths)
    }

    async fn write(&mut self, file: &str, content: Content<'_>) -> Result<(), ApiError> {
        let directory = self.directory.as_deref().unwrap_or(WORKSPACE);
        if !self.is_made {
            let call = FileCall::new(Method::POST, "fs/mkdir").with("path", directory.as_bytes());
            let _: FileView = document(&self.activity, call.with_flag("parents", true)).await?;
            self.is_made = true;
        }
        let path = format!("{}/{file}", directory.trim_end_matches('/'));
        let call = FileCall::new(Method::PUT, "files").with("path", path.as_bytes());
        let wrote: WroteView = match content {
            Content::Here(bytes) => document(&self.activity, call.with_body(Outgoing::full(bytes))).await?,
            Content::Coming(mut field) => {
                let (mut sender, body) = Channel::<Bytes, MultipartError>::new(PIECES);
                let feed = async {
                    loop {
                        match field.chunk().await {
                            Ok(Some(chunk)) => {
                                // The runner wants no more: what it says about that is the answer.
                                if sender.send_data(chunk).await.is_err() {
                                    return Ok(());
                                }
                            }
                            Ok(None) => {
                                drop(sender);
                                return Ok(());
                            }
                            // Cut, so that the runner does not take half a file for a whole one.
                            Err(error) => {
                                let told = cut_text(&error);
                                sender.abort(error);
                                return Err(told);
                            }
                        }
                    }
                };
                let (wrote, fed) = tokio::join!(document(&self.activity, call.with_body(Outgoing::stream(body))), feed);
                fed?;
                wrote?
            }
        };
        self.state.metrics.bytes_in(wrote.bytes);
        self.paths.push(path);
        Ok(())
    }
}

enum Content<'a> {
    Here(Bytes),
    Coming(Box<Field<'a>>),
}

/// A field's bytes, or `None` where there are more than so many.
async fn read_whole(field: &mut Field<'_>, limit: usize) -> Result<Option<Bytes>, ApiError> {
    let mut whole = BytesMut::new();
    while let Some(chunk) = field.chunk().await.map_err(cut)? {
        if whole.len() + chunk.len() > limit {
            return Ok(None);
        }
        whole.extend_from_slice(&chunk);
    }
    Ok(Some(whole.freeze()))
}

fn cut(error: MultipartError) -> ApiError {
    cut_text(&error)
}

fn cut_text(error: &MultipartError) -> ApiError {
    invalid(format!("the form cannot be read: {}", error.body_text()))
}

/// The last part of a form's file name: some clients send where the file lay.
fn file_name(given: &str) -> Result<String, ApiError> {
    let name = given.rsplit(['/', '\\']).next().unwrap_or_default();
    if matches!(name, "" | "." | "..") || name.contains('\0') {
        let shown: String = given.chars().take(64).collect();
        return Err(invalid(format!("{shown:?} is no name of a file")));
    }
    Ok(name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_cannot_name_its_way_out_of_the_directory() {
        assert_eq!(file_name("a b.txt").unwrap(), "a b.txt");
        assert_eq!(file_name("../../etc/passwd").unwrap(), "passwd");
        assert_eq!(file_name("C:\\Users\\x\\a.txt").unwrap(), "a.txt");
        for bad in ["", "..", ".", "a/", "a/..", "x\0y"] {
            assert!(file_name(bad).is_err(), "{bad:?}");
        }
    }
}

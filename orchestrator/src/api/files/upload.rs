//! `POST …/fs/upload`: streams the files of a form into a directory of the sandbox.
//!
//! The field `path` names the directory; the default is the workspace. It should be the first field, because files before it
//! stay in memory until it is known.

use axum::Json;
use axum::extract::multipart::{Field, Multipart, MultipartError};
use axum::extract::{DefaultBodyLimit, FromRequest as _, Request, State};
use bytes::{Bytes, BytesMut};
use shared_protocol::api::UploadedView;
use shared_protocol::runner::MAX_PATH_BYTES;

use crate::api::ApiState;
use crate::api::error::ApiError;
use crate::api::extract::{By, MAX_DRAIN_TIME, PlacePath, drain, shown};
use crate::service::InvalidRequest;
use crate::service::files::Upload;

pub async fn upload(
    State(state): State<ApiState>,
    By(caller): By,
    PlacePath(place): PlacePath,
    mut request: Request,
) -> Result<Json<UploadedView>, ApiError> {
    let mut upload = match state.service.files().upload(&caller, &place) {
        Ok(upload) => upload,
        Err(error) => {
            drain(request.into_body()).await;
            return Err(error.into());
        }
    };
    DefaultBodyLimit::disable().apply(&mut request);
    let form = Multipart::from_request(request, &()).await;
    let mut form = form.map_err(|error| ApiError::invalid(error.body_text()))?;
    if let Err(error) = take_all(&mut form, &mut upload).await {
        // The client is still sending; unless the rest is read, it may not see the answer.
        let rest = async {
            while let Ok(Some(mut field)) = form.next_field().await {
                while let Ok(Some(_)) = field.chunk().await {}
            }
        };
        let _ = tokio::time::timeout(MAX_DRAIN_TIME, rest).await;
        return Err(error);
    }
    Ok(Json(UploadedView { ok: true, paths: upload.finish().await? }))
}

async fn take_all(form: &mut Multipart, upload: &mut Upload<'_>) -> Result<(), ApiError> {
    while let Some(field) = form.next_field().await.map_err(|error| cut(&error))? {
        take(field, upload).await?;
    }
    Ok(())
}

async fn take(field: Field<'_>, upload: &mut Upload<'_>) -> Result<(), ApiError> {
    let name = field.name().unwrap_or_default().to_owned();
    let file = field.file_name().map(str::to_owned);
    match (name.as_str(), file) {
        ("path", None) => Ok(upload.set_directory(&read_path(field).await?)?),
        ("file", Some(file)) => {
            let name = upload.admit(&file)?;
            let content = futures_util::stream::unfold(field, async |mut field| {
                let piece = field.chunk().await.map_err(|error| cut(&error)).transpose()?;
                Some((piece, field))
            });
            Ok(upload.add(name, Box::pin(content)).await?)
        }
        ("file", None) => Err(ApiError::invalid("the field file has no filename")),
        (other, _) => Err(ApiError::invalid(format!("unknown field {:?}; a form has path and file", shown(other)))),
    }
}

async fn read_path(mut field: Field<'_>) -> Result<Bytes, ApiError> {
    let mut whole = BytesMut::new();
    while let Some(chunk) = field.chunk().await.map_err(|error| cut(&error))? {
        if whole.len() + chunk.len() > MAX_PATH_BYTES {
            return Err(ApiError::invalid(format!("the field path may have {MAX_PATH_BYTES} bytes")));
        }
        whole.extend_from_slice(&chunk);
    }
    Ok(whole.freeze())
}

fn cut(error: &MultipartError) -> InvalidRequest {
    InvalidRequest::new(format!("the form cannot be read: {}", error.body_text()))
}

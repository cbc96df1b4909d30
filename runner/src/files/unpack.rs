//! Unpacks the tar stream of a request into a directory. `tar_unpack` does the work and the refusals; this file has the
//! destination, the reply and the errors.

use shared_protocol::ErrorBody;
use shared_protocol::runner::WroteView;
use tar_unpack::{Failure, Options, UnpackError};

use super::error::{At, from_io, invalid};
use super::ops::{self, DIRECTORY_MODE};
use super::protocol::{BodyReader, ReplyWriter};
use super::resolve::{FinalLink, MissingDirs, Roots, resolve};

/// Creates the directory if it does not exist, and unpacks the request's body into it.
pub fn unpack(
    roots: &Roots,
    path: &[u8],
    body: &mut BodyReader<'_>,
    reply: &mut ReplyWriter<'_>,
) -> Result<(), ErrorBody> {
    ops::mkdir(roots, path, true, None)?;
    let destination = resolve(roots, path, FinalLink::Follow, MissingDirs::Fail)?.inode(path)?.open_directory(path)?;
    reply.ready().at(path)?;
    let options = Options { directory_mode: DIRECTORY_MODE };
    match tar_unpack::unpack(body, destination, options, &mut || reply.report_progress()) {
        Ok(summary) => reply.json(201, &WroteView { bytes: summary.bytes }).at(path),
        Err(failure) => Err(error_body(&failure)),
    }
}

/// The error reply. Its code comes from the failed system call, if there was one. Every other failure is the fault of the
/// stream.
fn error_body(failure: &Failure) -> ErrorBody {
    let mut body = match &failure.error {
        UnpackError::Io { path, error } => from_io(path, error),
        error @ (UnpackError::Stream(_) | UnpackError::Refused { .. }) => invalid(error.to_string()),
    };
    if failure.entries > 0 {
        body.message = format!("{}; entries unpacked before it, which stay: {}", body.message, failure.entries);
    }
    body
}

#[cfg(test)]
mod tests {
    use shared_protocol::ErrorCode;
    use tar::{Builder, Header};

    use super::*;
    use crate::files::Job;
    use crate::files::fixture::Fixture;
    use crate::files::protocol::tests::sent;
    use crate::files::protocol::{HelperResult, PREFIX};

    fn job() -> Job {
        Job::Unpack { path: b"to".to_vec() }
    }

    /// A stream with one file of ten bytes for each name.
    fn stream(names: &[&str]) -> Vec<u8> {
        let mut builder = Builder::new(Vec::new());
        for name in names {
            let mut header = Header::new_gnu();
            header.set_mode(0o644);
            header.set_size(10);
            builder.append_data(&mut header, name, &b"0123456789"[..]).unwrap();
        }
        builder.into_inner().unwrap()
    }

    #[test]
    fn a_stream_is_unpacked_and_its_bytes_are_counted() {
        let fixture = Fixture::new();
        let (outcome, data) = fixture.run_with(&job(), &sent(&stream(&["a/b", "c"]), 777, true));
        assert!(matches!(outcome, HelperResult::Done(_)), "{outcome:?}");
        assert_eq!(serde_json::from_slice::<WroteView>(&data.unwrap()).unwrap().bytes, 20);
        assert_eq!(fixture.content("to/a/b"), b"0123456789");
    }

    #[test]
    fn a_request_that_is_cut_is_an_invalid_one_and_tells_what_stays() {
        let fixture = Fixture::new();
        let whole = sent(&stream(&["a", "b"]), 512, true);
        // This cuts after the header and data of `a`, the header of `b`, and three of its ten bytes.
        let cut = 4 * PREFIX + 3 * 512 + 3;
        let (outcome, _) = fixture.run_with(&job(), &whole[..cut]);
        let HelperResult::Failed(error) = outcome else { panic!("{outcome:?}") };
        assert_eq!(error.error_code, ErrorCode::InvalidRequest);
        assert!(error.message.contains("stops before its end"), "{error}");
        assert!(error.message.ends_with("which stay: 1"), "{error}");
    }

    #[test]
    fn a_system_call_that_fails_has_the_code_of_its_error() {
        let fixture = Fixture::new();
        std::fs::create_dir_all(fixture.workspace().join("to/a")).unwrap();
        let (outcome, _) = fixture.run_with(&job(), &sent(&stream(&["a"]), 777, true));
        let HelperResult::Failed(error) = outcome else { panic!("{outcome:?}") };
        assert!(error.message.contains("it is a directory"), "{error}");
    }
}

//! Turns an errno into an error reply: a code for programs, and a sentence that names the path as the client sent it.

use nix::errno::Errno;
use shared_protocol::{ErrorBody, ErrorCode};

/// The most bytes of a path that an error shows. The client knows the rest.
const MAX_SHOWN: usize = 512;

/// A path as readable text: bytes that are not UTF-8 are replaced, and a long path is cut.
pub fn shown(path: &[u8]) -> String {
    crate::text::shown(path, MAX_SHOWN)
}

pub fn invalid(message: impl Into<String>) -> ErrorBody {
    ErrorBody::new(ErrorCode::InvalidRequest, message)
}

pub fn from_errno(path: &[u8], errno: Errno) -> ErrorBody {
    let path = shown(path);
    let (code, what) = match errno {
        Errno::ENOENT => (ErrorCode::FileNotFound, "no such file or directory"),
        Errno::EACCES | Errno::EPERM => (ErrorCode::Forbidden, "permission denied for the sandbox user"),
        Errno::EROFS => (ErrorCode::Forbidden, "the filesystem is read-only"),
        Errno::EEXIST => (ErrorCode::Conflict, "it exists already"),
        Errno::ENOTEMPTY => {
            (ErrorCode::Conflict, "the directory is not empty; recursive=1 removes it with its content")
        }
        Errno::EBUSY => (ErrorCode::Conflict, "it is in use, as a mount point is"),
        Errno::ESTALE => (ErrorCode::Conflict, "it was replaced while it was being opened; ask again"),
        Errno::ETXTBSY => (ErrorCode::Conflict, "it is a program that is running"),
        Errno::ENOTDIR => (ErrorCode::InvalidRequest, "a part of the path is not a directory"),
        Errno::EISDIR => (ErrorCode::InvalidRequest, "it is a directory"),
        Errno::ELOOP => (ErrorCode::InvalidRequest, "too many symbolic links, or one where none may be"),
        Errno::ENAMETOOLONG => (ErrorCode::InvalidRequest, "it is too long or too deep, or a name in it is too long"),
        Errno::EINVAL => (ErrorCode::InvalidRequest, "the filesystem does not allow this"),
        Errno::EXDEV => (
            ErrorCode::InvalidRequest,
            "the two paths are on different filesystems: write the new file and delete the old one instead",
        ),
        Errno::ENOSPC | Errno::EDQUOT | Errno::EFBIG => (ErrorCode::LimitReached, "no space left"),
        Errno::EMFILE | Errno::ENFILE | Errno::ENOMEM => {
            (ErrorCode::LimitReached, "the sandbox is out of memory or files")
        }
        other => return ErrorBody::new(ErrorCode::InternalError, format!("{path}: {}", other.desc())),
    };
    ErrorBody::new(code, format!("{path}: {what}"))
}

/// The reply for the error of a `std` file call. An error without an errno is a bug of the runner.
pub fn from_io(path: &[u8], error: &std::io::Error) -> ErrorBody {
    match error.raw_os_error() {
        Some(errno) => from_errno(path, Errno::from_raw(errno)),
        None => ErrorBody::new(ErrorCode::InternalError, format!("{}: {error}", shown(path))),
    }
}

/// Adds `.at(path)?` to the results of file calls.
pub trait At<T> {
    fn at(self, path: &[u8]) -> Result<T, ErrorBody>;
}

impl<T> At<T> for nix::Result<T> {
    fn at(self, path: &[u8]) -> Result<T, ErrorBody> {
        self.map_err(|errno| from_errno(path, errno))
    }
}

impl<T> At<T> for std::io::Result<T> {
    fn at(self, path: &[u8]) -> Result<T, ErrorBody> {
        self.map_err(|error| from_io(path, &error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_path_as_it_was_given() {
        let error = from_errno(b"caf\xe9/x", Errno::ENOENT);
        assert_eq!(error.error_code, ErrorCode::FileNotFound);
        assert_eq!(error.message, "caf\u{fffd}/x: no such file or directory");
    }

    #[test]
    fn a_very_long_path_is_cut_in_the_message_alone() {
        let error = from_errno(&[b'a'; 5000], Errno::ENAMETOOLONG);
        assert!(error.message.len() < 700, "{}", error.message.len());
        assert!(error.message.contains('…'));
    }

    #[test]
    fn a_full_disk_is_a_limit_and_not_our_fault() {
        assert_eq!(from_errno(b"x", Errno::ENOSPC).error_code, ErrorCode::LimitReached);
        assert_eq!(from_io(b"x", &std::io::Error::from_raw_os_error(libc::EDQUOT)).error_code, ErrorCode::LimitReached);
        assert_eq!(from_errno(b"x", Errno::EIO).error_code, ErrorCode::InternalError);
    }
}

//! Checked parameters of file calls. Pure. The fields are private: only a check can make a value of these types.

use shared_protocol::SessionId;
use shared_protocol::api::FsWriteRequest;
use shared_protocol::runner::{check_path, decode_payload};

use crate::service::{InvalidRequest, WorkspaceAddress};

/// The permission bits that a file can get: no setuid, setgid or sticky bit.
const MAX_MODE: u32 = 0o777;

/// The session or workspace that has the files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    Session(SessionId),
    Workspace(WorkspaceAddress),
}

/// A path inside a sandbox: absolute, or relative to `/workspace`. It may contain any byte but NUL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxPath(Vec<u8>);

impl SandboxPath {
    /// Checks a path; `what` names it in an error.
    pub fn new(what: &str, path: impl Into<Vec<u8>>) -> Result<Self, InvalidRequest> {
        let path = path.into();
        match path.as_slice() {
            b"" => Err(InvalidRequest::new(format!("{what} is empty"))),
            path if path.contains(&0) => Err(InvalidRequest::new(format!("{what} has a NUL byte in it"))),
            _ => {
                check_path(&path)?;
                Ok(Self(path))
            }
        }
    }

    /// The directory where relative paths start.
    pub fn workspace() -> Self {
        Self(b".".to_vec())
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// The permission bits of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileMode(u32);

impl FileMode {
    pub fn new(bits: u32) -> Result<Self, InvalidRequest> {
        if bits <= MAX_MODE { Ok(Self(bits)) } else { Err(InvalidRequest::new("a mode goes from 0 to 777 in octal")) }
    }

    pub(super) fn bits(self) -> u32 {
        self.0
    }
}

/// A file to write, with its content.
#[derive(Debug)]
pub struct SmallFile {
    pub(super) path: SandboxPath,
    pub(super) content: Vec<u8>,
}

impl SmallFile {
    pub fn new(request: FsWriteRequest) -> Result<Self, InvalidRequest> {
        let path = SandboxPath::new("path", request.path)?;
        let content = match (request.text, request.content_base64) {
            (None, None) => {
                let message = "give text or content_base64; an empty one makes an empty file";
                return Err(InvalidRequest::new(message));
            }
            (Some(_), Some(_)) => return Err(InvalidRequest::new("give text or content_base64, not both")),
            (text, encoded) => decode_payload("content", text, encoded)?.unwrap_or_default(),
        };
        Ok(Self { path, content })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_names_nothing_is_refused_by_its_name() {
        let refused = |path: &[u8]| SandboxPath::new("the field path", path).unwrap_err().to_string();
        assert_eq!(refused(b""), "the field path is empty");
        assert_eq!(refused(b"a\0b"), "the field path has a NUL byte in it");
        assert!(refused(b"../x").contains("leaves the workspace"));
        assert_eq!(SandboxPath::new("p", "a/\u{ff}").unwrap().as_bytes(), "a/\u{ff}".as_bytes());
    }

    #[test]
    fn a_small_file_has_its_content_once() {
        let file = |text: Option<&str>, base64: Option<&str>| {
            SmallFile::new(FsWriteRequest {
                path: "p".into(),
                text: text.map(str::to_owned),
                content_base64: base64.map(str::to_owned),
            })
        };
        assert_eq!(file(Some("a"), None).unwrap().content, b"a");
        assert_eq!(file(None, Some("")).unwrap().content, b"");
        for (text, base64) in [(None, None), (Some("a"), Some("YQ==")), (None, Some("Y"))] {
            assert!(file(text, base64).is_err(), "{text:?} {base64:?}");
        }
    }

    #[test]
    fn a_mode_has_no_setuid() {
        assert!(FileMode::new(0o777).is_ok() && FileMode::new(0o4755).is_err());
    }
}

//! Reads what the path of a request names, from the undecoded path: a file's name can contain any bytes, and a decoded
//! string cannot.
//!
//! Ids and shell names have no character that needs an escape, so they are not decoded. In a path, unlike in a query, a `+`
//! is a plus.

use axum::extract::FromRequestParts;
use hyper::Uri;
use hyper::http::request::Parts;
use shared_protocol::query::unescape;
use shared_protocol::{ExecId, KeyName, SecretName, SessionId, ShellName, SnapshotId, WorkspaceId};

use super::shown;
use crate::api::error::ApiError;
use crate::service::WorkspaceAddress;
use crate::service::files::{Place, SandboxPath};
use crate::service::ports::Port;

/// Part `number` of the path, where `v1` is part 0. The last of `parts` contains the rest of the path.
fn part(uri: &Uri, number: usize, parts: usize) -> &str {
    uri.path().strip_prefix('/').unwrap_or_default().splitn(parts, '/').nth(number).unwrap_or_default()
}

/// Declares extractors that depend only on the request's address.
macro_rules! from_address {
    ($($(#[$doc:meta])* $name:ident($type:ty) = $read:expr;)*) => {$(
        $(#[$doc])*
        pub struct $name(pub $type);

        impl $name {
            pub fn read(uri: &Uri) -> Result<$type, ApiError> {
                $read(uri)
            }
        }

        impl<S: Send + Sync> FromRequestParts<S> for $name {
            type Rejection = ApiError;

            async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
                Self::read(&parts.uri).map(Self)
            }
        }
    )*};
}

from_address! {
    /// The session that `/v1/sessions/{session_id}/…` names. The service decides whether it exists.
    SessionPath(SessionId) = |uri| Ok(SessionId::new(part(uri, 2, 4))?);

    /// The workspace that `/v1/workspaces/{workspace_id}/…` names: `ID` is one of the caller's own, `OWNER:ID` one of that
    /// owner.
    WorkspacePath(WorkspaceAddress) = |uri| {
        let given = part(uri, 2, 4);
        // Some clients escape a colon in a path, others do not.
        let parts = [":", "%3A", "%3a"].iter().find_map(|colon| given.split_once(colon));
        let (owner, id) = match parts {
            Some((owner, id)) => (Some(KeyName::new(owner)?), id),
            None => (None, given),
        };
        Ok(WorkspaceAddress { owner, id: WorkspaceId::new(id)? })
    };

    /// The snapshot that `/v1/snapshots/{snapshot_id}` names. The service decides whether it exists.
    SnapshotPath(SnapshotId) = |uri| Ok(SnapshotId::new(part(uri, 2, 4))?);

    /// The secret that `/v1/secrets/{secret_name}` names.
    SecretPath(SecretName) = |uri| Ok(SecretName::new(part(uri, 2, 4))?);
    /// The key that `/v1/keys/{key_name}` names.
    KeyPath(KeyName) = |uri| Ok(KeyName::new(part(uri, 2, 4))?);

    /// The session or the workspace whose files a request is about.
    PlacePath(Place) = |uri| match part(uri, 1, 4) {
        "workspaces" => WorkspacePath::read(uri).map(Place::Workspace),
        _ => SessionPath::read(uri).map(Place::Session),
    };

    /// The image that `/v1/pools/{image}` names. Its name may contain any character, escaped.
    ImagePath(String) = |uri| {
        let raw = part(uri, 2, 4);
        let image = unescape(raw).and_then(|bytes| String::from_utf8(bytes.into_owned()).ok());
        image.ok_or_else(|| ApiError::invalid(format!("{:?} in the path is not percent-encoded UTF-8", shown(raw))))
    };

    /// The shell that `/v1/sessions/{session_id}/shells/{shell}` and the routes below it name.
    ShellPath(ShellName) = |uri| Ok(ShellName::new(part(uri, 4, 6))?);

    /// The port that `/v1/sessions/{session_id}/ports/{port}` and the routes below it name.
    PortPath(Port) = |uri| Ok(Port::parse(part(uri, 4, 6))?);

    /// The tool that `/v1/sessions/{session_id}/tools/{tool}` names. The service decides whether it exists.
    ToolPath(String) = |uri| Ok(shown(part(uri, 4, 6)));

    /// The exec or run that `/v1/sessions/{session_id}/execs/{exec_id}` names.
    ExecPath(ExecId) = |uri| Ok(ExecId::new(part(uri, 4, 6))?);

    /// The file that `/v1/sessions/{session_id}/files/{path}` names: everything after `files/`, so an absolute path begins
    /// with a second slash.
    FilePath(SandboxPath) = |uri| match unescape(part(uri, 4, 5)) {
        Some(path) => Ok(SandboxPath::new("the path", path)?),
        None => Err(ApiError::invalid("the path has a % without two hexadecimal digits after it")),
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn uri(text: &str) -> Uri {
        text.parse().unwrap()
    }

    #[test]
    fn a_file_path_is_whatever_follows() {
        let path = |text: &str| FilePath::read(&uri(&format!("/v1/sessions/s/files/{text}"))).unwrap();
        for (text, expected) in [
            ("a/b", &b"a/b"[..]),
            ("/etc/passwd", b"/etc/passwd"),
            ("%2Fetc/passwd", b"/etc/passwd"),
            ("a//b/", b"a//b/"),
            ("a+b%20c%0A%ff%3F", b"a+b c\n\xff?"),
            ("files/x/files/y", b"files/x/files/y"),
        ] {
            assert_eq!(path(text).as_bytes(), expected);
        }
    }

    #[test]
    fn a_path_that_is_none_is_refused() {
        let refused = |text: &str| FilePath::read(&uri(&format!("/v1/sessions/s/files{text}"))).unwrap_err().0.message;
        assert!(refused("").contains("empty"));
        assert!(refused("/").contains("empty"));
        assert!(refused("/a%00b").contains("NUL"));
        assert!(refused("/a%zz").contains('%'));
    }

    #[test]
    fn ids_stand_where_they_stand() {
        let reset = uri("/v1/sessions/7183cb80-d6c/shells/main/reset");
        assert_eq!(SessionPath::read(&reset).unwrap().as_str(), "7183cb80-d6c");
        assert_eq!(ShellPath::read(&reset).unwrap().as_str(), "main");
        assert!(SessionPath::read(&uri("/v1/sessions")).is_err());
        assert!(ExecPath::read(&uri("/v1/sessions/s/execs/a%2Fb")).is_err());
        let place = |text: &str| PlacePath::read(&uri(text)).unwrap();
        let workspace = |owner: Option<&str>| {
            let owner = owner.map(|owner| KeyName::new(owner).unwrap());
            Place::Workspace(WorkspaceAddress { owner, id: WorkspaceId::new("w").unwrap() })
        };
        assert_eq!(place("/v1/workspaces/w/fs"), workspace(None));
        for same in ["alice:w", "alice%3Aw", "alice%3aw"] {
            assert_eq!(place(&format!("/v1/workspaces/{same}/fs")), workspace(Some("alice")));
        }
        for wrong in [":w", "alice:", "a:b:c", "..:w", "alice:..", "alice%3A", "a%3Ab%3Ac"] {
            assert!(PlacePath::read(&uri(&format!("/v1/workspaces/{wrong}/fs"))).is_err(), "{wrong}");
        }
        assert_eq!(place("/v1/sessions/w/fs"), Place::Session(SessionId::new("w").unwrap()));
        assert_eq!(ImagePath::read(&uri("/v1/pools/a%2Fb%3Ac")).unwrap(), "a/b:c");
        assert!(ImagePath::read(&uri("/v1/pools/%ff")).is_err());
    }

    proptest! {
        #[test]
        fn every_absolute_path_survives_being_encoded(path in proptest::collection::vec(1u8.., 1..40)) {
            let encoded: String = path.iter().map(|byte| format!("%{byte:02X}")).collect();
            let read = FilePath::read(&uri(&format!("/v1/sessions/s/files/%2F{encoded}"))).unwrap();
            prop_assert_eq!(&read.as_bytes()[1..], path);
        }
    }
}

//! How a person names a session: by its id, by the name that it was created with, or by the first letters of its id.

use std::str::FromStr;

use shared_protocol::SessionId;
use shared_protocol::api::SessionView;
use shared_protocol::id::InvalidId;

use super::exit::Failure;
use crate::client::Client;

/// The most candidates that an error lists.
const MAX_SHOWN: usize = 10;

/// A session as somebody has named it. It is not known whether there is such a session. Ids and names are made of the same letters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionRef(SessionId);

impl FromStr for SessionRef {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        SessionId::new(text).map(Self)
    }
}

impl From<SessionId> for SessionRef {
    fn from(typed: SessionId) -> Self {
        Self(typed)
    }
}

impl SessionRef {
    /// The session that is meant.
    pub async fn find(&self, client: &Client) -> Result<SessionId, Failure> {
        let text = self.0.as_str();
        self.find_if_any(client).await?.ok_or_else(|| {
            Failure::failed(format!(
                "no session has the name {text} or an id that begins with it; `cove ps` lists the sessions"
            ))
        })
    }

    /// The same as `find`, and `None` if there is no such session. A whole id is not looked up: the daemon's answer to the call itself
    /// says whether it exists.
    pub async fn find_if_any(&self, client: &Client) -> Result<Option<SessionId>, Failure> {
        let text = self.0.as_str();
        if SessionId::is_made_form(text) {
            return Ok(Some(self.0.clone()));
        }
        let named = client.sessions_named(text).await?;
        if !named.is_empty() {
            return only(text, "name", &named).map(Some);
        }
        let all = if could_begin_an_id(text) { client.sessions(None, &[]).await? } else { Vec::new() };
        let begin: Vec<SessionView> = all.into_iter().filter(|session| session.id.as_str().starts_with(text)).collect();
        if begin.is_empty() { Ok(None) } else { only(text, "beginning of an id", &begin).map(Some) }
    }

    /// The sessions that are meant, all of them or none.
    pub async fn find_all(all: &[Self], client: &Client) -> Result<Vec<SessionId>, Failure> {
        let mut found = Vec::with_capacity(all.len());
        for session in all {
            found.push(session.find(client).await?);
        }
        Ok(found)
    }
}

impl std::fmt::Display for SessionRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

fn could_begin_an_id(text: &str) -> bool {
    text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f' | b'-'))
}

/// The only session of a list; otherwise an error that lists them.
fn only(text: &str, what: &str, sessions: &[SessionView]) -> Result<SessionId, Failure> {
    if let [session] = sessions {
        return Ok(session.id.clone());
    }
    let described = |session: &SessionView| match (&session.name, what) {
        (Some(name), "name") => format!("{} ({name} of {})", session.id, session.owner),
        (Some(name), _) => format!("{} ({name})", session.id),
        (None, _) => session.id.to_string(),
    };
    let mut shown: Vec<String> = sessions.iter().take(MAX_SHOWN).map(described).collect();
    if sessions.len() > MAX_SHOWN {
        shown.push(format!("and {} more", sessions.len() - MAX_SHOWN));
    }
    Err(Failure::usage(format!("{text} is the {what} of {} sessions: {}", sessions.len(), shown.join(", "))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(id: &str, name: Option<&str>) -> SessionView {
        let text = format!(
            r#"{{"id":"{id}","image":"python","runtime":"local","status":"running","cwd":"/","labels":{{}},
            "resources":{{"cpus":1.0,"memory_mb":1,"pids":1,"disk_mb":1}},"network":"none","writable_root":true,
            "acquire_source":"cold","created_at":"","expires_at":"","last_activity":""}}"#
        );
        let view: SessionView = serde_json::from_str(&text).unwrap();
        SessionView { name: name.map(|name| shared_protocol::SessionName::new(name).unwrap()), ..view }
    }

    #[test]
    fn a_beginning_that_several_ids_have_is_refused_with_all_of_them() {
        let (one, other) = (session("7183cb80-d6c", None), session("71000000-000", Some("web")));
        assert_eq!(only("718", "beginning of an id", std::slice::from_ref(&one)), Ok(one.id.clone()));
        let refused = only("71", "beginning of an id", &[one.clone(), other]).unwrap_err();
        let expected = "71 is the beginning of an id of 2 sessions: 7183cb80-d6c, 71000000-000 (web)";
        assert_eq!(refused, Failure::usage(expected));
        let many = vec![one; MAX_SHOWN + 2];
        assert!(format!("{:?}", only("7", "beginning of an id", &many)).contains("and 2 more"));
    }

    #[test]
    fn a_reference_is_checked_as_names_are() {
        for bad in ["", "a b", "-x", "a/b"] {
            assert!(bad.parse::<SessionRef>().is_err(), "{bad:?}");
        }
        assert!(could_begin_an_id("718") && could_begin_an_id("7183cb80-d") && !could_begin_an_id("web"));
    }
}

//! One line of the audit log: who asked for which change, when, and how it was answered. Pure.
//!
//! A record is made from the address, the method and the status of a request. It has no access to bodies, queries and
//! headers, so it cannot contain a command, output, a file's content or path, or a secret.

use serde::Serialize;
use serde_json::{Map, Value};

/// The longest line. Every part of a record is bounded, so a record with its ids fits; one that did not would lose them.
pub const MAX_LINE_BYTES: usize = 4096;
/// The most characters of one id.
const MAX_ID_CHARS: usize = 128;
/// The most ids. No route has more.
const MAX_IDS: usize = 4;

/// A request that changes something, with its answer.
#[derive(Debug, Clone, Serialize)]
pub struct AuditRecord {
    /// When the answer began: RFC 3339 in UTC with milliseconds.
    pub time: String,
    pub request_id: String,
    /// The name of the key.
    pub caller: String,
    pub role: &'static str,
    /// Where the request came from: an address, or `uid:N` for the Unix socket.
    pub remote: String,
    pub method: String,
    /// The route with names in place of ids, such as `/v1/sessions/{session_id}/exec`.
    pub route: String,
    /// What the route's names stand for, and the id of what was created.
    pub ids: Map<String, Value>,
    pub status: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_code: Option<String>,
}

impl AuditRecord {
    /// The record as one line with its end.
    pub fn line(&self) -> Vec<u8> {
        let mut line = serde_json::to_vec(self).unwrap_or_default();
        if line.len() >= MAX_LINE_BYTES {
            line = serde_json::to_vec(&Self { ids: Map::new(), ..self.clone() }).unwrap_or_default();
        }
        line.push(b'\n');
        line
    }
}

/// The ids in a path: what stands where the route has `{name}`. The path of a file (`{*path}`) is left out.
pub fn ids_in(route: &str, path: &str) -> Map<String, Value> {
    let named = route.split('/').zip(path.split('/')).filter_map(|(name, given)| {
        let name = name.strip_prefix('{')?.strip_suffix('}')?;
        (!name.starts_with('*')).then(|| (name.to_owned(), Value::String(bounded(given))))
    });
    named.take(MAX_IDS).collect()
}

/// The start of a text that a client chose.
pub fn bounded(text: &str) -> String {
    text.chars().take(MAX_ID_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ROUTES: [&str; 4] = [
        "/v1/sessions/{session_id}/execs/{exec_id}",
        "/v1/sessions/{session_id}/files/{*path}",
        "/v1/pools/{image}",
        "/v1/sessions",
    ];

    #[test]
    fn ids_are_named_as_in_the_route_and_files_are_left_out() {
        let ids = |route: &str, path: &str| Value::Object(ids_in(route, path)).to_string();
        assert_eq!(ids(ROUTES[0], "/v1/sessions/s1/execs/e1"), r#"{"exec_id":"e1","session_id":"s1"}"#);
        assert_eq!(ids(ROUTES[1], "/v1/sessions/s1/files/home/secret"), r#"{"session_id":"s1"}"#);
        assert_eq!(ids(ROUTES[3], "/v1/sessions"), "{}");
    }

    proptest! {
        #[test]
        fn a_record_is_one_line_of_json_within_its_bound(
            route in 0usize..4,
            path in "\\PC{0,3000}",
            ids in proptest::collection::vec("[^/]{0,900}", 2),
        ) {
            let path = if path.is_empty() { format!("/v1/sessions/{}/execs/{}", ids[0], ids[1]) } else { path };
            let record = AuditRecord {
                time: "2026-01-02T03:04:05.678Z".into(),
                request_id: "x".repeat(64),
                caller: "k".repeat(64),
                role: "admin",
                remote: "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff".into(),
                method: "OPTIONS".into(),
                route: ROUTES[route].into(),
                ids: ids_in(ROUTES[route], &path),
                status: 599,
                error_code: Some("WORKSPACE_NOT_FOUND".into()),
            };
            let line = record.line();
            prop_assert!(line.len() <= MAX_LINE_BYTES, "{}", line.len());
            prop_assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
            let read: Value = serde_json::from_slice(&line).unwrap();
            prop_assert_eq!(&read["caller"], &Value::String("k".repeat(64)));
        }
    }
}

//! Reads the query parameters of a request. A `+` is a space, because client libraries encode it that way.

use hyper::Uri;
use shared_protocol::query::{Grammar, Plus, Query, QueryError, Repeats};

/// Parses the parameters of a request. Each may occur once, and its name must be in `known`.
pub fn query(uri: &Uri, known: &[&'static str]) -> Result<Query, QueryError> {
    parse(uri, known, Repeats::Refused)
}

/// The same as `query`, for a call whose parameters may repeat.
pub fn repeated_query(uri: &Uri, known: &[&'static str]) -> Result<Query, QueryError> {
    parse(uri, known, Repeats::Allowed)
}

fn parse(uri: &Uri, known: &[&'static str], repeats: Repeats) -> Result<Query, QueryError> {
    Query::parse(uri.query().unwrap_or_default(), Grammar { known, plus: Plus::Space, repeats })
}

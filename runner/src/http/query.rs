//! Parses the query of a request, as the daemon writes it: each parameter once, and a `+` is a plus.

use shared_protocol::query::{Grammar, Plus, Query, QueryError, Repeats};

/// Parses a query. Only the names in `known` are allowed.
pub fn parse(query: Option<&str>, known: &[&'static str]) -> Result<Query, QueryError> {
    let grammar = Grammar { known, plus: Plus::Plus, repeats: Repeats::Refused };
    Query::parse(query.unwrap_or_default(), grammar)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plus_is_a_plus_and_nothing_is_given_twice() {
        assert_eq!(parse(Some("path=a+b%20c"), &["path"]).unwrap().path("path").unwrap(), b"a+b c");
        assert_eq!(parse(Some("path=a&path=b"), &["path"]), Err(QueryError::Repeated("path".into())));
        assert!(parse(None, &[]).unwrap().pairs().next().is_none());
    }
}

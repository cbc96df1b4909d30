//! The `timeout_ms` of a request: absent, a number and `null` mean three things.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The time limit that a request asks for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TimeLimit {
    /// None was asked for: the field is absent, or 0.
    #[default]
    Unset,
    /// No limit: the field is `null`.
    Unlimited,
    /// This many milliseconds, at least 1.
    Milliseconds(u64),
}

impl TimeLimit {
    pub(super) fn is_unset(&self) -> bool {
        *self == Self::Unset
    }
}

impl Serialize for TimeLimit {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Unset => serializer.serialize_u64(0),
            Self::Unlimited => serializer.serialize_none(),
            Self::Milliseconds(milliseconds) => serializer.serialize_u64(*milliseconds),
        }
    }
}

impl<'de> Deserialize<'de> for TimeLimit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(match Option::<u64>::deserialize(deserializer)? {
            None => Self::Unlimited,
            Some(0) => Self::Unset,
            Some(milliseconds) => Self::Milliseconds(milliseconds),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ApiExecRequest, ApiRunRequest};
    use super::*;

    #[test]
    fn absent_and_zero_ask_for_nothing_and_null_asks_for_no_limit() {
        for (text, limit) in [
            ("", TimeLimit::Unset),
            (r#","timeout_ms":0"#, TimeLimit::Unset),
            (r#","timeout_ms":null"#, TimeLimit::Unlimited),
            (r#","timeout_ms":7"#, TimeLimit::Milliseconds(7)),
        ] {
            let exec: ApiExecRequest = serde_json::from_str(&format!(r#"{{"cmd":"true"{text}}}"#)).unwrap();
            let run: ApiRunRequest = serde_json::from_str(&format!(r#"{{"argv":["true"]{text}}}"#)).unwrap();
            assert_eq!((exec.timeout_ms, run.timeout_ms), (limit, limit), "{text}");
            let again: ApiExecRequest = serde_json::from_slice(&serde_json::to_vec(&exec).unwrap()).unwrap();
            assert_eq!(again, exec);
        }
        for bad in ["-1", "1.5", "\"1\"", "18446744073709551616", "true"] {
            assert!(serde_json::from_str::<TimeLimit>(bad).is_err(), "{bad}");
        }
    }
}

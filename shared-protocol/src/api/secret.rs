//! Secrets: values that the daemon adds to requests of sandboxes, and that no answer contains.

use std::fmt;

use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize};

use crate::{KeyName, SecretName};

/// A secret to store, or to replace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SetSecretRequest {
    /// The value: what a header can carry, at most 8,192 bytes. No answer contains it.
    pub value: SecretText,
    /// The hosts that the secret may be sent to, each a name. With none, every host.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
}

/// A secret, without its value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct SecretView {
    /// The name of the secret.
    pub name: SecretName,
    /// The key that the secret belongs to.
    pub owner: KeyName,
    /// The hosts that the secret may be sent to; empty means every host.
    pub hosts: Vec<String>,
    /// When the value was set: RFC 3339 in UTC with milliseconds.
    pub updated_at: String,
}

/// The secrets of a caller; for an admin, those of everybody.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct SecretList {
    /// The secrets, by owner and name.
    pub secrets: Vec<SecretView>,
}

/// The text of a secret. It does not show in logs, and an error about a wrong value does not repeat it.
#[derive(Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct SecretText(pub String);

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretText(…)")
    }
}

impl<'de> Deserialize<'de> for SecretText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextOnly)
    }
}

/// Reads a text. Serde's own errors repeat what is there instead of a text, which may be a secret all the same.
struct TextOnly;

const NO_TEXT: &str = "value must be a text";

impl<'de> Visitor<'de> for TextOnly {
    type Value = SecretText;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a text")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<SecretText, E> {
        Ok(SecretText(text.to_owned()))
    }

    fn visit_string<E: de::Error>(self, text: String) -> Result<SecretText, E> {
        Ok(SecretText(text))
    }

    fn visit_bool<E: de::Error>(self, _: bool) -> Result<SecretText, E> {
        Err(E::custom(NO_TEXT))
    }

    fn visit_i64<E: de::Error>(self, _: i64) -> Result<SecretText, E> {
        Err(E::custom(NO_TEXT))
    }

    fn visit_u64<E: de::Error>(self, _: u64) -> Result<SecretText, E> {
        Err(E::custom(NO_TEXT))
    }

    fn visit_f64<E: de::Error>(self, _: f64) -> Result<SecretText, E> {
        Err(E::custom(NO_TEXT))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_value_is_not_repeated_by_its_error() {
        for json in [r#"{"value":4711}"#, r#"{"value":-4711}"#, r#"{"value":4711.5}"#, r#"{"value":["4711"]}"#] {
            let error = serde_json::from_str::<SetSecretRequest>(json).unwrap_err().to_string();
            assert!(!error.contains("4711") && error.contains("text"), "{error}");
        }
        let request: SetSecretRequest = serde_json::from_str(r#"{"value":"4711"}"#).unwrap();
        assert_eq!(request.value, SecretText("4711".into()));
        assert!(!format!("{request:?}").contains("4711"));
    }
}

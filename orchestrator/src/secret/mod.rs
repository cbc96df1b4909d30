//! Secrets: values that the daemon adds to requests of sandboxes. They are in memory and in one file each, and nobody is shown them
//! again.
//!
//! ```text
//!  set ──▶ file (atomic) ──▶ memory          from then on, the next request gets the new value
//!  remove ──▶ memory ──▶ file                 the secret is not used before the disk has answered
//!  get(owner, name) ──▶ memory
//! ```
//!
//! A secret belongs to the key that set it, and sessions of that key alone can use it. The files are `secrets/OWNER/NAME.json` in the data
//! directory, readable by the daemon's user alone.

mod file;
mod table;

use std::fmt;
use std::time::SystemTime;

use network_policy::HostName;
use shared_protocol::{KeyName, SecretName};
use zeroize::Zeroizing;

pub use table::{MAX_SECRETS, SecretTable};

/// The longest value: servers refuse longer headers.
pub const MAX_VALUE_BYTES: usize = 8192;
/// The most hosts that one secret names.
pub const MAX_HOSTS: usize = 64;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    /// The request is wrong. The message does not contain the value.
    #[error("{0}")]
    Invalid(String),
    #[error("no secret {0}")]
    NotFound(SecretName),
    #[error("there are {MAX_SECRETS} secrets already; remove one first")]
    Full,
    /// The secret is not used from now on, but a restart of the daemon would bring it back.
    #[error("the secret {name} is not used from now on, but its file is still there ({cause}): remove it again")]
    StillStored { name: SecretName, cause: String },
    /// The host failed.
    #[error("the secret could not be stored: {0}")]
    Failed(String),
}

/// The value of a secret, which is overwritten in memory when nobody needs it any more.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretValue(Zeroizing<String>);

impl SecretValue {
    /// Takes a text that a header can carry. An error does not repeat it.
    pub fn new(text: String) -> Result<Self, SecretError> {
        let text = Zeroizing::new(text);
        let is_plain = text.bytes().all(|byte| (0x20..=0x7e).contains(&byte));
        if text.is_empty() || text.len() > MAX_VALUE_BYTES || !is_plain || text.trim() != *text {
            return Err(SecretError::Invalid(format!(
                "the value of a secret has 1 to {MAX_VALUE_BYTES} characters of plain ASCII, with no line break and no space at its ends"
            )));
        }
        Ok(Self(text))
    }

    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretValue(…)")
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Secret {
    pub value: SecretValue,
    /// The hosts that it may be sent to. Empty: every host.
    pub hosts: Vec<HostName>,
    pub updated_at: SystemTime,
}

impl Secret {
    pub fn may_be_sent_to(&self, host: &HostName) -> bool {
        self.hosts.is_empty() || self.hosts.contains(host)
    }
}

/// A secret without its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretFacts {
    pub owner: KeyName,
    pub name: SecretName,
    pub hosts: Vec<HostName>,
    pub updated_at: SystemTime,
}

/// Reads the hosts that a secret may be sent to.
pub fn read_hosts(texts: &[String]) -> Result<Vec<HostName>, SecretError> {
    if texts.len() > MAX_HOSTS {
        return Err(SecretError::Invalid(format!("a secret names at most {MAX_HOSTS} hosts")));
    }
    let read = |text: &String| {
        HostName::parse(text).map_err(|error| {
            let shown: String = text.chars().take(100).collect();
            SecretError::Invalid(format!("host {shown:?}: {error}; write a name without a port or a wildcard"))
        })
    };
    let mut hosts = texts.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    hosts.sort();
    hosts.dedup();
    Ok(hosts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_value_is_what_a_header_can_carry_and_does_not_show() {
        for bad in ["", " x", "x ", "a\nb", "a\rb", "a\0b", "ä", "a\tb"] {
            let error = SecretValue::new(bad.into()).unwrap_err().to_string();
            assert!(error.contains("plain ASCII"), "{bad:?}: {error}");
        }
        assert!(SecretValue::new("x".repeat(MAX_VALUE_BYTES + 1)).is_err());
        let value = SecretValue::new("hunter2 with a space".into()).unwrap();
        assert_eq!(format!("{value:?}"), "SecretValue(…)");
    }

    #[test]
    fn a_secret_with_hosts_goes_to_these_alone() {
        let host = |text: &str| HostName::parse(text).unwrap();
        let value = SecretValue::new("x".into()).unwrap();
        let hosts = read_hosts(&["API.example.com".into(), "api.example.com.".into()]).unwrap();
        assert_eq!(hosts, [host("api.example.com")]);
        let bound = Secret { value, hosts, updated_at: SystemTime::UNIX_EPOCH };
        assert!(bound.may_be_sent_to(&host("api.example.com")));
        assert!(!bound.may_be_sent_to(&host("evil.example.com")) && !bound.may_be_sent_to(&host("x.api.example.com")));
        let free = Secret { hosts: Vec::new(), ..bound };
        assert!(free.may_be_sent_to(&host("evil.example.com")));
        for bad in ["*.example.com", "10.0.0.1", "example.com:443", "https://example.com", ""] {
            assert!(read_hosts(&[bad.into()]).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn an_error_never_repeats_the_value(text in "[a-z]{12,20}\n[a-z]{12,20}") {
            let error = SecretValue::new(text.clone()).unwrap_err().to_string();
            prop_assert!(!error.contains(&text[..12]));
        }
    }
}

//! `HostName`, a DNS name in canonical form: equal names are equal strings.
//!
//! It refuses everything that a resolver could take for an address (`127.1`, `0x7f.1`, `2130706433`), because rules about
//! addresses would not see it.

use std::fmt;

use idna::uts46::{AsciiDenyList, DnsLength, Hyphens, Uts46};

/// The longest name in DNS, without its trailing dot.
pub const MAX_NAME_BYTES: usize = 253;
const MAX_LABEL_BYTES: usize = 63;
/// The longest text that is looked at. Unicode text is longer than the ASCII name that it stands for.
const MAX_TEXT_BYTES: usize = 4 * MAX_NAME_BYTES;

/// A DNS name: lower-case ASCII without a trailing dot. Unicode labels are in their ASCII form (`xn--…`).
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostName(String);

/// Text that is not a host name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    #[error("the host name is empty")]
    Empty,
    #[error("the host name is longer than {MAX_NAME_BYTES} bytes")]
    TooLong,
    #[error("a host name consists of labels of 1 to {MAX_LABEL_BYTES} bytes, with a dot between them")]
    Label,
    #[error("{0:?} cannot be in a host name: use letters, digits, hyphens, underscores and dots")]
    Character(char),
    #[error("the host name is not a valid international name (IDNA)")]
    Unicode,
    #[error("a host name on the wire is ASCII: an international label begins with xn--")]
    NotAscii,
    #[error(
        "this looks like an address, not a host name: write an IPv4 address as 203.0.113.7, an IPv6 address as [2001:db8::1]"
    )]
    Address,
}

impl HostName {
    /// Reads a name that a person wrote, in ASCII or in Unicode.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        if text.len() > MAX_TEXT_BYTES {
            return Err(NameError::TooLong);
        }
        // The checks below must see what IDNA makes of the text: it turns `１２７。0。0。1` into `127.0.0.1`, and `％` into `%`.
        let ascii = Uts46::new()
            .to_ascii(text.as_bytes(), AsciiDenyList::EMPTY, Hyphens::Allow, DnsLength::Ignore)
            .map_err(|_| NameError::Unicode)?;
        let name = ascii.strip_suffix('.').unwrap_or(&ascii);
        check(name)?;
        Ok(Self(name.to_owned()))
    }

    /// Reads a name from the wire, such as a TLS server name. There a name is ASCII, and other bytes are refused: the server may
    /// not read them as IDNA does. A caller that reads a DNS question joins its labels with dots, and refuses a label that has a
    /// dot inside.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, NameError> {
        let text = str::from_utf8(bytes).ok().filter(|text| text.is_ascii()).ok_or(NameError::NotAscii)?;
        Self::parse(text)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether this name is below `parent`, at any depth. A name is not below itself.
    pub(crate) fn is_below(&self, parent: &HostName) -> bool {
        self.0.strip_suffix(parent.as_str()).is_some_and(|rest| rest.ends_with('.'))
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::str::FromStr for HostName {
    type Err = NameError;
    fn from_str(text: &str) -> Result<Self, NameError> {
        Self::parse(text)
    }
}

fn check(name: &str) -> Result<(), NameError> {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_' | '.');
    if name.is_empty() {
        return Err(NameError::Empty);
    }
    if name.contains([':', '[', ']']) {
        return Err(NameError::Address);
    }
    if let Some(character) = name.chars().find(|&c| !is_plain(c)) {
        return Err(NameError::Character(character));
    }
    if name.len() > MAX_NAME_BYTES {
        return Err(NameError::TooLong);
    }
    if name.split('.').any(|label| !(1..=MAX_LABEL_BYTES).contains(&label.len())) {
        return Err(NameError::Label);
    }
    if name.rsplit('.').next().is_some_and(is_number) {
        return Err(NameError::Address);
    }
    Ok(())
}

/// Whether `inet_aton` or a browser reads this last label as a number. No top-level domain is one.
fn is_number(label: &str) -> bool {
    match label.strip_prefix("0x") {
        Some(digits) => digits.bytes().all(|b| b.is_ascii_hexdigit()),
        None => label.bytes().all(|b| b.is_ascii_digit()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_a_name_is_the_same_name() {
        for (text, name) in [
            ("example.com", "example.com"),
            ("EXAMPLE.Com.", "example.com"),
            ("exa\u{ad}mple.com", "example.com"),
            ("ｅｘａｍｐｌｅ。com", "example.com"),
            ("Bücher.example", "xn--bcher-kva.example"),
            ("XN--BCHER-KVA.example", "xn--bcher-kva.example"),
            ("bu\u{308}cher.example", "xn--bcher-kva.example"),
            ("_dmarc.r3---sn-x.example", "_dmarc.r3---sn-x.example"),
            ("localhost", "localhost"),
            ("1.2.3.4.nip.io", "1.2.3.4.nip.io"),
            ("0x7f.0x7g", "0x7f.0x7g"),
        ] {
            assert_eq!(HostName::parse(text).map(|name| name.to_string()), Ok(name.to_owned()), "{text}");
        }
    }

    #[test]
    fn what_a_resolver_takes_for_an_address_is_not_a_name() {
        for text in [
            "127.0.0.1",
            "127.0.0.1.",
            "127.1",
            "2130706433",
            "0177.0.0.1",
            "0x7f.1",
            "0x7f000001",
            "0X7F000001",
            "127.0.0x1",
            "0x",
            "example.0x",
            "example.1",
            "１２７.0.0.１",
            "127。0。0。1",
            "①",
            "::1",
            "[::1]",
            "fe80::1%eth0",
            "example.com:80",
        ] {
            assert_eq!(HostName::parse(text), Err(NameError::Address), "{text}");
        }
    }

    #[test]
    fn what_is_not_a_name_is_refused() {
        let long = format!("{}com", "a.".repeat(126));
        for (text, error) in [
            ("", NameError::Empty),
            (".", NameError::Empty),
            ("..", NameError::Label),
            ("example.com..", NameError::Label),
            (".example.com", NameError::Label),
            ("a..b", NameError::Label),
            ("example.com\0", NameError::Character('\0')),
            ("example.com\n", NameError::Character('\n')),
            ("example .com", NameError::Character(' ')),
            ("example%2ecom", NameError::Character('%')),
            ("％.com", NameError::Character('%')),
            ("a/b", NameError::Character('/')),
            ("℀.com", NameError::Character('/')),
            ("user@example.com", NameError::Character('@')),
            ("*.example.com", NameError::Character('*')),
            ("xn--a", NameError::Unicode),
            (long.as_str(), NameError::TooLong),
            ("a".repeat(64).as_str(), NameError::Label),
        ] {
            assert_eq!(HostName::parse(text), Err(error), "{text:?}");
        }
        assert!(HostName::parse(&format!("{}.com", "a".repeat(63))).is_ok());
        assert!(HostName::parse(&long[2..]).is_ok());
    }

    #[test]
    fn a_name_on_the_wire_is_ascii() {
        assert_eq!(HostName::from_bytes(b"Example.COM."), HostName::parse("example.com"));
        assert_eq!(HostName::from_bytes(b"xn--bcher-kva.example"), HostName::parse("bücher.example"));
        for bytes in ["bücher.example".as_bytes(), "exa\u{ad}mple.com".as_bytes(), b"\xff.com"] {
            assert_eq!(HostName::from_bytes(bytes), Err(NameError::NotAscii));
        }
        assert_eq!(HostName::from_bytes(b"example.com\0.evil.com"), Err(NameError::Character('\0')));
    }
}

//! The name of an image at a registry: `[HOST[:PORT]/]PATH[:TAG][@DIGEST]`, with the defaults that Docker has. Pure.

use std::fmt;
use std::str::FromStr;

use crate::digest::Digest;

/// The registry of a name without a host, and the part of its path that a name without a slash gets.
pub const DEFAULT_HOST: &str = "docker.io";
const DEFAULT_NAMESPACE: &str = "library";
const DEFAULT_TAG: &str = "latest";

const MAX_BYTES: usize = 512;
const MAX_REPOSITORY_BYTES: usize = 255;
const MAX_TAG_BYTES: usize = 128;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reference {
    /// The registry, with its port where the name has one.
    pub host: String,
    pub repository: String,
    /// `None` only if there is a digest.
    pub tag: Option<String>,
    pub digest: Option<Digest>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not the name of an image: {1}")]
pub struct InvalidReference(String, &'static str);

impl Reference {
    /// What a registry is asked for: the digest if there is one, or the tag.
    pub fn version(&self) -> String {
        match (&self.digest, &self.tag) {
            (Some(digest), _) => digest.to_string(),
            (None, tag) => tag.clone().unwrap_or_else(|| DEFAULT_TAG.to_owned()),
        }
    }

    /// The name as people write it: without the default registry.
    pub fn short(&self) -> String {
        let whole = self.to_string();
        let rest = whole.strip_prefix(&format!("{DEFAULT_HOST}/")).unwrap_or(&whole);
        rest.strip_prefix(&format!("{DEFAULT_NAMESPACE}/")).unwrap_or(rest).to_owned()
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.host, self.repository)?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        match &self.digest {
            Some(digest) => write!(f, "@{digest}"),
            None => Ok(()),
        }
    }
}

impl FromStr for Reference {
    type Err = InvalidReference;

    fn from_str(text: &str) -> Result<Self, InvalidReference> {
        let refuse = |why| InvalidReference(text.chars().take(MAX_BYTES).collect(), why);
        if text.len() > MAX_BYTES {
            return Err(refuse("it is too long"));
        }
        let (name, digest) = match text.split_once('@') {
            Some((name, digest)) => {
                let digest = digest.parse().map_err(|_| refuse("after @ comes sha256: and 64 hexadecimal digits"))?;
                (name, Some(digest))
            }
            None => (text, None),
        };
        let (host, path) = match name.split_once('/') {
            Some((first, rest)) if first.contains(['.', ':']) || first == "localhost" => (first, rest),
            _ => (DEFAULT_HOST, name),
        };
        // A colon before a slash belongs to the host, which is gone here.
        let (repository, tag) = match path.rsplit_once(':') {
            Some((repository, tag)) => (repository, Some(tag)),
            None => (path, None),
        };
        if !is_host(host) {
            return Err(refuse("before the first slash comes HOST or HOST:PORT"));
        }
        if repository.bytes().any(|byte| byte.is_ascii_uppercase()) {
            return Err(refuse("the path must be in lower case"));
        }
        if !is_repository(repository) {
            return Err(refuse(
                "the path consists of a-z 0-9 and single . _ - between them, in parts with a slash between",
            ));
        }
        if tag.is_some_and(|tag| !is_tag(tag)) {
            return Err(refuse("a tag consists of 1 to 128 of A-Z a-z 0-9 . _ - and begins with none of . and -"));
        }
        let is_official = host == DEFAULT_HOST && !repository.contains('/');
        let repository = if is_official { format!("{DEFAULT_NAMESPACE}/{repository}") } else { repository.to_owned() };
        let tag = tag.or_else(|| digest.is_none().then_some(DEFAULT_TAG)).map(str::to_owned);
        Ok(Self { host: host.to_ascii_lowercase(), repository, tag, digest })
    }
}

/// Whether this is `HOST` or `HOST:PORT`. An IPv6 address stands in brackets.
pub fn is_host(text: &str) -> bool {
    let (name, port) = match (text.strip_prefix('['), text.rsplit_once(':')) {
        (Some(rest), _) => match rest.split_once(']') {
            Some((address, port)) if address.parse::<std::net::Ipv6Addr>().is_ok() => ("v6", port.strip_prefix(':')),
            _ => return false,
        },
        (None, Some((name, port))) => (name, Some(port)),
        (None, None) => (text, None),
    };
    let is_port = |port: &str| port.parse::<u16>().is_ok_and(|port| port > 0);
    let is_label = |label: &str| {
        !label.is_empty()
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    name.len() <= 253 && name.split('.').all(is_label) && port.is_none_or(is_port)
}

fn is_repository(text: &str) -> bool {
    let is_part = |part: &str| {
        let is_sign = |c: char| matches!(c, '.' | '_' | '-');
        let is_run = |run: &str| matches!(run, "" | "." | "_" | "__") || run.bytes().all(|byte| byte == b'-');
        part.starts_with(|c: char| c.is_ascii_alphanumeric())
            && part.ends_with(|c: char| c.is_ascii_alphanumeric())
            && part.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || is_sign(c))
            && part.split(|c: char| !is_sign(c)).all(is_run)
    };
    !text.is_empty() && text.len() <= MAX_REPOSITORY_BYTES && text.split('/').all(is_part)
}

fn is_tag(text: &str) -> bool {
    (1..=MAX_TAG_BYTES).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
        && !text.starts_with(['.', '-'])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn whole(text: &str) -> String {
        text.parse::<Reference>().map_or_else(|error| error.to_string(), |reference| reference.to_string())
    }

    #[test]
    fn a_name_has_the_defaults_that_docker_gives_it() {
        let digest = Digest::of(b"");
        for (given, expected) in [
            ("python", "docker.io/library/python:latest".to_owned()),
            ("python:3.12-slim", "docker.io/library/python:3.12-slim".into()),
            ("someone/tool", "docker.io/someone/tool:latest".into()),
            ("localhost/x", "localhost/x:latest".into()),
            ("localhost:5000/x:1", "localhost:5000/x:1".into()),
            ("127.0.0.1:5000/a/b/c", "127.0.0.1:5000/a/b/c:latest".into()),
            ("Registry.Example.com/x", "registry.example.com/x:latest".into()),
            ("[::1]:5000/x", "[::1]:5000/x:latest".into()),
            (&format!("registry.example.com/x@{digest}"), format!("registry.example.com/x@{digest}")),
            (&format!("x:1@{digest}"), format!("docker.io/library/x:1@{digest}")),
        ] {
            assert_eq!(whole(given), expected, "{given}");
            assert_eq!(whole(&expected), expected, "the whole name means itself");
        }
    }

    #[test]
    fn the_short_name_means_the_same_image() {
        for (given, short) in
            [("python", "python:latest"), ("docker.io/a/b:1", "a/b:1"), ("h.example.com/a", "h.example.com/a:latest")]
        {
            let reference: Reference = given.parse().unwrap();
            assert_eq!(reference.short(), short);
            assert_eq!(short.parse::<Reference>().unwrap(), reference);
        }
    }

    #[test]
    fn what_is_no_name_is_refused_with_the_reason() {
        for (bad, why) in [
            ("", "the path"),
            ("Python", "lower case"),
            ("a//b", "the path"),
            ("a/../b", "the path"),
            ("-a", "the path"),
            ("a..b", "the path"),
            ("a:", "a tag"),
            ("a:.x", "a tag"),
            ("a:b:c", "the path"),
            ("a@sha256:00", "64"),
            ("h.example.com:99999/x", "HOST:PORT"),
            ("-h.example.com/x", "HOST"),
            ("h.example.com/", "the path"),
            ("a b", "the path"),
            ("a?b", "the path"),
            ("a%2f", "the path"),
        ] {
            assert!(whole(bad).contains(why), "{bad:?}: {}", whole(bad));
        }
        assert!(whole(&"a".repeat(600)).contains("too long"));
    }

    proptest! {
        #[test]
        fn a_reference_is_safe_in_an_address(text in "[a-zA-Z0-9./:@_%?# -]{0,40}") {
            if let Ok(reference) = text.parse::<Reference>() {
                let path = format!("/v2/{}/manifests/{}", reference.repository, reference.version());
                prop_assert!(path.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/:._-".contains(&byte)), "{path}");
                prop_assert!(!path.split('/').any(|part| part == ".." || part == "."));
                prop_assert!(is_host(&reference.host));
            }
        }
    }
}

//! What may be asked for: an injection in its checked form, and why another one is refused. Pure.

use hyper::header::HeaderName;
use network_policy::{HostName, Policy};
use rustls::pki_types::ServerName;
use shared_protocol::api::InjectionSpec;
use shared_protocol::{KeyName, SecretName};

use crate::secret::SecretTable;

/// The most injections of one session: each request looks at all of them.
const MAX_INJECTIONS: usize = 32;
/// The most bytes around the secret in the value of a header.
const MAX_FORMAT_BYTES: usize = 256;
/// The longest part of a wrong text that an error repeats.
const MAX_SHOWN: usize = 100;
const HTTPS_PORT: u16 = 443;
const SECRET: &str = "secret:";
const PLACE: &str = "{}";

/// Headers that say where a request goes, where it ends, or what becomes of its connection.
const REFUSED: [&str; 13] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "http2-settings",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InjectError {
    #[error("inject: {0}")]
    Invalid(String),
    #[error("inject: there is no secret {0}; `cove secret set {0}` stores one")]
    NoSecret(SecretName),
    #[error("inject: the secret {secret} may not be sent to {host}; it is for: {hosts}")]
    OtherHost { secret: SecretName, host: HostName, hosts: String },
    #[error("inject: the network of the session does not allow {rule}; add that rule to `allow`")]
    NotAllowed { rule: String },
}

/// A header for the requests to one host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Injection {
    pub host: HostName,
    pub port: u16,
    pub header: HeaderName,
    pub secret: SecretName,
    /// What stands before and after the secret.
    pub before: String,
    pub after: String,
    /// What was asked for.
    pub asked: InjectionSpec,
}

/// Reads injections, and checks that the session may have them: a session with this policy, whose owner has these secrets.
pub fn check(
    asked: &[InjectionSpec],
    policy: &Policy,
    secrets: &SecretTable,
    owner: &KeyName,
) -> Result<Vec<Injection>, InjectError> {
    let injections = read_all(asked)?;
    for injection in &injections {
        let Injection { host, port, secret: name, .. } = injection;
        if policy.may_dial_name(host, *port).is_err() {
            let rule = if *port == HTTPS_PORT { host.to_string() } else { format!("{host}:{port}") };
            return Err(InjectError::NotAllowed { rule });
        }
        let secret = secrets.get(owner, name).ok_or_else(|| InjectError::NoSecret(name.clone()))?;
        if !secret.may_be_sent_to(host) {
            let hosts = secret.hosts.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            return Err(InjectError::OtherHost { secret: name.clone(), host: host.clone(), hosts });
        }
    }
    Ok(injections)
}

/// Reads injections. Whether their secrets exist is not asked.
pub fn read_all(asked: &[InjectionSpec]) -> Result<Vec<Injection>, InjectError> {
    if asked.len() > MAX_INJECTIONS {
        return Err(InjectError::Invalid(format!("a session has at most {MAX_INJECTIONS} injections")));
    }
    let injections = asked.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    for (index, one) in injections.iter().enumerate() {
        let is_same =
            |other: &Injection| (&other.host, other.port, &other.header) == (&one.host, one.port, &one.header);
        if injections[..index].iter().any(is_same) {
            return Err(InjectError::Invalid(format!("{} has the header {} twice", one.host, one.header)));
        }
    }
    Ok(injections)
}

fn read(asked: &InjectionSpec) -> Result<Injection, InjectError> {
    let (host, port) = read_host(&asked.host)?;
    let header = HeaderName::from_bytes(asked.header.as_bytes())
        .map_err(|_| invalid(&asked.header, "this is not the name of a header"))?;
    if REFUSED.contains(&header.as_str()) {
        return Err(invalid(&asked.header, "this header belongs to the connection and cannot be injected"));
    }
    let name = asked.value_from.strip_prefix(SECRET);
    let name = name.ok_or_else(|| invalid(&asked.value_from, "write value_from as secret:NAME"))?;
    let secret = SecretName::new(name).map_err(|error| InjectError::Invalid(error.to_string()))?;
    let (before, after) = read_format(asked.format.as_deref().unwrap_or(PLACE))?;
    Ok(Injection { host, port, header, secret, before, after, asked: asked.clone() })
}

fn read_host(text: &str) -> Result<(HostName, u16), InjectError> {
    let (name, port) = match text.rsplit_once(':') {
        None => (text, HTTPS_PORT),
        Some((name, port)) => {
            let port = port.parse().ok().filter(|port| *port != 0);
            (name, port.ok_or_else(|| invalid(text, "the port is a number from 1 to 65535"))?)
        }
    };
    let why = "host must be one name, such as api.example.com, or a name with a port; no wildcard and no address";
    let host = HostName::parse(name).map_err(|_| invalid(text, why))?;
    // A certificate for it can be checked.
    match ServerName::try_from(host.as_str()) {
        Ok(ServerName::DnsName(_)) => Ok((host, port)),
        _ => Err(invalid(text, why)),
    }
}

fn read_format(text: &str) -> Result<(String, String), InjectError> {
    let is_plain = text.len() <= MAX_FORMAT_BYTES && text.bytes().all(|byte| (0x20..=0x7e).contains(&byte));
    let parts = text.split_once(PLACE).filter(|(_, after)| is_plain && !after.contains(PLACE));
    let is_trimmed = text.trim() == text;
    match parts.filter(|_| is_trimmed) {
        Some((before, after)) => Ok((before.to_owned(), after.to_owned())),
        None => {
            let why = "format is plain ASCII with one {} for the secret, such as \"Bearer {}\"";
            Err(invalid(text, why))
        }
    }
}

fn invalid(text: &str, why: &str) -> InjectError {
    let shown: String = text.chars().take(MAX_SHOWN).collect();
    InjectError::Invalid(format!("{shown:?}: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret::{SecretValue, read_hosts};
    use network_policy::{Rule, Side};
    use proptest::prelude::*;

    fn spec(host: &str, header: &str, value_from: &str, format: Option<&str>) -> InjectionSpec {
        InjectionSpec {
            host: host.into(),
            header: header.into(),
            value_from: value_from.into(),
            format: format.map(str::to_owned),
        }
    }

    fn policy(allow: &[&str], deny: &[&str]) -> Policy {
        let rules = |texts: &[&str], side| texts.iter().map(|text| Rule::parse(text, side).unwrap()).collect();
        Policy::new(rules(allow, Side::Allow), rules(deny, Side::Deny)).unwrap()
    }

    #[test]
    fn an_injection_is_read_into_its_parts() {
        let read = |host: &str, format| read(&spec(host, "Authorization", "secret:token", format)).unwrap();
        let plain = read("API.example.com", None);
        assert_eq!((plain.host.as_str(), plain.port, plain.header.as_str()), ("api.example.com", 443, "authorization"));
        assert_eq!((plain.before.as_str(), plain.after.as_str(), plain.secret.as_str()), ("", "", "token"));
        let formed = read("api.example.com:8443", Some("Bearer {}"));
        assert_eq!((formed.port, formed.before.as_str()), (8443, "Bearer "));
        assert_eq!(read("a.example.com", Some("Basic {}=")).after, "=");
    }

    #[test]
    fn what_cannot_be_injected_is_refused_with_what_to_write() {
        let good = spec("api.example.com", "X-Key", "secret:token", None);
        for (bad, word) in [
            (InjectionSpec { host: "*.example.com".into(), ..good.clone() }, "wildcard"),
            (InjectionSpec { host: "203.0.113.7".into(), ..good.clone() }, "address"),
            (InjectionSpec { host: "[2001:db8::1]:443".into(), ..good.clone() }, "address"),
            (InjectionSpec { host: "api.example.com:0".into(), ..good.clone() }, "port"),
            (InjectionSpec { host: "api.example.com:".into(), ..good.clone() }, "port"),
            (InjectionSpec { host: "https://api.example.com".into(), ..good.clone() }, "port"),
            (InjectionSpec { host: String::new(), ..good.clone() }, "host must be"),
            (InjectionSpec { header: "a b".into(), ..good.clone() }, "name of a header"),
            (InjectionSpec { header: "x\r\nHost".into(), ..good.clone() }, "name of a header"),
            (InjectionSpec { header: String::new(), ..good.clone() }, "name of a header"),
            (InjectionSpec { value_from: "token".into(), ..good.clone() }, "secret:NAME"),
            (InjectionSpec { value_from: "secret:".into(), ..good.clone() }, "secret name"),
            (InjectionSpec { value_from: "secret:../x".into(), ..good.clone() }, "secret name"),
            (InjectionSpec { format: Some("Bearer".into()), ..good.clone() }, "Bearer {}"),
            (InjectionSpec { format: Some("{} {}".into()), ..good.clone() }, "one {}"),
            (InjectionSpec { format: Some("{}\r\nX: y".into()), ..good.clone() }, "plain ASCII"),
            (InjectionSpec { format: Some(" {}".into()), ..good.clone() }, "plain ASCII"),
        ] {
            let error = read(&bad).expect_err(&format!("{bad:?}")).to_string();
            assert!(error.contains(word), "{bad:?}: {error}");
        }
        for header in REFUSED {
            for header in [header.to_owned(), header.to_uppercase()] {
                let error = read(&InjectionSpec { header, ..good.clone() }).unwrap_err().to_string();
                assert!(error.contains("cannot be injected"), "{error}");
            }
        }
        let twice = [good.clone(), InjectionSpec { header: "x-KEY".into(), ..good.clone() }];
        assert!(read_all(&twice).unwrap_err().to_string().contains("twice"));
        let other_port = InjectionSpec { host: "api.example.com:8443".into(), ..good.clone() };
        assert_eq!(read_all(&[good.clone(), other_port]).unwrap().len(), 2);
        assert!(read_all(&vec![good; MAX_INJECTIONS + 1]).unwrap_err().to_string().contains("at most"));
    }

    #[tokio::test]
    async fn the_policy_must_allow_the_host_and_the_secret_must_be_for_it() {
        let folder = tempfile::tempdir().unwrap();
        let secrets = SecretTable::open(folder.path()).unwrap();
        let (alice, bob) = (KeyName::new("alice").unwrap(), KeyName::new("bob").unwrap());
        let hosts = read_hosts(&["api.example.com".into()]).unwrap();
        let value = SecretValue::new("x".into()).unwrap();
        secrets.set(&alice, &SecretName::new("token").unwrap(), value, hosts).await.unwrap();
        let asked = [spec("api.example.com", "X-Key", "secret:token", None)];
        let checked = |policy: &Policy, owner, asked: &[InjectionSpec]| check(asked, policy, &secrets, owner);
        for allowed in [policy(&["api.example.com"], &[]), policy(&["*.example.com"], &[]), Policy::full()] {
            assert_eq!(checked(&allowed, &alice, &asked).unwrap().len(), 1);
        }
        for forbidden in [
            Policy::none(),
            policy(&["api.example.com:8443"], &[]),
            policy(&["*"], &["api.example.com"]),
            policy(&["203.0.113.0/24:443"], &[]),
        ] {
            let error = checked(&forbidden, &alice, &asked).unwrap_err();
            assert_eq!(error, InjectError::NotAllowed { rule: "api.example.com".into() });
        }
        assert!(matches!(checked(&Policy::full(), &bob, &asked), Err(InjectError::NoSecret(_))));
        let elsewhere = [spec("other.example.com", "X-Key", "secret:token", None)];
        let error = checked(&Policy::full(), &alice, &elsewhere).unwrap_err().to_string();
        assert!(error.contains("may not be sent to other.example.com") && error.contains("api.example.com"), "{error}");
    }

    proptest! {
        #[test]
        fn nothing_that_is_read_can_break_a_header(
            host in ".{0,40}", header in ".{0,20}", from in "(secret:)?.{0,20}", format in prop::option::of(".{0,10}(\\{\\})?.{0,10}"),
        ) {
            if let Ok(injection) = read(&spec(&host, &header, &from, format.as_deref())) {
                let value = format!("{}x{}", injection.before, injection.after);
                prop_assert!(hyper::header::HeaderValue::from_str(&value).is_ok());
                prop_assert!(!REFUSED.contains(&injection.header.as_str()));
                prop_assert!(injection.host.as_str().bytes().all(|byte| byte.is_ascii_graphic()));
            }
        }
    }
}

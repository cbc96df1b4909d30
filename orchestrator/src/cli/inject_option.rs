//! Reads what a person writes for an injected header: `HOST:HEADER=secret:NAME`, or `HOST:HEADER=Bearer secret:NAME`.

use shared_protocol::api::InjectionSpec;

const SECRET: &str = "secret:";
/// Written instead of an injection where none is wanted.
const NONE: &str = "none";

/// One `--inject` option.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InjectOption {
    /// None now: it prepares a session for later, or removes those that a session has.
    None,
    One(InjectionSpec),
}

/// Parses `api.example.com:Authorization=Bearer secret:token`, with a port after the host if that is not 443.
pub fn parse(text: &str) -> Result<InjectOption, String> {
    if text == NONE {
        return Ok(InjectOption::None);
    }
    let wrong = || "use HOST:HEADER=secret:NAME, or HOST:HEADER=Bearer secret:NAME".to_owned();
    let (target, value) = text.split_once('=').ok_or_else(wrong)?;
    let (host, header) = target.rsplit_once(':').ok_or_else(wrong)?;
    let (before, name) = value.split_once(SECRET).ok_or_else(wrong)?;
    if host.is_empty() || header.is_empty() || name.is_empty() {
        return Err(wrong());
    }
    let format = (!before.is_empty()).then(|| format!("{before}{{}}"));
    let value_from = format!("{SECRET}{name}");
    Ok(InjectOption::One(InjectionSpec { host: host.to_owned(), header: header.to_owned(), value_from, format }))
}

/// What all `--inject` options of a command mean. `None` if there is none.
pub fn all(options: &[InjectOption]) -> Option<Vec<InjectionSpec>> {
    let one = |option: &InjectOption| match option {
        InjectOption::None => None,
        InjectOption::One(injection) => Some(injection.clone()),
    };
    (!options.is_empty()).then(|| options.iter().filter_map(one).collect())
}

/// An injection as a person writes it.
pub fn shown(injection: &InjectionSpec) -> String {
    let InjectionSpec { host, header, value_from, format } = injection;
    let value = match format {
        Some(format) => format.replacen("{}", value_from, 1),
        None => value_from.clone(),
    };
    format!("{host}:{header}={value}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_injection_is_read_and_shown_in_the_same_form() {
        for (text, host, header, format) in [
            ("api.example.com:X-Key=secret:token", "api.example.com", "X-Key", None),
            ("api.example.com:8443:X-Key=secret:token", "api.example.com:8443", "X-Key", None),
            (
                "api.example.com:Authorization=Bearer secret:token",
                "api.example.com",
                "Authorization",
                Some("Bearer {}"),
            ),
        ] {
            let Ok(InjectOption::One(read)) = parse(text) else { panic!("{text}") };
            assert_eq!((read.host.as_str(), read.header.as_str(), read.format.as_deref()), (host, header, format));
            assert_eq!(read.value_from, "secret:token");
            assert_eq!(shown(&read), text);
        }
        assert_eq!(parse("none"), Ok(InjectOption::None));
        for bad in ["", "x", "host=secret:x", "host:=secret:x", ":h=secret:x", "host:h=x", "host:h=secret:"] {
            assert!(parse(bad).unwrap_err().contains("HOST:HEADER=secret:NAME"), "{bad}");
        }
        assert_eq!(all(&[]), None);
        assert_eq!(all(&[InjectOption::None]), Some(Vec::new()));
        assert_eq!(all(&[parse("a.example.com:X=secret:t").unwrap()]).unwrap().len(), 1);
    }
}

//! Reads what a person writes for a network: the name of a preset, rules with commas between them, or JSON.

use shared_protocol::api::{NetworkRule, NetworkRules, NetworkSpec};

/// Parses `packages`, `example.com,!ads.example.com` (with `!` before what is denied), or a JSON object with `allow` and `deny`.
pub fn parse(text: &str) -> Result<NetworkSpec, String> {
    if text.starts_with('{') {
        return serde_json::from_str(text).map_err(|error| error.to_string());
    }
    let is_name = |text: &str| {
        !text.is_empty() && text.chars().all(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_'))
    };
    if is_name(text) {
        return Ok(NetworkSpec::preset(text));
    }
    let mut rules = NetworkRules::default();
    for rule in text.split(',').map(str::trim) {
        let (list, rule) = match rule.strip_prefix('!') {
            Some(denied) => (&mut rules.deny, denied),
            None => (&mut rules.allow, rule),
        };
        if rule.is_empty() {
            return Err("use the name of a preset, or rules with commas between them".into());
        }
        list.push(NetworkRule::Text(rule.to_owned()));
    }
    Ok(NetworkSpec::Rules(rules))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_a_preset_and_everything_else_is_rules() {
        assert_eq!(parse("packages"), Ok(NetworkSpec::preset("packages")));
        assert_eq!(parse("our-mirrors"), Ok(NetworkSpec::preset("our-mirrors")));
        let rules = parse("example.com, *.example.com:8443,!ads.example.com").unwrap();
        let as_json = r#"{"allow":["example.com","*.example.com:8443"],"deny":["ads.example.com"]}"#;
        assert_eq!(serde_json::to_string(&rules).unwrap(), as_json);
        assert_eq!(parse(as_json), Ok(rules));
        assert_eq!(serde_json::to_string(&parse("*").unwrap()).unwrap(), r#"{"allow":["*"]}"#);
        for bad in ["", "a.example.com,", "!", "{\"alow\":[]}"] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
    }
}

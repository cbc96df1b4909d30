//! The registries of an `.npmrc` file: `registry=` and `@scope:registry=`. Tokens and all other lines are skipped.

/// The setting that a line makes, as `("registry", URL)` or `("@scope:registry", URL)`.
pub fn registries(text: &str, variables: &[(String, String)]) -> Vec<(String, String)> {
    let settings = text.lines().filter_map(|line| {
        let line = line.trim();
        let (name, value) = line.split_once('=')?;
        let name = name.trim().trim_matches('"');
        let is_wanted = is_registry(name) && !line.starts_with(['#', ';']);
        is_wanted.then(|| (name.to_owned(), expanded(value.trim().trim_matches(['"', '\'']), variables)))
    });
    settings.collect()
}

/// Whether a setting of npm, pnpm or Yarn names a registry. Names such as `//host/:_authToken` do not.
pub fn is_registry(name: &str) -> bool {
    name == "registry" || (name.starts_with('@') && name.ends_with(":registry"))
}

/// Puts variables in for `${NAME}`. One that is not set stays, and then the value is no URL.
fn expanded(value: &str, variables: &[(String, String)]) -> String {
    let mut text = String::new();
    let mut rest = value;
    while let Some((before, after)) = rest.split_once("${") {
        let Some((name, behind)) = after.split_once('}') else { break };
        text.push_str(before);
        match variables.iter().find(|(n, _)| n == name) {
            Some((_, value)) => text.push_str(value),
            None => text.push_str(&format!("${{{name}}}")),
        }
        rest = behind;
    }
    text + rest
}

//! What the fuzzer of the configuration asserts; see `fuzz/`. The test replays its inputs.

use super::*;

/// Any file gives a configuration or an error of one line that names the file; and settings that are given as variables mean
/// the same as in a file.
pub fn config(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let home = BTreeMap::from([("HOME".to_owned(), "/nowhere".to_owned())]);
    let file = match parse(Path::new("/nowhere/cove.toml"), text) {
        Ok(file) => file,
        Err(error) => return is_one_line_about_the_file(&error),
    };
    // That would read files of this host.
    if file.table.get("server").is_some_and(|server| server.get("api_key_file").is_some()) {
        return;
    }
    let variables = as_variables(&file.table);
    match (Config::of(Some(file), &ServeFlags::default(), home.clone()), variables) {
        (Err(error), _) => is_one_line_about_the_file(&error),
        (Ok(from_file), Some(mut variables)) => {
            variables.extend(home);
            let from_variables = Config::of(None, &ServeFlags::default(), variables).expect("the same settings");
            assert_eq!(format!("{from_variables:?}"), format!("{from_file:?}"));
        }
        (Ok(_), None) => {}
    }
}

fn is_one_line_about_the_file(error: &ConfigError) {
    let error = error.to_string();
    assert!(error.lines().count() == 1 && error.starts_with("/nowhere/cove.toml:"), "{error:?}");
}

/// The same settings as variables; `None` if one of them can only be in a file.
fn as_variables(table: &toml::Table) -> Option<BTreeMap<String, String>> {
    let mut variables = BTreeMap::new();
    for (section, value) in table {
        let settings = value.as_table().filter(|_| section != "images")?;
        for (name, value) in settings {
            let text = match value {
                toml::Value::String(text) if !text.is_empty() && !text.contains('\0') => text.clone(),
                toml::Value::Integer(number) => number.to_string(),
                toml::Value::Float(number) => number.to_string(),
                toml::Value::Boolean(flag) => flag.to_string(),
                _ => return None,
            };
            let is_plain = |name: &str| name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
            let key = Some(format!("COVE_{section}_{name}")).filter(|_| is_plain(section) && is_plain(name))?;
            variables.insert(key.to_ascii_uppercase(), text);
        }
    }
    Some(variables)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fuzzers_inputs_are_replayed() {
        corpus::replay("config", config);
    }
}

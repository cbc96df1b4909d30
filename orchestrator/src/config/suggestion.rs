//! "Did you mean": the setting that somebody probably meant by a name that is no setting.

use strsim::osa_distance;

/// One wrong letter is allowed for this many letters of the setting's name.
const LETTERS_PER_MISTAKE: usize = 3;

/// The known key that `given` probably means: the same name in another section, or else the key with the fewest mistakes, if
/// they are few. `known` are whole keys such as `server.listen`; in the sections `open` every name is a setting.
pub fn meant(given: &str, known: &[&str], open: &[&str]) -> Option<String> {
    let name = last_part(given);
    let same_name: Vec<&&str> = known.iter().filter(|key| last_part(key) == name).collect();
    if let [only] = same_name[..] {
        return Some((*only).to_owned());
    }
    let in_open_sections = open.iter().map(|section| format!("{section}.{name}"));
    let candidates = known.iter().map(|key| (*key).to_owned()).chain(in_open_sections);
    let most = (name.chars().count() / LETTERS_PER_MISTAKE).max(1);
    candidates
        .map(|key| (osa_distance(given, &key), key))
        .filter(|(mistakes, _)| *mistakes <= most)
        .min()
        .map(|(_, key)| key)
}

fn last_part(key: &str) -> &str {
    key.rsplit('.').next().unwrap_or(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [&str; 6] = [
        "data_dir",
        "server.listen",
        "server.idle_seconds",
        "sessions.max_sessions",
        "sessions.default_memory_mb",
        "sessions.max_memory_mb",
    ];

    #[test]
    fn a_slip_is_understood_and_another_word_is_not() {
        let meant = |given| meant(given, &KNOWN, &["images", "pool"]);
        for (given, key) in [
            ("server.listne", "server.listen"),
            ("sever.listen", "server.listen"),
            ("listen", "server.listen"),
            ("server.max_sessions", "sessions.max_sessions"),
            ("sessions.default_memory", "sessions.default_memory_mb"),
            ("data-dir", "data_dir"),
            ("image.python", "images.python"),
        ] {
            assert_eq!(meant(given).as_deref(), Some(key), "{given}");
        }
        for given in ["server.nope", "nonsense", "x", "", "zeppelin.python"] {
            assert_eq!(meant(given), None, "{given}");
        }
    }
}

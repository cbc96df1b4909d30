//! pip's settings: what `pip config list` prints, and, where pip is missing, its files.
//!
//! A setting stands under a section: `global`, a command as `install`, or `:env:` for variables. pip itself decides which file
//! wins, so its own answer is preferred.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::inquiry::Inquiry;

/// The section of variables. They override all files.
const ENV: &str = ":env:";

/// Values by section and name, as `("global", "index-url")`.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct PipConfig(BTreeMap<(String, String), String>);

impl PipConfig {
    /// Reads the lines `section.name='value'` of `pip config list`.
    pub fn from_list(text: &str) -> Self {
        let mut config = Self::default();
        for line in text.lines() {
            let Some((key, value)) = line.split_once('=') else { continue };
            if let Some((section, name)) = key.rsplit_once('.') {
                config.set(section, name, &unquoted(value.trim()));
            }
        }
        config
    }

    /// Reads pip's files and variables, the strongest last, as pip does.
    pub fn from_files(inquiry: &mut Inquiry<'_>) -> Self {
        let mut config = Self::default();
        for path in paths(inquiry) {
            if let Some(text) = inquiry.read(&path) {
                config.read_ini(&text);
            }
        }
        for (name, value) in inquiry.variables() {
            if let Some(name) = name.strip_prefix("PIP_").filter(|_| !value.is_empty()) {
                config.set(ENV, name, &value);
            }
        }
        config
    }

    fn read_ini(&mut self, text: &str) {
        let (mut section, mut name) = (String::new(), String::new());
        for line in text.lines() {
            let content = line.trim();
            if content.is_empty() || content.starts_with(['#', ';']) {
                continue;
            }
            if let Some(header) = content.strip_prefix('[').and_then(|c| c.strip_suffix(']')) {
                (section, name) = (header.trim().to_owned(), String::new());
            } else if line.starts_with([' ', '\t']) && !name.is_empty() {
                // The value goes on in an indented line.
                let key = (section.clone(), normal(&name));
                self.0.entry(key).and_modify(|value| *value = format!("{value}\n{content}"));
            } else if let Some((key, value)) = content.split_once(['=', ':']) {
                name = key.trim().to_owned();
                self.set(&section, &name, value.trim());
            }
        }
    }

    fn set(&mut self, section: &str, name: &str, value: &str) {
        self.0.insert((section.to_owned(), normal(name)), value.to_owned());
    }

    /// The values that are in effect, each with its section: those of variables, or else those of all sections, because
    /// `install` and `download` may differ. A value may be a list, separated by white space.
    pub fn values(&self, name: &str) -> Vec<(&str, &str)> {
        let all =
            || self.0.iter().filter(|((_, n), _)| n == name).map(|((section, _), value)| (section.as_str(), value));
        let is_overridden = all().any(|(section, _)| section == ENV);
        let in_effect = all().filter(|(section, _)| !is_overridden || *section == ENV);
        in_effect.flat_map(|(section, value)| value.split_whitespace().map(move |word| (section, word))).collect()
    }

    /// The values that `pip install` uses: those of variables, or else of its own section, or else of all commands.
    pub fn values_of_install(&self, name: &str) -> Vec<&str> {
        let of = |section: &str| self.0.get(&(section.to_owned(), name.to_owned()));
        let value = [ENV, "install", "global"].into_iter().find_map(of);
        value.into_iter().flat_map(|value| value.split_whitespace()).collect()
    }

    pub fn is_on(&self, name: &str) -> bool {
        self.values(name)
            .iter()
            .any(|(_, value)| matches!(value.to_ascii_lowercase().as_str(), "1" | "true" | "yes" | "on"))
    }
}

/// pip's files, the weakest first.
fn paths(inquiry: &Inquiry<'_>) -> Vec<PathBuf> {
    let named = inquiry.variable("PIP_CONFIG_FILE").map(PathBuf::from);
    if named.as_deref().is_some_and(|path| path == "/dev/null") {
        return Vec::new();
    }
    let directories = inquiry.variable("XDG_CONFIG_DIRS").unwrap_or_else(|| "/etc/xdg".to_owned());
    let mut paths: Vec<PathBuf> = directories.split(':').map(|d| PathBuf::from(d).join("pip/pip.conf")).collect();
    paths.push(PathBuf::from("/etc/pip.conf"));
    paths.push(inquiry.home(".pip/pip.conf"));
    paths.push(inquiry.user_config("pip/pip.conf"));
    paths.extend(named);
    paths
}

fn normal(name: &str) -> String {
    name.to_ascii_lowercase().replace('_', "-")
}

/// The text of a Python string literal.
fn unquoted(literal: &str) -> String {
    let inner = literal.strip_prefix(['\'', '"']).unwrap_or(literal);
    let inner = inner.strip_suffix(['\'', '"']).unwrap_or(inner);
    let mut text = String::new();
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        match (c, c == '\\') {
            (_, true) => match chars.next() {
                Some('n') => text.push('\n'),
                Some('t') => text.push('\t'),
                Some(other) => text.push(other),
                None => {}
            },
            (c, false) => text.push(c),
        }
    }
    text
}

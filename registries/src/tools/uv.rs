//! uv: its variables, its `uv.toml` files, and the built-in index that its help tells. uv does not read pip's settings.

use std::path::PathBuf;

use toml::{Table, Value};

use crate::detected::ProblemKind;
use crate::inquiry::{Answer, Inquiry};
use crate::source_url::SourceUrl;
use crate::tools::simple_index::follow_index;

/// Variables with lists of URLs. Those of the first group replace the default index.
const DEFAULT_VARIABLES: [&str; 2] = ["UV_DEFAULT_INDEX", "UV_INDEX_URL"];
const EXTRA_VARIABLES: [&str; 3] = ["UV_INDEX", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS"];

/// What uv's settings say.
#[derive(Default)]
struct Indexes {
    followed: Vec<SourceUrl>,
    has_default: bool,
    /// What sandboxes are told: the index that replaces the built-in one, and the others.
    default: Option<SourceUrl>,
    others: Vec<SourceUrl>,
}

impl Indexes {
    /// The first default wins.
    fn offer(&mut self, index: Option<&SourceUrl>, is_default: bool) {
        match index {
            Some(index) if !is_default => self.others.push(index.clone()),
            Some(index) if self.default.is_none() => self.default = Some(index.clone()),
            _ => {}
        }
    }
}

pub fn ask(inquiry: &mut Inquiry<'_>) {
    let mut indexes = Indexes::default();
    for name in DEFAULT_VARIABLES.into_iter().chain(EXTRA_VARIABLES) {
        let value = inquiry.variable(name).unwrap_or_default();
        for url in value.split_whitespace() {
            let is_default = DEFAULT_VARIABLES.contains(&name);
            // Links to files are a page of their own, not an index.
            let index = inquiry.add(without_name(url), name).filter(|_| name != "UV_FIND_LINKS");
            indexes.offer(index.as_ref(), is_default);
            indexes.followed.extend(index);
            indexes.has_default |= is_default;
        }
    }
    if inquiry.variable("UV_NO_CONFIG").is_none() {
        for path in paths(inquiry) {
            read_file(inquiry, &path, &mut indexes);
        }
    }
    inquiry.offer_urls("UV_DEFAULT_INDEX", indexes.default.take());
    inquiry.offer_urls("UV_INDEX", std::mem::take(&mut indexes.others));
    if !indexes.has_default {
        indexes.followed.extend(built_in(inquiry));
    }
    for index in indexes.followed {
        follow_index(inquiry, &index);
    }
}

/// uv's files: one by its variable, or else those of the user and the system, which are merged.
fn paths(inquiry: &Inquiry<'_>) -> Vec<PathBuf> {
    if let Some(path) = inquiry.variable("UV_CONFIG_FILE") {
        return vec![PathBuf::from(path)];
    }
    let directories = inquiry.variable("XDG_CONFIG_DIRS").unwrap_or_else(|| "/etc/xdg".to_owned());
    let system = directories.split(':').map(|d| PathBuf::from(d).join("uv/uv.toml"));
    [inquiry.user_config("uv/uv.toml")].into_iter().chain(system).chain([PathBuf::from("/etc/uv/uv.toml")]).collect()
}

fn read_file(inquiry: &mut Inquiry<'_>, path: &std::path::Path, indexes: &mut Indexes) {
    let Some(text) = inquiry.read(path) else { return };
    let Ok(table) = text.parse::<Table>() else {
        inquiry.problem(ProblemKind::Configuration, format!("{} is not TOML", path.display()));
        return;
    };
    let pip = table.get("pip").and_then(Value::as_table);
    for table in [Some(&table), pip].into_iter().flatten() {
        for name in ["index-url", "extra-index-url", "find-links"] {
            for url in texts(table.get(name)) {
                // A default of the user's file wins over the system's.
                if name == "index-url" && std::mem::replace(&mut indexes.has_default, true) {
                    continue;
                }
                let index = inquiry.add(url, &format!("uv.toml {name}")).filter(|_| name != "find-links");
                indexes.offer(index.as_ref(), name == "index-url");
                indexes.followed.extend(index);
            }
        }
        for index in table.get("index").and_then(Value::as_array).into_iter().flatten() {
            let is_default = index.get("default").and_then(Value::as_bool).unwrap_or(false);
            indexes.has_default |= is_default;
            for url in texts(index.get("url")) {
                let index = inquiry.add(url, "uv.toml index");
                indexes.offer(index.as_ref(), is_default);
                indexes.followed.extend(index);
            }
        }
    }
}

/// A text or a list of texts.
fn texts(value: Option<&Value>) -> Vec<&str> {
    match value {
        Some(Value::String(text)) => vec![text],
        Some(Value::Array(values)) => values.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

/// An index may be given as `name=URL`.
fn without_name(index: &str) -> &str {
    match index.split_once('=') {
        Some((name, url)) if !name.contains([':', '/']) => url,
        _ => index,
    }
}

/// The index that uv uses without any setting: `(by default: <URL>)` in its help.
fn built_in(inquiry: &mut Inquiry<'_>) -> Option<SourceUrl> {
    let help = match inquiry.ask("uv", &["pip", "install", "--help"]) {
        Answer::Text(help) => help,
        Answer::NotInstalled => {
            inquiry.not_installed();
            return None;
        }
        Answer::Failed => return None,
    };
    let words: Vec<&str> = help.split_whitespace().collect();
    let option = words.iter().position(|word| *word == "--default-index").unwrap_or_default();
    let url = words[option..].iter().find_map(|word| word.strip_prefix('<')?.split_once(">)").map(|(url, _)| url));
    match url.filter(|url| url.contains("://")) {
        Some(url) => {
            let version = match inquiry.ask("uv", &["--version"]) {
                Answer::Text(text) => text.split_whitespace().nth(1).unwrap_or_default().to_owned(),
                _ => String::new(),
            };
            inquiry.add(url, format!("built into uv {version}").trim_end())
        }
        None => {
            let message = "the help of `uv pip install` does not tell the built-in index".to_owned();
            inquiry.problem(ProblemKind::ToolFailed, message);
            None
        }
    }
}

#[cfg(test)]
#[path = "uv_test.rs"]
mod tests;

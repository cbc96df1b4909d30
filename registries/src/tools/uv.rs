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
}

pub fn ask(inquiry: &mut Inquiry<'_>) {
    let mut indexes = Indexes::default();
    for name in DEFAULT_VARIABLES.into_iter().chain(EXTRA_VARIABLES) {
        let value = inquiry.variable(name).unwrap_or_default();
        for url in value.split_whitespace() {
            let index = inquiry.add(without_name(url), name);
            // Links to files are a page of their own, not an index.
            indexes.followed.extend(index.filter(|_| name != "UV_FIND_LINKS"));
            indexes.has_default |= DEFAULT_VARIABLES.contains(&name);
        }
    }
    if inquiry.variable("UV_NO_CONFIG").is_none() {
        for path in paths(inquiry) {
            read_file(inquiry, &path, &mut indexes);
        }
    }
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
                let index = inquiry.add(url, &format!("uv.toml {name}"));
                indexes.followed.extend(index.filter(|_| name != "find-links"));
            }
        }
        for index in table.get("index").and_then(Value::as_array).into_iter().flatten() {
            indexes.has_default |= index.get("default").and_then(Value::as_bool).unwrap_or(false);
            for url in texts(index.get("url")) {
                indexes.followed.extend(inquiry.add(url, "uv.toml index"));
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

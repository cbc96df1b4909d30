//! Go: the module proxies, the checksum database, and the hosts of private modules, as `go env` tells them.
//!
//! `direct` in GOPROXY means that Go asks the host in a module's path. Those hosts are not known beforehand.

use std::path::Path;

use serde_json::{Map, Value};

use crate::detected::ProblemKind;
use crate::inquiry::{Answer, Inquiry};
use crate::source_url::SourceUrl;
use crate::variable::Part;

/// The variables that are asked for.
const VARIABLES: [&str; 7] = ["GOPROXY", "GOSUMDB", "GOPRIVATE", "GONOPROXY", "GONOSUMDB", "GOINSECURE", "GOROOT"];
/// Those that sandboxes get if they are configured.
const OFFERED: [&str; 6] = ["GOPROXY", "GOSUMDB", "GOPRIVATE", "GONOPROXY", "GONOSUMDB", "GOINSECURE"];
/// Modules that a proxy is asked for until it has one.
const MAX_PROBES: usize = 3;

pub fn ask(inquiry: &mut Inquiry<'_>) {
    let settings = match inquiry.ask("go", &[&["env", "-json"], &VARIABLES[..]].concat()) {
        Answer::Text(text) => serde_json::from_str::<Map<String, Value>>(&text).unwrap_or_default(),
        Answer::NotInstalled => {
            inquiry.not_installed();
            from_files(inquiry)
        }
        Answer::Failed => from_files(inquiry),
    };
    let text = |name: &str| settings.get(name).and_then(Value::as_str).unwrap_or_default();
    let mut proxies = Vec::new();
    for proxy in text("GOPROXY").split([',', '|']).map(str::trim) {
        if !matches!(proxy, "" | "direct" | "off" | "noproxy") {
            proxies.extend(inquiry.add(proxy, "go env GOPROXY"));
        }
    }
    offer_settings(inquiry);
    add_checksum_database(inquiry, text("GOSUMDB"));
    for name in ["GOPRIVATE", "GONOPROXY"] {
        for pattern in text(name).split(',').map(str::trim).filter(|p| !p.is_empty() && *p != "none") {
            add_private(inquiry, pattern, name);
        }
    }
    let modules = vendored_modules(inquiry, text("GOROOT"));
    for proxy in proxies {
        follow_proxy(inquiry, &proxy, &modules);
    }
}

/// Offers what somebody has configured, by variables or `go env -w`.
fn offer_settings(inquiry: &mut Inquiry<'_>) {
    let settings = from_files(inquiry);
    for name in OFFERED {
        let value = settings.get(name).and_then(Value::as_str).unwrap_or_default();
        let value = value.split_inclusive([',', '|', ' ']).flat_map(|piece| {
            let word = piece.trim_end_matches([',', '|', ' ']);
            let part = SourceUrl::parse(word).map_or_else(|_| Part::Text(word.to_owned()), Part::Url);
            [part, Part::Text(piece[word.len()..].to_owned())]
        });
        // A word with a user name that is not a URL is nothing that Go understands.
        let value: Vec<Part> = value.collect();
        let is_odd = value.iter().any(|part| matches!(part, Part::Text(text) if text.contains('@')));
        inquiry.offer(name, if is_odd { Vec::new() } else { value });
    }
}

/// Without Go itself: its variables, then its file of settings.
fn from_files(inquiry: &mut Inquiry<'_>) -> Map<String, Value> {
    let path = inquiry.variable("GOENV").map_or_else(|| inquiry.user_config("go/env"), Into::into);
    let text = inquiry.read(&path).unwrap_or_default();
    let lines = text.lines().filter_map(|line| line.split_once('='));
    let mut settings: Map<String, Value> =
        lines.map(|(name, value)| (name.trim().into(), value.trim().into())).collect();
    for name in VARIABLES {
        settings.extend(inquiry.variable(name).map(|value| (name.to_owned(), value.into())));
    }
    settings
}

/// GOSUMDB is a name, perhaps with `+hash+key`, and perhaps a URL behind it. Without a URL the name is the host.
fn add_checksum_database(inquiry: &mut Inquiry<'_>, setting: &str) {
    let mut words = setting.split_whitespace();
    let name = words.next().unwrap_or_default().split('+').next().unwrap_or_default();
    match (name, words.next()) {
        ("" | "off", _) => {}
        (_, Some(url)) => drop(inquiry.add(url, "go env GOSUMDB")),
        (name, None) => drop(inquiry.add(&format!("https://{name}"), "go env GOSUMDB")),
    }
}

/// A pattern starts with a host, as in `git.example.com/team/*`. One with a wildcard in the host names none.
fn add_private(inquiry: &mut Inquiry<'_>, pattern: &str, name: &str) {
    let host = pattern.split('/').next().unwrap_or_default();
    if host.contains(['*', '?', '[']) {
        let message = format!("{name} has a pattern that names no single host: add a rule for the hosts that it means");
        return inquiry.problem(ProblemKind::Note, message);
    }
    inquiry.add(&format!("https://{host}"), &format!("go env {name}"));
}

/// Modules and versions that Go's own source holds copies of, as paths below a proxy.
fn vendored_modules(inquiry: &mut Inquiry<'_>, root: &str) -> Vec<String> {
    if root.is_empty() {
        return Vec::new();
    }
    let text = inquiry.read(&Path::new(root).join("src/vendor/modules.txt")).unwrap_or_default();
    let modules = text.lines().filter_map(|line| line.strip_prefix("# ")?.split_once(' '));
    modules.take(MAX_PROBES).map(|(path, version)| format!("{}/@v/{}.zip", escaped(path), escaped(version))).collect()
}

/// A proxy writes `!a` for `A`.
fn escaped(text: &str) -> String {
    let escape = |c: char| if c.is_ascii_uppercase() { format!("!{}", c.to_ascii_lowercase()) } else { c.to_string() };
    text.chars().map(escape).collect()
}

/// Adds the hosts that a proxy redirects to for a module's file.
fn follow_proxy(inquiry: &mut Inquiry<'_>, proxy: &SourceUrl, modules: &[String]) {
    let urls: Vec<SourceUrl> = modules.iter().filter_map(|module| proxy.below(module).ok()).collect();
    let is_answered = urls.iter().any(|url| inquiry.follow_file(url, proxy));
    if !is_answered && !urls.is_empty() {
        let message = format!("{proxy} has none of the modules that were asked for, so its redirects are not known");
        inquiry.problem(ProblemKind::Registry, message);
    }
}

#[cfg(test)]
#[path = "go_test.rs"]
mod tests;

//! An index of Python packages (PEP 503 and 691): the hosts that its files are on, by the links of one package's page.

use std::collections::BTreeSet;

use crate::inquiry::Inquiry;
use crate::source_url::SourceUrl;

/// A small package that nearly every index has.
const PROBE_PACKAGE: &str = "six";
/// Links of a page that are looked at.
const MAX_LINKS: usize = 2000;
/// Hosts that one page may name.
const MAX_HOSTS: usize = 8;

/// Adds the hosts of an index's files.
pub fn follow_index(inquiry: &mut Inquiry<'_>, index: &SourceUrl) {
    let Ok(url) = index.below(&format!("{PROBE_PACKAGE}/")) else { return };
    let Some((page, body)) = inquiry.page(&url, index) else { return };
    let links: Vec<SourceUrl> = links(&body).iter().filter_map(|link| page.follow(link).ok()).collect();
    let mut hosts = BTreeSet::new();
    let mut last = None;
    for link in links.into_iter().filter(SourceUrl::is_http) {
        let is_new = hosts.len() < MAX_HOSTS && hosts.insert((link.host(), link.port()));
        if is_new {
            inquiry.add_named(&link, "links of the simple index page", index);
        }
        if hosts.contains(&(link.host(), link.port())) {
            last = Some(link);
        }
    }
    // A mirror often redirects its files to a storage service. The newest file is the last one.
    if let Some(file) = last {
        inquiry.follow_file(&file, index);
    }
}

/// The links of a page, in JSON or HTML.
fn links(body: &[u8]) -> Vec<String> {
    if let Ok(page) = serde_json::from_slice::<serde_json::Value>(body) {
        let files = page.get("files").and_then(|files| files.as_array()).into_iter().flatten();
        return files.filter_map(|file| file.get("url")?.as_str().map(str::to_owned)).take(MAX_LINKS).collect();
    }
    let text = String::from_utf8_lossy(body);
    let references = text.split("href=").skip(1).take(MAX_LINKS);
    references.filter_map(quoted).map(|link| link.replace("&amp;", "&")).collect()
}

/// The text in the quotes that `rest` starts with.
fn quoted(rest: &str) -> Option<&str> {
    let quote = rest.chars().next().filter(|c| matches!(c, '"' | '\''))?;
    rest[1..].split_once(quote).map(|(inner, _)| inner)
}

#[cfg(test)]
#[path = "simple_index_test.rs"]
mod tests;

//! apt: the hosts of its lists of sources, of lists of mirrors, and of redirects.
//!
//! A proxy of apt is not a source. It is reported, because sandboxes do not use it.

use std::path::{Path, PathBuf};

use crate::detected::ProblemKind;
use crate::inquiry::{Answer, Inquiry};
use crate::source_url::SourceUrl;
use crate::tools::apt_sources::{AptSource, from_lines, from_paragraphs};

/// Mirrors that are taken from one list.
const MAX_MIRRORS: usize = 16;

pub fn ask(inquiry: &mut Inquiry<'_>) {
    let dump = match inquiry.ask("apt-config", &["dump"]) {
        Answer::Text(dump) => dump,
        Answer::NotInstalled => return inquiry.problem(ProblemKind::NotInstalled, "not installed".to_owned()),
        Answer::Failed => String::new(),
    };
    if ["Acquire::http::Proxy", "Acquire::https::Proxy"].iter().any(|name| setting(&dump, name).is_some()) {
        let message = "apt has a proxy, which sandboxes do not use: they connect to the sources themselves".to_owned();
        inquiry.problem(ProblemKind::Note, message);
    }
    let mut followed: Vec<SourceUrl> = Vec::new();
    for (path, source) in sources(inquiry, &dump) {
        let because = path.display().to_string();
        for (uri, mirror_list) in places(inquiry, &source.uri, &because) {
            let added = match &mirror_list {
                Some(list) => {
                    SourceUrl::parse(&uri).ok().inspect(|url| inquiry.add_named(url, "list of mirrors", list))
                }
                None => inquiry.add(&uri, &because),
            };
            if let Some(url) = added.filter(|url| !followed.contains(url)) {
                follow_source(inquiry, &url, &source.suite, mirror_list.as_ref().unwrap_or(&url));
                followed.push(url);
            }
        }
    }
}

/// The value of a setting in `apt-config dump`, as `Name "value";`.
fn setting<'d>(dump: &'d str, name: &str) -> Option<&'d str> {
    let mut values = dump.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(" \"")?.strip_suffix("\";"));
    values.next_back().filter(|value| !value.is_empty() && !value.eq_ignore_ascii_case("direct"))
}

/// Everything in `sources.list` and `sources.list.d`, with the file that it stands in.
fn sources(inquiry: &mut Inquiry<'_>, dump: &str) -> Vec<(PathBuf, AptSource)> {
    let value = |name: &str, default: &str| setting(dump, name).unwrap_or(default).to_owned();
    let root = Path::new("/").join(value("Dir", "/")).join(value("Dir::Etc", "etc/apt"));
    let mut paths = vec![root.join(value("Dir::Etc::sourcelist", "sources.list"))];
    paths.extend(inquiry.list(&root.join(value("Dir::Etc::sourceparts", "sources.list.d"))));
    let mut sources = Vec::new();
    for path in paths {
        let parse = match path.extension().and_then(|extension| extension.to_str()) {
            Some("list") => from_lines,
            Some("sources") => from_paragraphs,
            // apt ignores other files, such as backups.
            _ => continue,
        };
        let text = inquiry.read(&path).unwrap_or_default();
        sources.extend(parse(&text).into_iter().map(|source| (path.clone(), source)));
    }
    sources
}

/// The places that a URI means, each with the registry that names it. It is the URI itself, or a list of mirrors:
/// `mirror+file:/path`, `mirror+https://…`, `mirror://…`.
fn places(inquiry: &mut Inquiry<'_>, uri: &str, because: &str) -> Vec<(String, Option<SourceUrl>)> {
    // Other prefixes name a way of transport, as in `tor+https://`.
    let (method, rest) = uri.split_once(':').unwrap_or((uri, ""));
    let transport = method.rsplit_once('+').map_or(method, |(_, transport)| transport);
    let is_list = method == "mirror" || method.starts_with("mirror+");
    match (is_list, transport) {
        (false, _) => vec![(format!("{transport}:{rest}"), None)],
        (true, "file") => {
            let path = Path::new("/").join(rest.trim_start_matches('/'));
            let text = inquiry.read(&path).unwrap_or_default();
            mirrors(&text).map(|mirror| (mirror, None)).collect()
        }
        (true, transport) => {
            let transport = if transport == "mirror" { "http" } else { transport };
            let Some(list) = inquiry.add(&format!("{transport}:{rest}"), because) else { return Vec::new() };
            let Some((_, body)) = inquiry.page(&list, &list) else { return Vec::new() };
            mirrors(&String::from_utf8_lossy(&body)).map(|mirror| (mirror, Some(list.clone()))).collect()
        }
    }
}

/// The mirrors of a list: the first word of each line.
fn mirrors(text: &str) -> impl Iterator<Item = String> {
    let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
    lines.filter_map(|line| line.split_whitespace().next().map(str::to_owned)).take(MAX_MIRRORS)
}

/// Asks for the signed index of a suite, for redirects.
fn follow_source(inquiry: &mut Inquiry<'_>, url: &SourceUrl, suite: &str, registry: &SourceUrl) {
    let path = match suite.ends_with('/') {
        true => format!("{}InRelease", suite.trim_start_matches('/')),
        false => format!("dists/{suite}/InRelease"),
    };
    if let Ok(index) =
        url.below(&path).and_then(|url| if url.is_http() { Ok(url) } else { Err(crate::UrlError::Scheme) })
        && !inquiry.follow_file(&index, registry)
    {
        inquiry.problem(
            ProblemKind::Registry,
            format!("the InRelease of {index} was not read, so its redirects are not known"),
        );
    }
}

#[cfg(test)]
#[path = "apt_test.rs"]
mod tests;

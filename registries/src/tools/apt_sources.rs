//! apt's lists of sources: lines (`deb [options] URI suite …`) and paragraphs (deb822, in `.sources` files).

/// Sources that are taken from one file. It is more than the hosts of a tool, so reaching it is reported as that bound.
const MAX_SOURCES: usize = 256;

/// Where packages are, and one suite there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AptSource {
    pub uri: String,
    /// A suite, as `stable`, or an exact path, which ends with a slash.
    pub suite: String,
}

/// Reads a `.list` file: one source per line.
pub fn from_lines(text: &str) -> Vec<AptSource> {
    let sources = text.lines().filter_map(|line| {
        let line = line.split('#').next().unwrap_or_default().trim();
        let rest = line.strip_prefix("deb-src").or_else(|| line.strip_prefix("deb"))?;
        let rest = rest.strip_prefix(char::is_whitespace)?.trim_start();
        let rest = match rest.strip_prefix('[') {
            Some(options) => options.split_once(']')?.1,
            None => rest,
        };
        let mut words = rest.split_whitespace();
        Some(AptSource { uri: words.next()?.to_owned(), suite: words.next()?.to_owned() })
    });
    sources.take(MAX_SOURCES).collect()
}

/// Reads a `.sources` file: paragraphs of fields. A line that starts with a space continues the field before it.
pub fn from_paragraphs(text: &str) -> Vec<AptSource> {
    let mut sources = Vec::new();
    let mut fields: Vec<(String, String)> = Vec::new();
    for line in text.lines().chain([""]) {
        if line.starts_with('#') {
            continue;
        }
        if line.trim().is_empty() {
            sources.extend(from_fields(&std::mem::take(&mut fields)));
        } else if line.starts_with([' ', '\t']) {
            if let Some((_, value)) = fields.last_mut() {
                value.push(' ');
                value.push_str(line.trim());
            }
        } else if let Some((name, value)) = line.split_once(':') {
            fields.push((name.trim().to_ascii_lowercase(), value.trim().to_owned()));
        }
    }
    sources.truncate(MAX_SOURCES);
    sources
}

fn from_fields(fields: &[(String, String)]) -> Vec<AptSource> {
    let field =
        |name: &str| fields.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str()).unwrap_or_default();
    if matches!(field("enabled").to_ascii_lowercase().as_str(), "no" | "false" | "0" | "off" | "without" | "disable") {
        return Vec::new();
    }
    let suite = field("suites").split_whitespace().next().unwrap_or_default();
    field("uris").split_whitespace().map(|uri| AptSource { uri: uri.to_owned(), suite: suite.to_owned() }).collect()
}

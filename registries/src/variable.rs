//! The variables that lead a tool in a sandbox to the registry that this machine's tool is configured for.
//!
//! Only what somebody has configured becomes a variable: a tool in a sandbox has the same built-in registry already. A sandbox
//! gets no credentials: user names, passwords, queries and fragments of URLs are left out, and a URL with a path that may
//! hold a token is not passed on at all.

use std::collections::{BTreeMap, BTreeSet};

use crate::detected::{Problem, ProblemKind, Variable};
use crate::private::Place;
use crate::source_url::SourceUrl;

/// The longest value of a variable.
const MAX_VALUE_BYTES: usize = 8 << 10;

/// A setting of a tool on this machine that can be a variable in a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    pub tool: &'static str,
    pub name: String,
    pub value: Vec<Part>,
}

/// A part of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// It holds no secret: a separator, a word that a tool knows, the name of a host.
    Text(String),
    Url(SourceUrl),
}

/// The variables of all offers, sorted by name. If two tools offer the same one, the first wins.
pub fn variables(offers: &[Offer], places: &BTreeMap<String, Place>) -> (Vec<Variable>, Vec<Problem>) {
    let (mut made, mut problems): (BTreeMap<&str, Variable>, Vec<Problem>) = (BTreeMap::new(), Vec::new());
    for offer in offers {
        if made.contains_key(offer.name.as_str()) || urls(offer).any(|url| is_unreachable(url, places)) {
            continue;
        }
        let notes = match value(offer) {
            Ok(value) => {
                let (tool, name) = (offer.tool.to_owned(), offer.name.clone());
                made.insert(&offer.name, Variable { tool, name, value });
                let bare = urls(offer).filter(|url| url.has_credentials()).map(ToString::to_string);
                bare.map(|url| format!("sandboxes get {url} without its credentials")).collect()
            }
            Err(why) => BTreeSet::from([format!("{} is not set in sandboxes: {why}", offer.name)]),
        };
        let note = |message| Problem { tool: offer.tool.to_owned(), kind: ProblemKind::Note, message };
        problems.extend(notes.into_iter().map(note));
    }
    (made.into_values().collect(), problems)
}

fn urls(offer: &Offer) -> impl Iterator<Item = &SourceUrl> {
    offer.value.iter().filter_map(|part| match part {
        Part::Url(url) => Some(url),
        Part::Text(_) => None,
    })
}

/// Whether a sandbox cannot reach it, because it is this machine itself.
fn is_unreachable(url: &SourceUrl, places: &BTreeMap<String, Place>) -> bool {
    places.get(&url.host()) == Some(&Place::Unreachable)
}

fn value(offer: &Offer) -> Result<String, String> {
    let mut value = String::new();
    for part in &offer.value {
        match part {
            Part::Text(text) => value.push_str(text),
            Part::Url(url) => {
                let bare = url.without_credentials();
                value.push_str(&bare.ok_or_else(|| format!("a part of the path of {url} may be a token"))?);
            }
        }
    }
    match value.len() > MAX_VALUE_BYTES || value.contains(char::is_control) {
        true => Err(format!("its value has control characters or more than {MAX_VALUE_BYTES} bytes")),
        false => Ok(value),
    }
}

#[cfg(test)]
#[path = "variable_test.rs"]
mod tests;

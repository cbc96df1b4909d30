//! What the threads found, before the hosts are resolved; and how it becomes one list.

use std::collections::{BTreeMap, BTreeSet};

use crate::detected::{Detected, Problem, ProblemKind, Source};
use crate::private::Place;
use crate::source_url::SourceUrl;
use crate::variable::{Offer, variables};

/// One reason for one host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub tool: &'static str,
    pub url: SourceUrl,
    pub because: String,
    /// The host of the registry whose page or redirect names this one; nothing if a configuration or a tool does.
    pub named_by: Option<String>,
}

/// All hosts that were found, for resolving.
pub fn hosts(findings: &[Finding]) -> BTreeSet<String> {
    let named = findings.iter().filter_map(|f| f.named_by.clone());
    findings.iter().map(|f| f.url.host()).chain(named).collect()
}

/// Merges findings of the same tool, host and scheme, with all their reasons and ports.
pub fn merge(
    findings: &[Finding],
    offers: &[Offer],
    mut problems: Vec<Problem>,
    places: &BTreeMap<String, Place>,
) -> Detected {
    let place = |host: &str| places.get(host).copied().unwrap_or(Place::Public);
    let mut merged: BTreeMap<(&str, String, &str), Source> = BTreeMap::new();
    let mut reasons: BTreeMap<(&str, String, &str), Vec<&str>> = BTreeMap::new();
    for finding in findings {
        let host = finding.url.host();
        let is_private_here = place(&host) == Place::Private;
        // A public page that names a private host must not open a way to it.
        let is_trusted = finding.named_by.as_ref().is_none_or(|by| place(by) == Place::Private);
        let refusal = match place(&host) {
            Place::Unreachable => Some("is this machine itself or link-local: sandboxes cannot reach it"),
            Place::Private if !is_trusted => {
                Some("has a private address, but a public registry names it: the rule is not marked private")
            }
            _ => None,
        };
        if let Some(why) = refusal {
            let message = format!("{host} ({}) {why}", finding.because);
            problems.push(Problem { tool: finding.tool.to_owned(), kind: ProblemKind::Note, message });
        }
        let key = (finding.tool, host.clone(), finding.url.scheme());
        let source = merged.entry(key.clone()).or_insert_with(|| Source {
            tool: finding.tool.to_owned(),
            host,
            ports: Vec::new(),
            url_scheme: finding.url.scheme().to_owned(),
            because: String::new(),
            is_private: false,
        });
        source.is_private |= is_private_here && is_trusted;
        source.ports.push(finding.url.port());
        source.ports.sort_unstable();
        source.ports.dedup();
        let reasons = reasons.entry(key).or_default();
        if !reasons.contains(&finding.because.as_str()) {
            reasons.push(&finding.because);
        }
    }
    for (key, source) in &mut merged {
        source.because = reasons.get(key).map(|r| r.join("; ")).unwrap_or_default();
    }
    let (variables, notes) = variables(offers, places);
    problems.extend(notes);
    problems.sort();
    problems.dedup();
    Detected { found: merged.into_values().collect(), problems, variables }
}

#[cfg(test)]
#[path = "findings_test.rs"]
mod tests;

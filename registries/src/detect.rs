//! Asks all tools side by side, then resolves the hosts, then merges.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use crate::detected::{Detected, Problem, ProblemKind};
use crate::fetch::Fetch;
use crate::findings::{hosts, merge};
use crate::inquiry::Inquiry;
use crate::private::{Place, place_of};
use crate::toolbox::Tools;
use crate::tools::ALL;

/// How long all questions may take. Resolving the hosts comes on top.
pub const DETECT_DEADLINE: Duration = Duration::from_secs(60);
/// Hosts that are resolved at the same time.
const RESOLVED_AT_ONCE: usize = 16;

/// Finds the hosts that this machine's package managers download from. It blocks, at worst for about a minute.
pub fn detect(tools: &dyn Tools, fetch: &dyn Fetch) -> Detected {
    let deadline = Instant::now() + DETECT_DEADLINE;
    let (mut findings, mut offers, mut problems) = (Vec::new(), Vec::new(), Vec::new());
    thread::scope(|scope| {
        let ask = |tool: &'static str, question: fn(&mut Inquiry<'_>)| {
            let mut inquiry = Inquiry::new(tool, tools, fetch, deadline);
            question(&mut inquiry);
            (inquiry.findings, inquiry.offers, inquiry.problems)
        };
        let threads: Vec<_> =
            ALL.iter().map(|&(tool, question)| (tool, scope.spawn(move || ask(tool, question)))).collect();
        for (tool, thread) in threads {
            match thread.join() {
                Ok((found, offered, failed)) => {
                    findings.extend(found);
                    offers.extend(offered);
                    problems.extend(failed);
                }
                Err(_) => {
                    let message = "a bug in Cove ended the questions to this tool".to_owned();
                    problems.push(Problem { tool: tool.to_owned(), kind: ProblemKind::ToolFailed, message });
                }
            }
        }
    });
    let places = resolve(tools, &hosts(&findings).into_iter().collect::<Vec<_>>());
    merge(&findings, &offers, problems, &places)
}

/// The place of each host, a few at a time.
fn resolve(tools: &dyn Tools, hosts: &[String]) -> BTreeMap<String, Place> {
    let mut places = BTreeMap::new();
    for some in hosts.chunks(RESOLVED_AT_ONCE) {
        thread::scope(|scope| {
            let threads: Vec<_> = some.iter().map(|host| (host, scope.spawn(|| place(tools, host)))).collect();
            places.extend(threads.into_iter().map(|(host, t)| (host.clone(), t.join().unwrap_or(Place::Public))));
        });
    }
    places
}

fn place(tools: &dyn Tools, host: &str) -> Place {
    match host.parse() {
        Ok(address) => place_of(&[address]),
        Err(_) => place_of(&tools.resolve(host)),
    }
}

#[cfg(test)]
#[path = "detect_test.rs"]
mod tests;

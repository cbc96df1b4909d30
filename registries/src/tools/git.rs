//! git: the hosts that `url.<base>.insteadOf` leads to, and remotes of the user's or the system's configuration. git has no
//! registry of its own.

use crate::detected::ProblemKind;
use crate::inquiry::Inquiry;
use crate::source_url::SourceUrl;
use crate::toolbox::{Invocation, RunError};

/// git's exit code if no setting matches.
const NO_MATCH: i32 = 1;

pub fn ask(inquiry: &mut Inquiry<'_>) {
    let pattern = r"^(url\..*\.insteadof|remote\..*\.url)$";
    match inquiry.run(Invocation::new("git", &["config", "--null", "--get-regexp", pattern])) {
        Ok((Some(0), settings, _)) => settings.split_terminator('\0').for_each(|setting| add(inquiry, setting)),
        Ok((Some(NO_MATCH), ..)) => {}
        Err(RunError::NotInstalled) => inquiry.problem(ProblemKind::NotInstalled, "not installed".to_owned()),
        Ok(_) => inquiry.problem(ProblemKind::ToolFailed, "`git config` failed".to_owned()),
        Err(error) => inquiry.problem(ProblemKind::ToolFailed, format!("`git config` {error}")),
    }
}

/// Adds the host of a setting, `name`, newline, `value`.
fn add(inquiry: &mut Inquiry<'_>, setting: &str) {
    let (name, value) = setting.split_once('\n').unwrap_or((setting, ""));
    let base = name.strip_prefix("url.").and_then(|name| name.strip_suffix(".insteadof"));
    match base {
        Some(base) => inquiry.add_parsed(SourceUrl::parse_git(base), "git config, url.insteadOf"),
        None => inquiry.add_parsed(SourceUrl::parse_git(value), "git config, remote"),
    };
}

#[cfg(test)]
#[path = "git_test.rs"]
mod tests;

//! pip: its indexes, from `pip config list`, or from its files if it is not installed. The built-in index stands in its help.

use crate::detected::ProblemKind;
use crate::inquiry::{Answer, Inquiry};
use crate::source_url::SourceUrl;
use crate::toolbox::Invocation;
use crate::tools::pip_config::PipConfig;
use crate::tools::simple_index::follow_index;
use crate::variable::Part;

/// How pip may be called, the preferred one first.
const COMMANDS: [&[&str]; 3] = [&["pip"], &["pip3"], &["python3", "-m", "pip"]];
/// The help must not break a URL into two lines.
const WIDE: &str = "1000";

pub fn ask(inquiry: &mut Inquiry<'_>) {
    let (command, config) = match installed(inquiry) {
        Some((command, Some(list))) => (Some(command), PipConfig::from_list(&list)),
        Some((command, None)) => (Some(command), PipConfig::from_files(inquiry)),
        None => (None, PipConfig::from_files(inquiry)),
    };
    let mut indexes = Vec::new();
    if !config.is_on("no-index") {
        for name in ["index-url", "extra-index-url"] {
            for (section, url) in config.values(name) {
                indexes.extend(inquiry.add(url, &format!("pip's setting {section}.{name}")));
            }
        }
        offer_settings(inquiry, &config);
        match command {
            None => inquiry.not_installed(),
            Some(command) if config.values("index-url").is_empty() => indexes.extend(built_in(inquiry, command)),
            Some(_) => {}
        }
    }
    for (section, url) in config.values("find-links") {
        inquiry.add(url, &format!("pip's setting {section}.find-links"));
    }
    for index in indexes {
        follow_index(inquiry, &index);
    }
}

/// Offers the indexes of `pip install`, and the hosts that it trusts without TLS.
fn offer_settings(inquiry: &mut Inquiry<'_>, config: &PipConfig) {
    let urls = |name| config.values_of_install(name).into_iter().filter_map(|url| SourceUrl::parse(url).ok());
    inquiry.offer_urls("PIP_INDEX_URL", urls("index-url").take(1));
    inquiry.offer_urls("PIP_EXTRA_INDEX_URL", urls("extra-index-url"));
    let trusted = config.values_of_install("trusted-host");
    if !trusted.is_empty() {
        inquiry.offer("PIP_TRUSTED_HOST", vec![Part::Text(trusted.join(" "))]);
    }
}

/// The first command that exists, and the settings that it lists.
fn installed(inquiry: &mut Inquiry<'_>) -> Option<(&'static [&'static str], Option<String>)> {
    COMMANDS.into_iter().find_map(|command| {
        let (program, first) = command.split_first()?;
        // Python without pip fails too, so a failure here says only that this is not pip.
        let version = inquiry.run(Invocation::new(program, &[first, &["--version"]].concat()));
        if !matches!(version, Ok((Some(0), ..))) {
            return None;
        }
        match inquiry.ask(program, &[first, &["config", "list"]].concat()) {
            Answer::Text(list) => Some((command, Some(list))),
            _ => Some((command, None)),
        }
    })
}

/// The index that pip uses without any setting: `(default URL)` in the help of `--index-url`.
fn built_in(inquiry: &mut Inquiry<'_>, command: &[&str]) -> Option<SourceUrl> {
    let help = [&command[1..], &["install", "--help"]].concat();
    let help = inquiry.run(Invocation::new(command[0], &help).variable("COLUMNS", WIDE));
    let help = help.map(|(_, stdout, _)| stdout).unwrap_or_default();
    let Some(url) = default_in(&help) else {
        inquiry
            .problem(ProblemKind::ToolFailed, "the help of `pip install` does not tell the built-in index".to_owned());
        return None;
    };
    let version = match inquiry.ask(command[0], &[&command[1..], &["--version"]].concat()) {
        Answer::Text(text) => text.split_whitespace().nth(1).unwrap_or_default().to_owned(),
        _ => String::new(),
    };
    inquiry.add(&url, format!("built into pip {version}").trim_end())
}

fn default_in(help: &str) -> Option<String> {
    let option = help.split_once("--index-url")?.1;
    let words: Vec<&str> = option.split_whitespace().collect();
    let at = words.iter().position(|word| *word == "(default")?;
    Some(words.get(at + 1)?.trim_end_matches([')', '.', ',']).to_owned())
}

#[cfg(test)]
#[path = "pip_test.rs"]
mod tests;

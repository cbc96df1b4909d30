//! npm, pnpm and Yarn: each tells its registry and those of scopes. The host of the files is asked from the registry.

use std::path::PathBuf;

use serde_json::{Map, Value};

use crate::detected::ProblemKind;
use crate::inquiry::{Answer, Inquiry};
use crate::source_url::SourceUrl;
use crate::tools::npmrc;

/// npm, pnpm and Yarn 1 read it, whatever the case of its letters.
const VARIABLE: &str = "NPM_CONFIG_REGISTRY";
/// A small package that nearly every registry has.
const PROBE_PACKAGE: &str = "wrappy";

pub fn ask_npm(inquiry: &mut Inquiry<'_>) {
    match inquiry.ask("npm", &["config", "ls", "-l", "--json"]) {
        Answer::Text(text) => add_settings(inquiry, &text),
        Answer::NotInstalled => {
            add_files(inquiry, &[inquiry.home(".npmrc"), PathBuf::from("/etc/npmrc")]);
            inquiry.not_installed();
        }
        Answer::Failed => add_files(inquiry, &[inquiry.home(".npmrc"), PathBuf::from("/etc/npmrc")]),
    }
}

pub fn ask_pnpm(inquiry: &mut Inquiry<'_>) {
    match inquiry.ask("pnpm", &["config", "list", "--json"]) {
        Answer::Text(text) => add_settings(inquiry, &text),
        Answer::NotInstalled => inquiry.not_installed(),
        Answer::Failed => {}
    }
}

/// Yarn 1 has npm's names for settings; later versions have their own.
pub fn ask_yarn(inquiry: &mut Inquiry<'_>) {
    let version = match inquiry.ask("yarn", &["--version"]) {
        Answer::Text(version) => version.trim().to_owned(),
        Answer::NotInstalled => return inquiry.not_installed(),
        Answer::Failed => return,
    };
    let (name, scopes) = match version.starts_with("1.") {
        true => ("registry", None),
        false => ("npmRegistryServer", Some("npmScopes")),
    };
    if let Answer::Text(url) = inquiry.ask("yarn", &["config", "get", name])
        && let Some(registry) = inquiry.add(url.trim(), &format!("yarn {version}, setting {name}"))
    {
        follow_registry(inquiry, &registry);
    }
    match scopes {
        Some(scopes) => {
            let Answer::Text(text) = inquiry.ask("yarn", &["config", "get", scopes, "--json"]) else { return };
            let scopes: Map<String, Value> = serde_json::from_str(&text).unwrap_or_default();
            for (scope, settings) in scopes {
                if let Some(url) = settings.get("npmRegistryServer").and_then(Value::as_str) {
                    inquiry.add(url, &format!("yarn, registry of the scope {scope}"));
                }
            }
        }
        // Yarn 1 reads npm's files for scopes.
        None => add_scopes(inquiry, &[inquiry.home(".npmrc"), PathBuf::from("/etc/npmrc")]),
    }
}

/// Adds the registries of settings in JSON. npm leaves out those with a password, so its files are read as well.
fn add_settings(inquiry: &mut Inquiry<'_>, text: &str) {
    let Ok(settings) = serde_json::from_str::<Map<String, Value>>(text) else {
        let message = format!("the settings of {} are not JSON", inquiry.tool);
        return inquiry.problem(ProblemKind::ToolFailed, message);
    };
    let string = |name: &str| settings.get(name).and_then(Value::as_str);
    let user = string("userconfig").map_or_else(|| inquiry.home(".npmrc"), PathBuf::from);
    let files: Vec<PathBuf> = [user].into_iter().chain(string("globalconfig").map(PathBuf::from)).collect();
    match string("registry") {
        Some(url) => {
            let because = format!("{} config, registry", inquiry.tool);
            if let Some(registry) = inquiry.add(url, &because) {
                // npm tells its built-in registry in the same way.
                if is_configured(inquiry, &files) {
                    inquiry.offer_urls(VARIABLE, [registry.clone()]);
                }
                follow_registry(inquiry, &registry);
            }
        }
        None => add_default(inquiry, &files),
    }
    for (name, value) in settings.iter().filter(|(name, _)| name.starts_with('@') && npmrc::is_registry(name)) {
        let because = format!("{} config, {name}", inquiry.tool);
        value.as_str().and_then(|url| inquiry.add(url, &because));
    }
    add_scopes(inquiry, &files);
}

/// Without npm's own answer: variables, then files, the strongest first.
fn add_files(inquiry: &mut Inquiry<'_>, files: &[PathBuf]) {
    add_default(inquiry, files);
    add_scopes(inquiry, files);
}

fn add_default(inquiry: &mut Inquiry<'_>, files: &[PathBuf]) {
    let variables = inquiry.variables();
    let by_variable = variables.iter().find(|(name, value)| name.eq_ignore_ascii_case(VARIABLE) && !value.is_empty());
    let mut setting = by_variable.map(|(name, url)| (name.clone(), url.clone()));
    for path in files {
        if setting.is_none() {
            let text = inquiry.read(path).unwrap_or_default();
            let found = npmrc::registries(&text, &variables).into_iter().rfind(|(name, _)| name == "registry");
            setting = found.map(|(_, url)| (format!("{} registry", path.display()), url));
        }
    }
    if let Some((because, url)) = setting
        && let Some(registry) = inquiry.add(&url, &because)
    {
        inquiry.offer_urls(VARIABLE, [registry.clone()]);
        follow_registry(inquiry, &registry);
    }
}

/// Whether a variable or a file names the registry.
fn is_configured(inquiry: &mut Inquiry<'_>, files: &[PathBuf]) -> bool {
    let variables = inquiry.variables();
    let is_set = |(name, value): &(String, String)| name.eq_ignore_ascii_case(VARIABLE) && !value.is_empty();
    variables.iter().any(is_set)
        || files.iter().any(|path| {
            let text = inquiry.read(path).unwrap_or_default();
            npmrc::registries(&text, &variables).iter().any(|(name, _)| name == "registry")
        })
}

fn add_scopes(inquiry: &mut Inquiry<'_>, files: &[PathBuf]) {
    let variables = inquiry.variables();
    for path in files {
        let text = inquiry.read(path).unwrap_or_default();
        for (name, url) in npmrc::registries(&text, &variables).into_iter().filter(|(name, _)| name != "registry") {
            inquiry.add(&url, &format!("{} {name}", path.display()));
        }
    }
}

/// Adds the host of a package's file: `dist.tarball` of its newest version.
fn follow_registry(inquiry: &mut Inquiry<'_>, registry: &SourceUrl) {
    let Ok(url) = registry.below(&format!("{PROBE_PACKAGE}/latest")) else { return };
    let Some((page, body)) = inquiry.page(&url, registry) else { return };
    let package: Value = serde_json::from_slice(&body).unwrap_or_default();
    let tarball = package.pointer("/dist/tarball").and_then(Value::as_str).map(|url| page.follow(url));
    match tarball {
        Some(Ok(file)) if file.is_http() => {
            inquiry.add_named(&file, "dist.tarball of a package", registry);
            inquiry.follow_file(&file, registry);
        }
        _ => inquiry
            .problem(ProblemKind::Registry, format!("{url} names no dist.tarball for the package {PROBE_PACKAGE}")),
    }
}

#[cfg(test)]
#[path = "node_test.rs"]
mod tests;

//! The order of the modules of the orchestrator and the runner: an upper module may use a lower one but not the reverse,
//! there are no cycles, and some crates are named in one place only. The test reads the sources and needs no sandbox.
//!
//! Code that only tests compile (`#[cfg(test)]`, `*_test.rs`, a folder `tests`) may use any module of the crate: a fake runtime or
//! a fake runner is no part of the program. The check for `unsafe` covers that code too.

mod paths;
mod tokens;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use paths::Mention;
use tokens::Token;

/// The order of a crate's modules.
struct Order {
    /// The layers from top to bottom. Modules of one layer may use each other, as long as there is no cycle.
    layers: &'static [&'static [&'static str]],
    /// Modules that only these others may use.
    private: &'static [(&'static str, &'static [&'static str])],
    /// Names that only files below these paths may contain.
    confined: &'static [(&'static str, &'static [&'static str])],
}

/// The orchestrator: fronts → service → domain → runtime | store | runner_client → modules that all may use → sys.
const ORCHESTRATOR: Order = Order {
    layers: &[
        &["app", "cli"],
        &["server"],
        &["api", "grpc", "dashboard"],
        // A front beside `api`, whose route leads to it.
        &["mcp"],
        &["service", "doctor"],
        &["session", "workspace", "image", "network", "key", "secret"],
        &["runtime", "store", "runner_client"],
        &[
            "client",
            "config",
            "disk",
            "failpoint",
            "hash",
            "image_store",
            "metrics",
            "owner",
            "relay",
            "runner_address",
            "spec",
        ],
        &["sys"],
    ],
    // A front reaches sandboxes through the service alone.
    private: &[
        ("client", &["cli"]),
        ("session", &["app", "service"]),
        ("workspace", &["app", "doctor", "service", "session"]),
        ("runtime", &["app", "doctor", "image", "network", "session", "workspace"]),
        ("network", &["app", "service", "session"]),
        ("store", &["app", "key", "session"]),
        ("key", &["app", "service"]),
        ("secret", &["app", "network", "service"]),
        ("runner_client", &["network", "runtime", "service", "session"]),
    ],
    confined: &[
        ("bollard", &["runtime/docker"]),
        ("rusqlite", &["store"]),
        ("axum", &["api", "server", "app.rs"]),
        (
            "hyper",
            &["api", "cli/cp/pipe.rs", "client", "mcp", "network/inject", "runner_client", "runtime/docker", "server"],
        ),
        ("oci_registry", &["image", "image_store"]),
        ("rcgen", &["network/inject"]),
        ("rmcp", &["mcp"]),
        ("rustls", &["client/tls.rs", "network/inject"]),
        ("unsafe", &["sys"]),
    ],
};

const RUNNER: Order = Order {
    layers: &[
        &["boot"],
        &["http"],
        &["shell", "run", "files", "ports", "network", "proc_files", "hold"],
        &["exec", "output", "reaper", "environment", "init", "oom", "open_stdin", "shutdown", "signals"],
        &["config", "file_kind", "log", "process_limit", "text"],
        &["sys"],
    ],
    private: &[],
    confined: &[("unsafe", &["sys"])],
};

/// A file of a crate.
struct Source {
    /// The path below `src`.
    path: PathBuf,
    /// The words and signs of the file, including its tests.
    tokens: Vec<Token>,
    without_tests: Vec<Token>,
    mentions: Vec<Mention>,
}

impl Source {
    fn new(path: PathBuf, text: &str) -> Self {
        let tokens = tokens::tokens(text);
        let without_tests = tokens::without_tests(&tokens);
        let mentions = paths::mentions(&path, &without_tests);
        Self { path, tokens, without_tests, mentions }
    }

    fn is_test(&self) -> bool {
        let is_in_tests = self.path.components().any(|part| part.as_os_str() == "tests");
        is_in_tests || self.path.file_stem().is_some_and(|stem| stem.to_string_lossy().ends_with("_test"))
    }

    /// The module below the crate's root that the file belongs to; `None` for the root itself.
    fn module(&self) -> Option<String> {
        paths::module_path(&self.path).first().cloned()
    }
}

/// All violations of a crate, each with its file and line.
fn violations(order: &Order, sources: &[&Source]) -> Vec<String> {
    let program = sources.iter().filter(|source| !source.is_test());
    let modules: BTreeSet<String> = program.filter_map(|source| source.module()).collect();
    let mut found: Vec<String> = modules
        .iter()
        .filter(|module| layer_of(order, module).is_none())
        .map(|module| format!("{module}: this module has no layer in the order of tests/tests/layers"))
        .collect();
    let mut arrows: BTreeMap<(String, String), String> = BTreeMap::new();
    for source in sources {
        found.extend(misplaced_names(order, source));
        let Some(from) = source.module().filter(|_| !source.is_test()) else { continue };
        for Mention { word: to, line } in source.mentions.iter().filter(|mention| modules.contains(&mention.word)) {
            let place = format!("{}:{line}", source.path.display());
            let (Some(above), Some(below)) = (layer_of(order, &from), layer_of(order, to)) else { continue };
            if below < above {
                found.push(format!("{place}: {from} must not use {to}, which is above it"));
            }
            let owners = order.private.iter().find(|(module, _)| module == to);
            if owners.is_some_and(|(_, owners)| *to != from && !owners.contains(&from.as_str())) {
                found.push(format!("{place}: {to} is not for {from} to use"));
            }
            if from != *to {
                arrows.entry((from.clone(), to.clone())).or_insert(place);
            }
        }
    }
    found.extend(circle(&arrows));
    found
}

fn layer_of(order: &Order, module: &str) -> Option<usize> {
    order.layers.iter().position(|layer| layer.contains(&module))
}

fn misplaced_names(order: &Order, source: &Source) -> Vec<String> {
    let is_below = |places: &[&str]| places.iter().any(|place| source.path.starts_with(place));
    let mut found = Vec::new();
    for (name, places) in order.confined.iter().filter(|(_, places)| !is_below(places)) {
        let looks_at_tests = *name == "unsafe";
        if source.is_test() && !looks_at_tests {
            continue;
        }
        let tokens = if looks_at_tests { &source.tokens } else { &source.without_tests };
        found.extend(tokens.iter().filter(|token| token.text == *name).map(|token| {
            format!("{}:{}: {name} is named only below {}", source.path.display(), token.line, places.join(", "))
        }));
    }
    found
}

/// A cycle of arrows, if there is one.
fn circle(arrows: &BTreeMap<(String, String), String>) -> Option<String> {
    let mut rest: BTreeSet<&str> = arrows.keys().flat_map(|(from, to)| [from.as_str(), to.as_str()]).collect();
    let leads_to = |from: &str, rest: &BTreeSet<&str>| {
        arrows.keys().find(|(start, end)| start == from && rest.contains(end.as_str())).map(|(_, end)| end.as_str())
    };
    // A module that uses none of the remaining modules is in no cycle.
    while let Some(free) = rest.iter().copied().find(|module| leads_to(module, &rest).is_none()) {
        rest.remove(free);
    }
    let mut path = vec![rest.first().copied()?];
    loop {
        let next = leads_to(path.last()?, &rest)?;
        if let Some(start) = path.iter().position(|module| *module == next) {
            path.push(next);
            let steps = path[start..].windows(2).map(|step| {
                let place = &arrows[&(step[0].to_owned(), step[1].to_owned())];
                format!("{} → {} ({place})", step[0], step[1])
            });
            return Some(format!("a circle: {}", steps.collect::<Vec<_>>().join(", ")));
        }
        path.push(next);
    }
}

static ORCHESTRATOR_SOURCES: LazyLock<Vec<Source>> = LazyLock::new(|| sources("orchestrator"));

fn sources(crate_name: &str) -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(crate_name).join("src");
    let mut found = Vec::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder of sources") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path).expect("a source file");
                found.push(Source::new(path.strip_prefix(&root).expect("below the root").to_owned(), &text));
            }
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    assert!(found.len() > 20, "{crate_name} has {} files", found.len());
    found
}

#[test]
fn the_orchestrators_modules_use_only_what_is_below_them() {
    let found = violations(&ORCHESTRATOR, &ORCHESTRATOR_SOURCES.iter().collect::<Vec<_>>());
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn the_runners_modules_use_only_what_is_below_them() {
    let found = violations(&RUNNER, &sources("runner").iter().collect::<Vec<_>>());
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// The violations of the orchestrator with one more file, which were not there before.
fn planted(path: &str, text: &str) -> String {
    let mut all: Vec<&Source> = ORCHESTRATOR_SOURCES.iter().collect();
    let before = violations(&ORCHESTRATOR, &all);
    let planted = Source::new(path.into(), text);
    all.push(&planted);
    let found = violations(&ORCHESTRATOR, &all);
    found.into_iter().filter(|violation| !before.contains(violation)).collect::<Vec<_>>().join("\n")
}

#[test]
fn an_arrow_upwards_is_found_however_it_is_written() {
    let expected = "session/planted.rs:2: session must not use api, which is above it";
    for text in [
        "\nuse crate::api::ApiState;",
        "\npub(crate) use crate::{spec::SessionSpec, api};",
        "\nuse crate::{spec::{self, SessionSpec}, api::{self, ApiState}};",
        "fn f() {\n crate::api::router() }",
        "fn f() -> Option<\ncrate::api::ApiState> { None }",
        "\nuse super::super::api;",
        "\nuse super::super::{spec, api};",
        "mod inner {\n use super::super::super::api; }",
        "/* crate::spec */ // crate::spec\nuse crate::api;",
        "const X: &str = \"crate::spec\"; const Y: char = '\"';\nuse crate::api;",
    ] {
        assert!(
            planted("session/planted.rs", text).contains(expected),
            "{text:?}: {}",
            planted("session/planted.rs", text)
        );
    }
}

#[test]
fn what_is_no_use_of_a_module_is_not_taken_for_one() {
    for text in [
        "// use crate::api;",
        "/* /* crate::api */ crate::api */",
        "/// crate::api\nfn f() {}",
        "const X: &str = \"crate::api\";",
        "const X: &str = r#\"\"crate::api\"#;",
        "fn f<'a>(x: &'a str) -> &'a str { x }",
        "#[cfg(test)]\nmod tests { use crate::api; fn f() { crate::api::router() } }",
        "#[cfg(test)]\n#[path = \"x.rs\"]\nmod tests;",
        "use super::driver; use crate::EMBEDDED_RUNNER;",
        "mod inner { use super::super::driver; }",
        "use crate::runtime::docker::api;",
    ] {
        assert_eq!(planted("session/planted.rs", text), "", "{text:?}");
    }
}

#[test]
fn a_circle_within_a_layer_is_found_with_its_arrows() {
    let found = planted("workspace/planted.rs", "use crate::session::Registry;");
    assert!(found.contains("a circle: ") && found.contains("workspace → session (workspace/planted.rs:1)"), "{found}");
}

#[test]
fn names_out_of_place_are_found() {
    for (path, text, name) in [
        ("runtime/local/planted.rs", "use bollard::Docker;", "bollard"),
        ("session/planted.rs", "fn f(x: &rusqlite::Connection) {}", "rusqlite"),
        ("service/planted.rs", "use axum::Json;", "axum"),
        ("service/planted.rs", "use hyper::StatusCode;", "hyper"),
        ("api/planted.rs", "use rmcp::model::Tool;", "rmcp"),
        ("session/planted.rs", "fn f() { unsafe { g() } }", "unsafe"),
        ("session/planted_test.rs", "fn f() { unsafe { g() } }", "unsafe"),
    ] {
        let found = planted(path, text);
        assert!(found.contains(&format!("{path}:1: {name} is named only below")), "{path}: {found}");
    }
    assert_eq!(planted("session/planted_test.rs", "use axum::Json; use crate::api;"), "");
    assert!(planted("session/planted.rs", "use crate::client::Client;").contains("client is not for session to use"));
    assert!(planted("api/planted.rs", "use crate::session::Activity;").contains("session is not for api to use"));
    assert!(planted("mcp/planted.rs", "use crate::session::Activity;").contains("session is not for mcp to use"));
    assert!(planted("mcp/planted.rs", "use crate::api::ApiState;").contains("mcp must not use api"));
    assert!(planted("novelty.rs", "").contains("novelty: this module has no layer"));
}

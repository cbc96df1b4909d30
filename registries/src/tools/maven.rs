//! Maven: mirrors and repositories of its settings, and the repository of the model that every project inherits, which is a
//! file in one of Maven's archives.

use std::path::{Path, PathBuf};

use crate::detected::ProblemKind;
use crate::inquiry::{Answer, Inquiry};

/// The archive with the inherited model, and the file in it.
const MODEL_ARCHIVE: &str = "maven-model-builder-";
const MODEL_FILE: &str = "org/apache/maven/model/pom-4.0.0.xml";
/// Elements that are read of one file.
const MAX_ELEMENTS: usize = 64;

pub fn ask(inquiry: &mut Inquiry<'_>) {
    let home = match inquiry.ask("mvn", &["-v"]) {
        Answer::Text(text) => home_in(&text),
        Answer::NotInstalled => {
            inquiry.not_installed();
            None
        }
        Answer::Failed => None,
    };
    let global = home.as_ref().map(|home| home.join("conf/settings.xml"));
    let mut is_central_mirrored = false;
    for path in [Some(inquiry.home(".m2/settings.xml")), global].into_iter().flatten() {
        let text = without_comments(&inquiry.read(&path).unwrap_or_default());
        for mirror in elements(&text, "mirror") {
            // Maven's own settings block plain HTTP by such a mirror.
            if elements(mirror, "blocked").first().is_some_and(|blocked| blocked.trim() == "true") {
                continue;
            }
            let of = elements(mirror, "mirrorOf").into_iter().next().unwrap_or_default();
            is_central_mirrored |= of.split(',').any(|id| matches!(id.trim(), "*" | "central" | "external:*"));
            add_url(inquiry, mirror, &format!("mirror in {}", path.display()));
            let message = "no variable can name a mirror: in sandboxes, Maven needs the <mirror> in a settings.xml";
            inquiry.problem(ProblemKind::Note, message.to_owned());
        }
        add_repositories(inquiry, &text, &format!("repository in {}", path.display()));
    }
    if let Some(home) = home.filter(|_| !is_central_mirrored) {
        add_inherited(inquiry, &home);
    }
}

fn home_in(version: &str) -> Option<PathBuf> {
    version.lines().find_map(|line| line.split_once("Maven home: ")).map(|(_, home)| PathBuf::from(home.trim()))
}

/// Adds the repositories of the model that every project inherits.
fn add_inherited(inquiry: &mut Inquiry<'_>, home: &Path) {
    let files = inquiry.list(&home.join("lib"));
    let is_archive = |path: &&PathBuf| path.file_name().is_some_and(|n| n.to_string_lossy().starts_with(MODEL_ARCHIVE));
    let Some(archive) = files.iter().find(is_archive).and_then(|path| path.to_str()) else {
        return inquiry
            .problem(ProblemKind::ToolFailed, "Maven's archive with the inherited model is missing".to_owned());
    };
    let script = "import sys, zipfile; sys.stdout.write(zipfile.ZipFile(sys.argv[1]).read(sys.argv[2]).decode())";
    let model = match inquiry.ask("unzip", &["-p", archive, MODEL_FILE]) {
        Answer::NotInstalled => inquiry.ask("python3", &["-c", script, archive, MODEL_FILE]),
        answered => answered,
    };
    match model {
        Answer::Text(model) => add_repositories(inquiry, &without_comments(&model), "built into Maven"),
        Answer::NotInstalled => {
            let message = "neither unzip nor python3 is installed to read Maven's archive".to_owned();
            inquiry.problem(ProblemKind::ToolFailed, message);
        }
        Answer::Failed => {}
    }
}

fn add_repositories(inquiry: &mut Inquiry<'_>, text: &str, because: &str) {
    for name in ["repository", "pluginRepository"] {
        for repository in elements(text, name) {
            add_url(inquiry, repository, because);
        }
    }
}

fn add_url(inquiry: &mut Inquiry<'_>, element: &str, because: &str) {
    if let Some(url) = elements(element, "url").first() {
        inquiry.add(&url.trim().replace("&amp;", "&"), because);
    }
}

/// What stands between `<name>` and `</name>`, for each such element. These elements have no attributes and are not nested.
fn elements<'t>(text: &'t str, name: &str) -> Vec<&'t str> {
    let (open, close) = (format!("<{name}>"), format!("</{name}>"));
    let starts = text.split(open.as_str()).skip(1).take(MAX_ELEMENTS);
    starts.filter_map(|rest| rest.split_once(close.as_str()).map(|(inner, _)| inner)).collect()
}

fn without_comments(text: &str) -> String {
    let mut parts = text.split("<!--");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |kept, part| kept + part.split_once("-->").map_or("", |(_, after)| after))
}

#[cfg(test)]
#[path = "maven_test.rs"]
mod tests;

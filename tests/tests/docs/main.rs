//! Checks that the documents are true, as far as a program can: every command block of the README and of the documents for users
//! runs in a real bash against a real daemon and prints what the document says; the daemon accepts every
//! configuration that they show; every link and every file that they name exists.
//!
//! `document` lists the kinds of blocks. A block that cannot run here has the reason in its fence (`not-run: …`), which is
//! printed as a skip; a block of an unknown kind fails the test, so nothing is left out silently.

mod bash;
mod document;
mod expected;
mod mentions;

use std::path::{Path, PathBuf};

use e2e::daemon::{Daemon, is_local_only};
use e2e::skipped;

use self::bash::Bash;
use self::document::{CONFIGURATION, Document, Step};

/// The address in the documents. The daemon under test has another port, which replaces this one in commands; in their
/// output it is replaced back.
const DOCUMENTED_ADDRESS: &str = "127.0.0.1:8080";

/// The folders of user documents. The other documents are about the code and show no commands.
const FOLDERS_THAT_RUN: [&str; 5] = ["docs/concepts", "docs/guides", "docs/migrate", "docs/recipes", "docs/reference"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().expect("the repository")
}

/// Every document whose blocks are run, as paths below the root.
fn documents_that_run() -> Vec<String> {
    let in_folder = |folder: &str| {
        let entries = std::fs::read_dir(root().join(folder)).unwrap_or_else(|e| panic!("{folder}: {e}"));
        let names = entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned());
        let documents = names.filter(|name| name.ends_with(".md")).map(|name| format!("{folder}/{name}"));
        documents.collect::<Vec<_>>()
    };
    let mut documents: Vec<String> = FOLDERS_THAT_RUN.iter().flat_map(|folder| in_folder(folder)).collect();
    documents.push("README.md".to_owned());
    documents.sort();
    documents
}

#[tokio::test]
async fn every_command_block_prints_what_its_document_says() {
    let story = "every_command_block_prints_what_its_document_says";
    if is_local_only(story, "the documents show the local runtime") {
        return;
    }
    let mut wrong = Vec::new();
    for name in documents_that_run() {
        let text = std::fs::read_to_string(root().join(&name)).expect("a document");
        match Document::parse(&name, &text) {
            Ok(document) => wrong.extend(follow(&document).await),
            Err(why) => wrong.push(why),
        }
    }
    assert!(wrong.is_empty(), "{} blocks are not as documented:\n\n{}", wrong.len(), wrong.join("\n\n"));
}

/// Follows one document from top to bottom. Returns everything that differs from the document.
async fn follow(document: &Document) -> Vec<String> {
    let home = tempfile::Builder::new().prefix("cove-docs-").tempdir().expect("a temporary directory");
    let daemon = Daemon::builder().data_dir(&home.path().join(".local/share/cove")).start().await;
    let mut bash = Bash::start(home.path());
    let address = daemon.address.to_string();
    let mut wrong = Vec::new();
    for step in &document.steps {
        match step {
            Step::NotRun { line, reason } => skipped(&format!("{}:{line}", document.name), reason),
            Step::File { name, text, .. } => {
                let text = text.replace(DOCUMENTED_ADDRESS, &address);
                std::fs::write(bash.directory().join(name), text).expect("our own directory");
            }
            Step::Commands { line, script, keys, prints } => {
                let place = format!("{}:{line}", document.name);
                let script = script.replace(DOCUMENTED_ADDRESS, &address);
                match bash.run(&script, keys) {
                    Ok(printed) => {
                        let printed = printed.replace(&address, DOCUMENTED_ADDRESS);
                        let compared = expected::compare(prints, &printed);
                        wrong.extend(compared.err().map(|why| format!("{place}: {why}\n--- printed:\n{printed}")));
                    }
                    Err(why) => {
                        wrong.push(format!("{place}: {why}"));
                        break;
                    }
                }
            }
        }
    }
    drop(bash);
    daemon.stop().await;
    wrong
}

/// The address, the data directory, the key and the runtime are the story's own: flags win over the file.
#[tokio::test]
async fn a_daemon_starts_with_every_configuration_that_a_document_shows() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let key = directory.path().join("key");
    std::fs::write(&key, "a-key-for-the-documents").expect("our own directory");
    let key = key.to_string_lossy().into_owned();
    let mut shown = 0;
    for document in mentions::documents(&root()) {
        let text = std::fs::read_to_string(&document).expect("a document");
        let blocks = document::blocks(&document.to_string_lossy(), &text).expect("blocks that end");
        for block in blocks.iter().filter(|block| block.info == CONFIGURATION) {
            // This is printed with a failure, which shows only the daemon's message.
            println!("{}:{}:\n{}", document.display(), block.line, block.text);
            let daemon = Daemon::builder().config(&block.text).arg("--runtime").arg("local");
            daemon.arg("--api-key-file").arg(&key).start().await.stop().await;
            shown += 1;
        }
    }
    assert!(shown > 0, "no document shows a configuration any more");
}

#[test]
fn every_link_leads_to_a_file() {
    let broken: Vec<String> = mentions::in_all_documents(&root(), mentions::links)
        .into_iter()
        .filter(|mention| !mention.resolves_beside_its_document())
        .map(|mention| mention.to_string())
        .collect();
    assert!(broken.is_empty(), "links that lead nowhere:\n{}", broken.join("\n"));
}

#[test]
fn every_file_that_a_document_names_exists() {
    let missing: Vec<String> = mentions::in_all_documents(&root(), mentions::paths)
        .into_iter()
        .filter(|mention| !mention.resolves_below(&root()))
        .map(|mention| mention.to_string())
        .collect();
    assert!(missing.is_empty(), "files that are not there:\n{}", missing.join("\n"));
}

/// A promise without its test would be only a sentence.
#[test]
fn every_test_that_the_page_on_security_names_exists() {
    let text = std::fs::read_to_string(root().join("SECURITY.md")).expect("a document");
    let code = mentions::code(&root());
    let tests = mentions::tests(&text).into_iter().map(|name| format!("fn {name}("));
    let checks = mentions::checks_of_the_probe(&text).into_iter().map(|name| format!("\"{name}\""));
    let (there, missing): (Vec<String>, Vec<String>) = tests.chain(checks).partition(|name| code.contains(name));
    assert!(missing.is_empty(), "not there: {missing:?}");
    assert!(there.len() > 50, "only {} promises have a test", there.len());
}

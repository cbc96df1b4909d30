//! The rule of this crate: no host name of a registry stands in it. Every URL in its files has a name or an address that is
//! reserved for examples, or is one of this machine.

use std::fs;
use std::path::{Path, PathBuf};

/// The endings of names that belong to nobody.
const RESERVED: [&str; 4] = ["example.com", "example.net", "example.org", ".test"];

fn rust_files(directory: &Path) -> Vec<PathBuf> {
    let paths = fs::read_dir(directory).expect("the folder is read").flatten().map(|entry| entry.path());
    let files = paths.flat_map(|path| match path.is_dir() {
        true => rust_files(&path),
        false => vec![path],
    });
    files.filter(|path| path.extension().is_some_and(|extension| extension == "rs")).collect()
}

/// The hosts of all URLs in a text. What has no dot, such as `https://…` or `https://{host}`, is no name.
fn hosts(text: &str) -> Vec<&str> {
    let places = text.split("://").skip(1).map(|rest| {
        let place =
            rest.split(|c: char| !(c.is_ascii_alphanumeric() || "._-:@".contains(c))).next().unwrap_or_default();
        let host = place.rsplit('@').next().unwrap_or_default();
        host.split(':').next().unwrap_or_default().trim_matches('.')
    });
    places.filter(|host| host.contains('.')).collect()
}

fn is_reserved(host: &str) -> bool {
    let host = host.to_ascii_lowercase();
    RESERVED.iter().any(|name| host.ends_with(name)) || host.parse::<std::net::Ipv4Addr>().is_ok()
}

#[test]
fn no_host_name_of_a_registry_stands_in_this_crate() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let files: Vec<PathBuf> =
        ["src", "examples", "tests"].iter().flat_map(|name| rust_files(&root.join(name))).collect();
    assert!(files.len() > 20, "the files were not found");
    for path in files {
        let text = fs::read_to_string(&path).unwrap();
        let others: Vec<&str> = hosts(&text).into_iter().filter(|host| !is_reserved(host)).collect();
        assert!(others.is_empty(), "{}: {others:?}", path.display());
    }
}

#[test]
fn a_name_that_is_not_reserved_would_be_noticed() {
    let text = format!("let url = \"https:{}ann:pw@registry.invalid:443/x\";", "//");
    assert_eq!(hosts(&text), ["registry.invalid"]);
    assert!(!is_reserved("registry.invalid"));
}

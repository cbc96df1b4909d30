//! The crates that Cove is built from: the rules of deny.toml hold and are enforced, and the bill of materials is complete.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use e2e::skipped;
use serde_json::{Value, json};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Whether there is a Python that the scripts run with. If not, it prints the skip.
fn has_python(story: &str) -> bool {
    let has = Command::new("python3").args(["-c", "import tomllib"]).output().is_ok_and(|it| it.status.success());
    if !has {
        skipped(story, "it needs Python 3.11 or newer");
    }
    has
}

fn script(name: &str, arguments: &[&str]) -> Output {
    Command::new(root().join("scripts").join(name)).args(arguments).output().expect("the script starts")
}

fn metadata() -> Value {
    let mut command = Command::new(env!("CARGO"));
    command.args(["metadata", "--format-version", "1", "--locked", "--offline"]);
    let output = command.args(["--filter-platform", "x86_64-unknown-linux-gnu"]).current_dir(root()).output();
    serde_json::from_slice(&output.expect("cargo starts").stdout).expect("metadata")
}

fn package<'a>(metadata: &'a mut Value, name: &str) -> &'a mut Value {
    let packages = metadata["packages"].as_array_mut().expect("packages");
    packages.iter_mut().find(|package| package["name"] == name).unwrap_or_else(|| panic!("there is no crate {name}"))
}

#[test]
fn each_rule_about_crates_is_enforced() {
    if !has_python("each_rule_about_crates_is_enforced") {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary directory");
    let file = folder.path().join("metadata.json");
    let check = |metadata: &Value| {
        std::fs::write(&file, metadata.to_string()).expect("our own directory");
        let output = script("supply-chain", &["--metadata", file.to_str().expect("text")]);
        (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let good = metadata();
    let (is_good, said) = check(&good);
    assert!(is_good, "{said}");
    let mut other_version = package(&mut good.clone(), "tokio").clone();
    other_version["version"] = json!("0.1.0");
    type Change = Box<dyn Fn(&mut Value)>;
    let changes: [(&str, Change); 6] = [
        ("the licence 'GPL-3.0-only'", Box::new(|m| package(m, "tokio")["license"] = json!("GPL-3.0-only"))),
        ("the licence None", Box::new(|m| package(m, "tokio")["license"] = Value::Null)),
        (
            "does not come from the registry",
            Box::new(|m| package(m, "tokio")["source"] = json!("git+https://host.invalid/tokio")),
        ),
        ("is banned", Box::new(|m| package(m, "tokio")["name"] = json!("openssl"))),
        (
            "deny.toml gives no reason",
            Box::new(move |m| m["packages"].as_array_mut().expect("packages").push(other_version.clone())),
        ),
        ("RUSTSEC-2026-0067", Box::new(|m| package(m, "tar")["version"] = json!("0.4.44"))),
    ];
    for (expected, change) in changes {
        let mut bad = good.clone();
        change(&mut bad);
        let (is_good, said) = check(&bad);
        assert!(!is_good && said.contains(expected), "{expected}: {said}");
    }
}

#[test]
fn the_bill_of_materials_names_all_that_is_shipped_and_nothing_else() {
    if !has_python("the_bill_of_materials_names_all_that_is_shipped_and_nothing_else") {
        return;
    }
    let output = script("sbom", &[]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(!text.contains("://"), "it has an address in it");
    let bom: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(
        (&bom["bomFormat"], &bom["specVersion"], &bom["version"]),
        (&json!("CycloneDX"), &json!("1.5"), &json!(1))
    );
    assert!(
        bom["serialNumber"].as_str().is_some_and(|number| number.starts_with("urn:uuid:")),
        "{}",
        bom["serialNumber"]
    );
    assert_eq!(bom["metadata"]["component"]["name"], "cove");
    let components = bom["components"].as_array().expect("components");
    let mut references = BTreeSet::from([bom["metadata"]["component"]["bom-ref"].to_string()]);
    for component in components {
        for field in ["type", "name", "version", "purl", "bom-ref", "scope"] {
            assert!(component[field].as_str().is_some_and(|value| !value.is_empty()), "{field}: {component}");
        }
        assert!(component["licenses"].as_array().is_some_and(|licenses| !licenses.is_empty()), "{component}");
        assert!(references.insert(component["bom-ref"].to_string()), "twice: {component}");
    }
    for dependency in bom["dependencies"].as_array().expect("dependencies") {
        let on = dependency["dependsOn"].as_array().expect("a list");
        assert!(on.iter().chain([&dependency["ref"]]).all(|it| references.contains(&it.to_string())), "{dependency}");
    }
    let find = |name: &str| components.iter().find(|component| component["name"] == name);
    for shipped in ["tokio", "hyper", "portable-pty", "runner", "sqlite"] {
        assert_eq!(find(shipped).map(|component| &component["scope"]), Some(&json!("required")), "{shipped}");
    }
    assert!(find("tokio").is_some_and(|tokio| tokio["hashes"][0]["content"].as_str().map(str::len) == Some(64)));
    for only_tests in ["proptest", "vt100", "e2e", "bench"] {
        assert!(find(only_tests).is_none(), "{only_tests} is not shipped");
    }
    assert_eq!(script("sbom", &[]).stdout, text.as_bytes(), "the same commit gives another bill");
}

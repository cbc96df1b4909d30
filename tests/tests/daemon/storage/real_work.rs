//! Real work on the disk of a default session: a large project, packages of registries, and more files than a disk holds. The
//! neighbour and the host notice nothing. `scripts/test --soak` makes it large.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use e2e::daemon::{Daemon, Session};
use e2e::{is_soak, skipped};
use serde_json::{Value, json};

use super::disks::{disk_bytes, has_disks};

const MIB: u64 = 1 << 20;
/// What an empty file takes of a disk at least: an inode, its name in the directory twice, and its name in the inode.
const MIN_FILE_BYTES: u64 = 256;
/// What an empty file with a short name takes at most, with what the trees leave unused.
const MAX_FILE_BYTES: u64 = 1024;
/// In what pieces btrfs gives room to its trees. It writes a block that changes to a new place in them, so a whole piece may be in use on
/// the host's disk, for all sessions together, whatever their disks hold.
const METADATA_CHUNK_BYTES: u64 = 256 * MIB;
/// The longest command of these stories.
const PATIENCE_MS: u64 = 900_000;

/// Runs a command that may take long, shows its time, and returns its reply.
async fn work(session: &Session, what: &str, cmd: &str) -> Value {
    let request = json!({ "cmd": cmd, "timeout_ms": PATIENCE_MS });
    let reply = session.api.patient().post(&session.path("/exec"), request).await.ok();
    println!("{what}: {} ms", reply["duration_ms"]);
    reply
}

fn output(reply: &Value) -> &str {
    reply["output"].as_str().expect("text")
}

/// A neighbour with a file of its own.
async fn neighbour(daemon: &Daemon) -> Session {
    let session = daemon.create(json!({ "resources": { "disk_mb": 64 } })).await;
    session.sh("head -c 15M /dev/urandom > /workspace/own; sha256sum /workspace/own > /tmp/sum").await;
    session
}

/// Whether the neighbour's file is whole, and new ones can be made.
async fn is_unharmed(neighbour: &Session) {
    let cmd = "sha256sum -c --quiet /tmp/sum && mkdir -p /tmp/more && for n in $(seq 100); do echo $n > /tmp/more/$n; done; ls /tmp/more | wc -l";
    assert_eq!(neighbour.sh(cmd).await, "100\n");
}

/// A repository as one file, with a project of many small modules in directories of a thousand, a Makefile and a test.
fn repository(directory: &Path, files: usize) -> Option<Vec<u8>> {
    let makefile = "DIRS := $(notdir $(wildcard src/*))\nall: $(DIRS:%=out/%)\nout/%: src/%\n\t@mkdir -p out && cat $</*.py > $@\n\
                    test: all\n\t@python3 test.py\n";
    let test = "import glob\nnames, total = {}, 0\nfor path in sorted(glob.glob('out/*')):\n    exec(open(path).read(), names)\n\
                values = [value for name, value in names.items() if name.startswith('VALUE_')]\n\
                assert sorted(values) == list(range(len(values)))\nprint(len(values), 'modules')\n";
    let mut commit =
        "commit refs/heads/main\ncommitter story <story@example.com> 1700000000 +0000\ndata 5\nfirst\n".to_owned();
    let mut put =
        |path: &str, text: &str| commit.push_str(&format!("M 100644 inline {path}\ndata {}\n{text}\n", text.len()));
    put("Makefile", makefile);
    put("test.py", test);
    for n in 0..files {
        let text = format!("# Module {n} of a project.\nVALUE_{n} = {n}\n");
        put(&format!("src/d{:04}/m{n:06}.py", n / 1000), &text);
    }
    let git = |args: &[&str], input: Stdio| {
        Command::new("git")
            .arg("-C")
            .arg(directory)
            .args(args)
            .stdin(input)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
    };
    git(&["init", "--quiet", "--bare", "--initial-branch=main", "."], Stdio::null()).ok()?.wait().ok()?;
    let mut importing = git(&["fast-import", "--quiet"], Stdio::piped()).ok()?;
    importing.stdin.take()?.write_all(commit.as_bytes()).expect("git reads");
    assert!(importing.wait().expect("git ends").success());
    assert!(git(&["bundle", "create", "bundle", "main"], Stdio::null()).ok()?.wait().expect("git ends").success());
    Some(std::fs::read(directory.join("bundle")).expect("git has written it"))
}

#[tokio::test]
async fn a_project_of_many_files_is_cloned_built_and_tested() {
    let story = "a_project_of_many_files_is_cloned_built_and_tested";
    if !has_disks(story) {
        return;
    }
    let files = if is_soak() { 100_000 } else { 10_000 };
    let folder = tempfile::tempdir().expect("a temporary directory");
    let Some(bundle) = repository(folder.path(), files) else { return skipped(story, "git is not installed") };
    let daemon = Daemon::start().await;
    let neighbour = neighbour(&daemon).await;
    let session = daemon.patient().session().await;
    if session.exec("command -v git make python3").await["exit_code"] != 0 {
        return skipped(story, "git, make or python3 is not installed");
    }
    session.put("project.bundle", bundle).await.ok();
    let clone =
        "cd /workspace && git clone -q -b main project.bundle project && cd project && find src -type f | wc -l";
    assert_eq!(output(&work(&session, "clone", clone).await), format!("{files}\n"));
    let built = work(&session, "build and test", "make -s -j2 all && make -s test && ls out | wc -l").await;
    assert_eq!(output(&built), format!("{files} modules\n{}\n", files / 1000), "{built}");
    let changed =
        "sed -i 's/^# Module/# Part/' src/d0003/*.py && git status --porcelain | grep -c '^ M' && make -s test";
    assert_eq!(output(&work(&session, "change and build again", changed).await), format!("1000\n{files} modules\n"));
    let copied =
        work(&session, "copy and remove", "cp -r src copy && find copy -type f | wc -l && rm -rf copy && ls").await;
    assert_eq!(output(&copied), format!("{files}\nMakefile\nout\nsrc\ntest.py\n"));
    println!("{files} files: {} MiB of the disk", disk_bytes(&session).await / MIB);
    is_unharmed(&neighbour).await;
    daemon.stop().await;
}

#[tokio::test]
async fn files_without_content_end_with_the_bytes_of_the_disk_and_hurt_nobody() {
    let story = "files_without_content_end_with_the_bytes_of_the_disk_and_hurt_nobody";
    if !has_disks(story) {
        return;
    }
    let daemon = Daemon::start().await;
    let disk_mb: u64 = if is_soak() { 256 } else { 24 };
    let neighbour = neighbour(&daemon).await;
    let session = daemon.patient().create(json!({ "resources": { "disk_mb": disk_mb } })).await;
    // What all disks together take of the host's disk, if they are in a file of the daemon's.
    let image = daemon.data_dir().join("disks.img");
    let on_host =
        || std::fs::metadata(&image).map(|file| std::os::unix::fs::MetadataExt::blocks(&file) * 512).unwrap_or(0);
    let before = on_host();
    // The shortest names, in directories of a size that programs make.
    let bomb = "import os\nn = 0\ntry:\n  while True:\n    if n % 10000 == 0: os.mkdir(f'/workspace/{n}'); os.chdir(f'/workspace/{n}')\n    os.close(os.open(str(n % 10000), os.O_CREAT | os.O_WRONLY)); n += 1\nexcept OSError as e: print(n, e.errno)\n";
    session.put("bomb.py", bomb).await.ok();
    let reply = work(&session, "files until nothing fits", "python3 /workspace/bomb.py").await;
    let words: Vec<u64> = output(&reply).split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let [made, error] = words[..] else { panic!("{reply}") };
    println!("{made} empty files in {disk_mb} MiB: {} bytes each", disk_mb * MIB / made);
    assert_eq!(error, u64::try_from(nix::libc::EDQUOT).expect("a number"));
    let bounds = disk_mb * MIB / MAX_FILE_BYTES..=disk_mb * MIB / MIN_FILE_BYTES;
    assert!(bounds.contains(&made), "{made} files, and {bounds:?} were expected");
    let used = disk_bytes(&session).await;
    assert!(used <= disk_mb * MIB * 105 / 100, "{used} bytes of {disk_mb} MiB");
    let taken = on_host().saturating_sub(before);
    println!("the host's disk has {} MiB less", taken / MIB);
    assert!(taken <= 2 * (disk_mb * MIB + METADATA_CHUNK_BYTES), "{taken} bytes for {disk_mb} MiB");
    is_unharmed(&neighbour).await;
    let cleared =
        work(&session, "removal", "cd /workspace && find . -mindepth 1 -delete && echo x > one && cat one").await;
    assert_eq!(output(&cleared), "x\n", "{cleared}");
    daemon.stop().await;
}

/// Whether a package manager reaches its registry from a session. Prints the skip.
async fn reaches(session: &Session, story: &str, cmd: &str) -> bool {
    let tried = work(session, "a first package", cmd).await;
    if tried["exit_code"] != 0 {
        let last = output(&tried).lines().last().unwrap_or_default().to_owned();
        skipped(story, &format!("the registry cannot be reached from a session: {last}"));
    }
    tried["exit_code"] == 0
}

#[tokio::test]
async fn the_scientific_stack_of_python_is_installed_and_works() {
    let story = "the_scientific_stack_of_python_is_installed_and_works";
    if !is_soak() {
        return skipped(story, "it downloads some hundred megabytes; scripts/test --soak has it");
    }
    if !has_disks(story) {
        return;
    }
    let daemon = Daemon::start().await;
    let session = daemon.patient().create(json!({ "network": "packages" })).await;
    if session.exec("python3 -m venv /workspace/venv").await["exit_code"] != 0 {
        return skipped(story, "python3 has no venv");
    }
    session.sh("cd /workspace && . venv/bin/activate && export PIP_DISABLE_PIP_VERSION_CHECK=1").await;
    if !reaches(&session, story, "pip install -q six 2>&1").await {
        return;
    }
    let installed = work(&session, "pip install numpy pandas scipy", "pip install -q numpy pandas scipy 2>&1").await;
    assert_eq!(installed["exit_code"], 0, "{installed}");
    let used = "python -c 'import numpy as n, pandas as p, scipy.linalg as l; a = n.arange(4.0).reshape(2, 2); print(round(l.det(a)), p.DataFrame(a).sum().sum())'";
    assert_eq!(output(&work(&session, "their use", used).await), "-2 6.0\n");
    println!("the disk has {} MiB", disk_bytes(&session).await / MIB);
    daemon.stop().await;
}

/// Projects that bring some hundred packages with them.
const DEPENDENCIES: [&str; 10] = [
    "webpack",
    "webpack-cli",
    "typescript",
    "eslint",
    "mocha",
    "react",
    "react-dom",
    "express",
    "@babel/preset-env",
    "gulp",
];

#[tokio::test]
async fn npm_ci_of_a_large_lock_file_works() {
    let story = "npm_ci_of_a_large_lock_file_works";
    if !is_soak() {
        return skipped(story, "it downloads some hundred packages; scripts/test --soak has it");
    }
    if !has_disks(story) {
        return;
    }
    let daemon = Daemon::start().await;
    let session = daemon.patient().create(json!({ "network": "packages" })).await;
    if session.exec("command -v npm").await["exit_code"] != 0 {
        return skipped(story, "npm is not installed");
    }
    let dependencies: Value = DEPENDENCIES.iter().map(|name| ((*name).to_owned(), json!("*"))).collect();
    session
        .put("app/package.json", json!({ "name": "app", "private": true, "dependencies": dependencies }).to_string())
        .await
        .ok();
    session
        .sh("cd /workspace/app && export npm_config_fund=false npm_config_audit=false npm_config_update_notifier=false")
        .await;
    if !reaches(&session, story, "npm install --package-lock-only --loglevel=error 2>&1").await {
        return;
    }
    let locked =
        output(&work(&session, "the lock file", "grep -c '\"integrity\"' package-lock.json").await).trim().to_owned();
    assert!(locked.parse::<u64>().is_ok_and(|count| count > 300), "{locked} packages are locked");
    let installed = work(&session, &format!("npm ci of {locked} packages"), "npm ci --loglevel=error 2>&1").await;
    assert_eq!(installed["exit_code"], 0, "{installed}");
    let used = "echo 'export const answer: number = 6 * 7; console.log(answer)' > a.ts && npx tsc --ignoreConfig --outDir out a.ts 2>/dev/null || npx tsc --outDir out a.ts; node out/a.js 2>/dev/null";
    assert_eq!(output(&work(&session, "their use", used).await), "42\n");
    let count = work(&session, "a count", "find node_modules -type f | wc -l").await;
    println!("{} files, and the disk has {} MiB", output(&count).trim(), disk_bytes(&session).await / MIB);
    daemon.stop().await;
}

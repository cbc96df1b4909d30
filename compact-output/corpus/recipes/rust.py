"""cargo build, check, test, clippy and run; panics with backtraces."""

PREFIXES = ["cargo", "rust"]

MANIFEST = '[package]\nname = "shop"\nversion = "0.1.0"\nedition = "2021"\n\n[workspace]\n'

GOOD = '''
//! A shop.

/// Adds prices.
///
/// ```
/// assert_eq!(shop::total(&[1, 2]), 3);
/// ```
pub fn total(prices: &[u32]) -> u32 {
    prices.iter().sum()
}

#[cfg(test)]
mod tests {
    use super::*;
%s
}
'''

BROKEN = '''
use std::collections::HashMap;

pub struct Order { id: u32, lines: Vec<String> }

pub fn first(order: &Order) -> String {
    order.lines[0]
}

pub fn count(order: Order) -> u32 {
    let moved = order;
    order.lines.len()
}

pub fn missing() -> Result<(), String> {
    undefined_helper();
    let total: u32 = "three";
    Ok(())
}
'''

LINTS = '''
pub fn names(list: &Vec<String>) -> Vec<String> {
    let unused = 3;
    let mut out = Vec::new();
    for i in 0..list.len() {
        out.push(list[i].clone());
    }
    if out.len() == 0 {
        return out;
    }
    return out;
}
''' + "\n".join(f"pub fn check{n}(list: &Vec<u8>) -> bool {{ let x{n} = 1; list.len() == 0 }}" for n in range(25))


def tests(count, bad=()):
    out = []
    for n in range(count):
        wanted = n + 1 if n in bad else n
        out.append(f"    #[test]\n    fn sums_{n:03}_ones() {{ assert_eq!(total(&vec![1; {n}]), {wanted}, \"sum of {n} ones\"); }}")
    return "\n".join(out)


def make(r):
    def crate(name, lib, extra=""):
        return r.project(name, {"Cargo.toml": MANIFEST.replace('"shop"', f'"{name}"') + extra, "src/lib.rs": lib})

    few = crate("shop", GOOD % tests(6))
    r.record("cargo-test-pass", "cargo", "cargo test", ["6 passed; 0 failed", "1 passed; 0 failed"], few)
    many = crate("warehouse", (GOOD % tests(700)).replace("shop::", "warehouse::"))
    r.record("cargo-test-huge", "cargo", "cargo test --lib", ["700 passed; 0 failed"], many)
    r.record("cargo-test-huge-tty", "cargo", "cargo test --lib --color always", ["700 passed; 0 failed"], many, tty=True)
    bad = crate("stall", (GOOD % tests(300, bad=(7, 31, 250))).replace("shop::", "stall::"))
    facts = ["sums_007_ones", "sums_031_ones", "sums_250_ones", "sum of 250 ones", "297 passed; 3 failed", "src/lib.rs:79:26"]
    r.record("cargo-test-fail", "cargo", "cargo test", facts, bad)
    r.record("cargo-test-fail-backtrace", "cargo", "RUST_BACKTRACE=1 cargo test --lib -- --test-threads=1", facts, bad)
    r.record("cargo-test-fail-quiet", "cargo", "cargo test -q --lib", facts, bad)
    broken = crate("broken", BROKEN)
    errors = ["E0425", "undefined_helper", "src/lib.rs:16:5", "E0308", "src/lib.rs:17:22", "could not compile `broken`"]
    r.record("cargo-build-fail", "cargo", "cargo build", errors, broken)
    r.record("cargo-check-fail-tty", "cargo", "cargo check --color always", errors, broken, tty=True)
    r.record("cargo-test-does-not-compile", "cargo", "cd . && RUST_LOG=debug cargo test 2>&1", errors, broken)
    r.record("cargo-build-short", "cargo", "cargo build --message-format short", errors[1:2] + ["src/lib.rs:16:5", "src/lib.rs:17:22"], broken)
    lints = crate("lints", LINTS)
    r.record("cargo-clippy", "cargo", "cargo clippy", ["src/lib.rs:3:9", "unused variable: `unused`", "needless_return", "src/lib.rs:36:"], lints)
    r.record("cargo-clippy-deny", "cargo", "touch src/lib.rs; cargo clippy --all-targets -- -D warnings",
             ["unused variable: `unused`", "src/lib.rs:5:14", "could not compile `lints`", "x24"], lints)
    r.record("cargo-build-warnings", "cargo", "touch src/lib.rs; cargo build", ["unused variable: `unused`", "generated 26 warnings", "Finished"], lints)
    deps = crate("deps", "pub fn a() {}\n", '\n[dependencies]\nserde_json = "1"\ntempfile = "3"\n')
    r.record("cargo-build-dependencies", "cargo", "cargo build", ["Finished"], deps)
    r.record("cargo-build-dependencies-tty", "cargo", "cargo check --color always", ["Finished"], deps, tty=True)
    r.record("cargo-no-such-crate", "cargo", "cargo build",
             ["no matching package named `no-such-crate-at-all-9`"], crate("nodep", "", '\n[dependencies]\nno-such-crate-at-all-9 = "1"\n'))
    app = r.project("app", {"Cargo.toml": MANIFEST.replace("shop", "app"), "src/main.rs": '''
fn pick(list: &[u32], at: usize) -> u32 {
    list[at]
}

fn main() {
    println!("reading 3 items");
    println!("item 7 is {}", pick(&[1, 2, 3], 7));
}
'''})
    said = ["index out of bounds: the len is 3 but the index is 7", "src/main.rs:3:5", "reading 3 items"]
    r.record("rust-panic", "trace", "cargo run", said, app)
    r.record("rust-panic-backtrace", "trace", "RUST_BACKTRACE=1 cargo run -q", said + ["app::pick"], app)
    r.record("rust-panic-full-backtrace", "trace", "RUST_BACKTRACE=full cargo run -q", said + ["app::pick"], app)
    r.record("cargo-tree", "cargo", "cargo tree", ["serde_json v1", "tempfile v3"], deps)

//! `cove version`: prints the version of `cove` and of the runner that is embedded in it.

use clap::Args;
use serde::Serialize;

use super::exit::Failure;
use super::output::{print, print_json};
use crate::{EMBEDDED_RUNNER, EMBEDDED_RUNNER_LIBC};

const EXAMPLES: &str = "\
Examples:
  cove version
  cove version --json";

/// The version of the HTTP API and of the protocol to the runner: the first part of their paths.
const PROTOCOL: &str = "v1";

/// Show the version
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct VersionArgs {
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Version {
    version: &'static str,
    protocol: &'static str,
    runner: Runner,
}

#[derive(Serialize)]
struct Runner {
    libc: &'static str,
    bytes: usize,
}

pub fn version(args: &VersionArgs) -> Result<u8, Failure> {
    let version = Version {
        version: env!("CARGO_PKG_VERSION"),
        protocol: PROTOCOL,
        runner: Runner { libc: EMBEDDED_RUNNER_LIBC, bytes: EMBEDDED_RUNNER.len() },
    };
    if args.json {
        print_json(&version)?;
    } else {
        let Version { version, protocol, runner } = version;
        print(&format!(
            "cove {version}\nprotocol {protocol}\nembedded runner: static ({}), {} KiB\n",
            runner.libc,
            runner.bytes / 1024
        ))?;
    }
    Ok(0)
}

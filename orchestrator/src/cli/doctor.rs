//! `cove doctor`: shows which protections and limits this host can enforce, and why not the others.

use clap::Args;
use serde::Serialize;

use super::exit::{self, Failure};
use super::output::{Colour, Style, print, print_json};
use super::private::ScratchDir;
use super::table::{Cell, Table};
use crate::config::{Config, ServeFlags};
use crate::doctor::{Finding, FindingState, report};

const EXAMPLES: &str = "\
Examples:
  cove doctor
  cove doctor --json

The exit code is 0 if sandboxes can run here, and 1 if they cannot.";

/// Check whether sandboxes can run on this host, and which limits it can enforce
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct DoctorArgs {
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report<'a> {
    can_run: bool,
    findings: &'a [Finding],
}

pub async fn doctor(args: DoctorArgs) -> Result<u8, Failure> {
    let scratch = scratch()?;
    let findings = report(scratch.path()).await;
    let can_run = can_run(&findings);
    if args.json {
        print_json(&Report { can_run, findings: &findings })?;
    } else {
        print(&table(&findings, Style::for_stdout()))?;
        let verdict = if can_run { "sandboxes can run here" } else { "sandboxes cannot run here" };
        print(&format!("\n{verdict}\n"))?;
    }
    Ok(if can_run { 0 } else { exit::FAILED })
}

/// A directory on the file system of the data directory, because that is where sandboxes have their disks. Who may not write there
/// gets one for temporary files.
fn scratch() -> Result<ScratchDir, Failure> {
    let config = Config::load(&ServeFlags::default()).ok();
    let there = config.as_ref().and_then(|config| config.data_dir.ancestors().find(|path| path.is_dir()));
    there.map_or_else(ScratchDir::new, |there| ScratchDir::below(there).or_else(|_| ScratchDir::new()))
}

fn can_run(findings: &[Finding]) -> bool {
    findings.iter().all(|finding| !finding.needed || finding.state != FindingState::Missing)
}

fn table(findings: &[Finding], style: Style) -> String {
    let mut table = Table::new(&["WHAT", "STATE", "DETAIL"]);
    for finding in findings {
        let (word, colour) = match finding.state {
            FindingState::Enforced => ("enforced", Colour::Green),
            FindingState::Partial => ("partial", Colour::Yellow),
            FindingState::Missing => ("missing", Colour::Red),
        };
        table.row(vec![Cell::new(finding.name), Cell::coloured(word, colour), Cell::new(&finding.detail)]);
        if let Some(remedy) = &finding.remedy {
            table.row(vec![Cell::new(""), Cell::new(""), Cell::coloured(format!("→ {remedy}"), Colour::Dim)]);
        }
    }
    table.render(style)
}

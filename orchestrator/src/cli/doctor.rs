//! `cove doctor`: what this host can enforce, what not, and why.

use clap::Args;
use serde::Serialize;

use super::exit::{self, Failure};
use super::output::{Colour, Dress, print, print_json};
use super::private::ScratchDir;
use super::table::{Cell, Table};
use crate::doctor::{Finding, State, report};

const EXAMPLES: &str = "\
Examples:
  cove doctor
  cove doctor --json

Exit code 0 where sandboxes can run here, 1 where they cannot.";

/// Show what this host can enforce of a sandbox
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
    let scratch = ScratchDir::new()?;
    let findings = report(scratch.path()).await;
    let can_run = can_run(&findings);
    if args.json {
        print_json(&Report { can_run, findings: &findings })?;
    } else {
        print(&table(&findings, Dress::for_stdout()))?;
        let verdict = if can_run { "sandboxes can run here" } else { "sandboxes cannot run here" };
        print(&format!("\n{verdict}\n"))?;
    }
    Ok(if can_run { 0 } else { exit::FAILED })
}

fn can_run(findings: &[Finding]) -> bool {
    findings.iter().all(|finding| !finding.needed || finding.state != State::Missing)
}

fn table(findings: &[Finding], dress: Dress) -> String {
    let mut table = Table::new(&["WHAT", "STATE", "DETAIL"]);
    for finding in findings {
        let (word, colour) = match finding.state {
            State::Enforced => ("enforced", Colour::Green),
            State::Partial => ("partial", Colour::Yellow),
            State::Missing => ("missing", Colour::Red),
        };
        table.row(vec![Cell::new(finding.name), Cell::coloured(word, colour), Cell::new(&finding.detail)]);
        if let Some(remedy) = &finding.remedy {
            table.row(vec![Cell::new(""), Cell::new(""), Cell::coloured(format!("→ {remedy}"), Colour::Dim)]);
        }
    }
    table.render(dress)
}

//! `cove image`: root file systems in the data directory, beside the host's own.

use std::io::IsTerminal;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde::Serialize;

use super::cp::progress::{Meter, bytes};
use super::exit::Failure;
use super::output::{Dress, print, print_json, say};
use super::table::{Cell, Table};
use crate::client::default_data_dir;
use crate::image as images;

const EXAMPLES: &str = "\
Examples:
  docker export $(docker create alpine) | cove image import alpine -
  cove image import mine ./rootfs
  cove image ls
  cove run mine -- cat /etc/os-release";

/// Manage imported root file systems
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct ImageArgs {
    #[command(subcommand)]
    action: Action,
    /// The data directory they are in
    #[arg(long, env = "COVE_DATA_DIR", value_name = "DIR", global = true, hide_env = true)]
    data_dir: Option<PathBuf>,
}

#[derive(Subcommand)]
enum Action {
    /// Make an image of a tar file or a directory
    #[command(after_help = "Example:\n  cove image import alpine alpine-rootfs.tar")]
    Import {
        name: String,
        /// A tar file, not compressed, a directory, or - for standard input
        #[arg(value_name = "TAR|DIR|-")]
        source: PathBuf,
        /// Print a JSON object
        #[arg(long)]
        json: bool,
    },
    /// List images
    #[command(after_help = "Example:\n  cove image ls --json")]
    Ls {
        /// Print a JSON array
        #[arg(long)]
        json: bool,
    },
    /// Remove an image
    #[command(after_help = "Example:\n  cove image rm alpine")]
    Rm { name: String },
}

#[derive(Serialize)]
struct ImageRow {
    name: String,
}

pub fn image(args: &ImageArgs) -> Result<u8, Failure> {
    let data_dir = args.data_dir.clone().filter(|dir| !dir.as_os_str().is_empty()).map_or_else(default_data_dir, Ok)?;
    let images_dir = data_dir.join("images");
    match &args.action {
        Action::Import { name, source, json } => {
            let mut meter = Meter::new(!json && std::io::stderr().is_terminal(), None);
            let imported = images::import(&images_dir, name, source, &mut |total| meter.reached(total));
            meter.finish();
            let imported = imported.map_err(|error| Failure::failed(format!("{:#}", anyhow::Error::from(error))))?;
            if *json {
                print_json(&imported)?;
            } else {
                let skipped = match imported.skipped {
                    0 => String::new(),
                    count => format!("; {count} devices and FIFOs left out"),
                };
                say(format!("imported {name}: {} files, {}{skipped}", imported.files, bytes(imported.bytes)));
            }
        }
        Action::Ls { json } => {
            let names = images::names(&images_dir);
            if *json {
                print_json(&names.into_iter().map(|name| ImageRow { name }).collect::<Vec<_>>())?;
            } else {
                print(&table(&names, Dress::for_stdout()))?;
            }
        }
        Action::Rm { name } => images::remove(&images_dir, name).map_err(|error| Failure::failed(error.to_string()))?,
    }
    Ok(0)
}

fn table(names: &[String], dress: Dress) -> String {
    let mut table = Table::new(&["NAME"]);
    for name in names {
        table.row(vec![Cell::new(name)]);
    }
    table.render(dress)
}

//! `cove image`: root file systems in the data directory, beside the host's own.

use std::io::IsTerminal;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::cp::progress::{Meter, bytes};
use super::exit::Failure;
use super::output::{Dress, print, print_json, say};
use super::stand_in::image;
use super::table::{Cell, Table};
use crate::client::default_data_dir;

const EXAMPLES: &str = "\
Examples:
  docker export $(docker create alpine) | cove image import alpine /dev/stdin
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
        /// A tar file, not compressed, or a directory
        #[arg(value_name = "TAR|DIR")]
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

pub fn image(args: &ImageArgs) -> Result<u8, Failure> {
    let data_dir = args.data_dir.clone().filter(|dir| !dir.as_os_str().is_empty()).map_or_else(default_data_dir, Ok)?;
    let failed = |error: anyhow::Error| Failure::failed(format!("{error:#}"));
    match &args.action {
        Action::Import { name, source, json } => {
            let mut meter = Meter::new(!json && std::io::stderr().is_terminal(), None);
            let imported = image::import(&data_dir, name, source, &mut |total| meter.reached(total));
            meter.finish();
            let imported = imported.map_err(failed)?;
            if *json { print_json(&imported)? } else { say(format!("imported {name}")) }
        }
        Action::Ls { json } => {
            let images = image::list(&data_dir).map_err(failed)?;
            if *json { print_json(&images)? } else { print(&table(&images, Dress::for_stdout()))? }
        }
        Action::Rm { name } => image::remove(&data_dir, name).map_err(failed)?,
    }
    Ok(0)
}

fn table(images: &[image::ImageSummary], dress: Dress) -> String {
    let mut table = Table::new(&["NAME", "SIZE"]);
    for image in images {
        table.row(vec![Cell::new(&image.name), Cell::new(bytes(image.bytes))]);
    }
    table.render(dress)
}

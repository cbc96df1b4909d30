//! `cove image`: imports, lists and removes root file systems in the data directory. It needs no daemon.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use indicatif::BinaryBytes;

use super::exit::Failure;
use super::output::{Style, print, print_json, say};
use super::progress::{Progress, Visibility};
use super::table::{Cell, Table};
use crate::client::default_data_dir;
use crate::image;

const EXAMPLES: &str = "\
Examples:
  docker export $(docker create python:3.12) | cove image import python -
  cove image import mine ./rootfs
  cove image ls
  cove run mine -- cat /etc/os-release";

/// Manage imported root file systems
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct ImageArgs {
    #[command(subcommand)]
    action: Action,
    /// Data directory that holds the images
    #[arg(long, env = "COVE_DATA_DIR", value_name = "DIR", global = true, hide_env = true)]
    data_dir: Option<PathBuf>,
}

#[derive(Subcommand)]
enum Action {
    /// Make an image from a tar file or a directory
    #[command(after_help = "Example:\n  cove image import debian debian-rootfs.tar")]
    Import {
        /// Name of the new image
        name: String,
        /// An uncompressed tar file, a directory, or - for standard input
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
    #[command(after_help = "Example:\n  cove image rm debian")]
    Rm {
        /// Name of the image
        name: String,
    },
}

pub fn image(args: &ImageArgs) -> Result<u8, Failure> {
    let data_dir = args.data_dir.clone().filter(|dir| !dir.as_os_str().is_empty()).map_or_else(default_data_dir, Ok)?;
    let images_dir = data_dir.join("images");
    match &args.action {
        Action::Import { name, source, json } => {
            let mut progress = Progress::new(visibility(*json), size_of_file(source));
            let imported = image::import(&images_dir, name, source, &mut |bytes| progress.set(bytes));
            drop(progress);
            let imported = imported.map_err(|error| Failure::failed(format!("{:#}", anyhow::Error::new(error))))?;
            if *json { print_json(&imported)? } else { say(described(name, &imported)) }
        }
        Action::Ls { json } => {
            let images = image::list(&images_dir);
            if *json { print_json(&images)? } else { print(&table(&images, Style::for_stdout()))? }
        }
        Action::Rm { name } => image::remove(&images_dir, name).map_err(|error| Failure::failed(error.to_string()))?,
    }
    Ok(0)
}

fn visibility(is_json: bool) -> Visibility {
    if !is_json && std::io::stderr().is_terminal() { Visibility::Shown } else { Visibility::Hidden }
}

/// How much there is to read, where that is known beforehand.
fn size_of_file(source: &Path) -> Option<u64> {
    std::fs::metadata(source).ok().filter(std::fs::Metadata::is_file).map(|file| file.len())
}

fn described(name: &str, imported: &image::ImportSummary) -> String {
    let left_out = match imported.skipped {
        0 => String::new(),
        count => format!("; {count} devices and FIFOs were left out, because a sandbox has its own"),
    };
    format!("imported {name}: {} files, {}{left_out}", imported.files, BinaryBytes(imported.bytes))
}

fn table(images: &[image::ImageSummary], style: Style) -> String {
    let mut table = Table::new(&["NAME", "SIZE"]);
    for image in images {
        table.row(vec![Cell::new(&image.name), Cell::new(BinaryBytes(image.bytes).to_string())]);
    }
    table.render(style)
}

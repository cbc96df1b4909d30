//! `cove image`: pulls, imports, lists and removes images in the data directory, without a daemon; and has a daemon make one from a
//! session.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use indicatif::BinaryBytes;
use shared_protocol::api::CommitImageRequest;

use super::connect::DaemonArgs;
use super::exit::{self, Failure};
use super::interrupt::Interrupts;
use super::list::ListForm;
use super::output::{Style, escape_control, print_json, say};
use super::progress::{Progress, Visibility};
use super::session_ref::SessionRef;
use super::table::{Cell, Table};
use crate::client::default_data_dir;
use crate::config::{Config, ServeFlags};
use crate::image::{self, Asker, ImageError, ImageSource, PullPhase, Puller, RunningPull};

const EXAMPLES: &str = "\
Examples:
  cove image pull python:3.12-slim
  cove run python:3.12-slim -- python3 -V
  cove image import mine ./rootfs
  cove image commit 7183cb80-d6c mine
  cove image ls
  cove image prune";

const COMMIT_EXAMPLE: &str = "\
Example:
  cove image commit 7183cb80-d6c with-tools
  cove run with-tools -- tool --version

The session needs a writable root (\"writable_root\": true, or user root). /tmp, /workspace and /home/sandbox are no part of the image.";

/// How many characters of a digest a table shows.
const SHORT_DIGEST: usize = 12;

/// Manage images
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
    /// Pull an image from a registry
    #[command(after_help = "Example:\n  cove image pull debian:bookworm-slim")]
    Pull {
        /// Image, as [HOST[:PORT]/]NAME[:TAG][@DIGEST]
        #[arg(value_name = "IMAGE")]
        reference: String,
        /// Configuration file of the daemon, for [images] [default: ~/.config/cove/cove.toml, then /etc/cove/cove.toml]
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
        /// Print a JSON object
        #[arg(long)]
        json: bool,
    },
    /// Make an image from a tar file or a directory
    #[command(after_help = "Example:\n  cove image import debian debian-rootfs.tar.gz")]
    Import {
        /// Name of the new image
        name: String,
        /// A tar file (plain, gzip or zstd) or a directory with a root file system, an OCI layout or what `docker save` writes; or
        /// - for standard input
        #[arg(value_name = "TAR|DIR")]
        source: PathBuf,
        /// Print a JSON object
        #[arg(long)]
        json: bool,
    },
    /// Make an image from what a session has changed of its root
    #[command(after_help = COMMIT_EXAMPLE)]
    Commit {
        /// Id, beginning of an id, or name of the session, as `cove ps` shows them
        session: SessionRef,
        /// Name of the new image
        name: String,
        /// Address of the daemon, as http://HOST:PORT or unix:PATH
        #[arg(long, env = "COVE_URL", value_name = "URL", hide_env = true)]
        url: Option<String>,
        /// API key of the daemon (default: the one in the data directory)
        #[arg(long, env = "COVE_API_KEY", value_name = "KEY", hide_env = true)]
        api_key: Option<String>,
        /// Print a JSON object
        #[arg(long)]
        json: bool,
    },
    /// List images
    #[command(after_help = "Example:\n  cove image ls --json")]
    Ls {
        /// Configuration file of the daemon, for [images] [default: ~/.config/cove/cove.toml, then /etc/cove/cove.toml]
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
        #[command(flatten)]
        form: ListForm,
    },
    /// Describe an image as JSON: layers, variables, directory
    #[command(after_help = "Example:\n  cove image inspect python:3.12-slim")]
    Inspect {
        /// Name of the image
        name: String,
    },
    /// Remove an image
    #[command(after_help = "Example:\n  cove image rm debian")]
    Rm {
        /// Name of the image
        name: String,
    },
    /// Remove layers that no image and no sandbox uses, and what interrupted pulls left
    #[command(after_help = "Example:\n  cove image prune")]
    Prune {
        /// Print a JSON object
        #[arg(long)]
        json: bool,
    },
}

pub async fn image(args: ImageArgs) -> Result<u8, Failure> {
    let data_dir = args.data_dir.clone().filter(|dir| !dir.as_os_str().is_empty()).map_or_else(default_data_dir, Ok)?;
    let images_dir = data_dir.join("images");
    match &args.action {
        Action::Pull { reference, config, json } => {
            let config = config.clone();
            return pull(&images_dir, reference, ServeFlags { config, ..ServeFlags::default() }, *json).await;
        }
        Action::Import { name, source, json } => {
            let mut progress = Progress::new(visibility(*json), size_of_file(source));
            let imported = image::import(&images_dir, name, source, &mut |bytes| progress.set(bytes));
            drop(progress);
            let imported = imported.map_err(|error| failure(&error))?;
            if *json { print_json(&imported)? } else { say(described(name, &imported)) }
        }
        Action::Commit { session, name, url, api_key, json } => {
            let daemon = DaemonArgs { url: url.clone(), api_key: api_key.clone(), data_dir: args.data_dir.clone() };
            return commit(&daemon, session, name, *json).await;
        }
        Action::Ls { config, form } => {
            let flags = ServeFlags { config: config.clone(), ..ServeFlags::default() };
            let config = Config::load(&flags).map_err(|error| Failure::usage(error.to_string()))?;
            let images = image::list(&images_dir, &config.images.names);
            form.show(&images, |image| escape_control(&image.name), table)?;
        }
        Action::Inspect { name } => {
            print_json(&image::inspect(&images_dir, name).map_err(|error| failure(&error))?)?;
        }
        Action::Rm { name } => {
            image::remove(&images_dir, name).map_err(|error| failure(&error))?;
        }
        Action::Prune { json } => {
            let removed = image::prune(&images_dir).map_err(|error| failure(&error))?;
            if *json {
                print_json(&removed)?;
            } else {
                let (layers, leftovers) = (removed.layers, removed.leftovers);
                say(format!("removed {layers} layers and {leftovers} leftovers: {}", BinaryBytes(removed.bytes)));
            }
        }
    }
    Ok(0)
}

fn failure(error: &ImageError) -> Failure {
    Failure::failed(error.whole())
}

async fn pull(images_dir: &Path, reference: &str, flags: ServeFlags, is_json: bool) -> Result<u8, Failure> {
    let reference: image::Reference = reference.parse().map_err(|error| failure(&ImageError::Reference(error)))?;
    let config = Config::load(&flags).map_err(|error| Failure::usage(error.to_string()))?;
    let mut interrupts = Interrupts::new()?;
    let puller = Puller::new(images_dir, config.images);
    let pull = puller.pull(&reference, Asker::Admin).map_err(|error| failure(&error))?;
    let pulled = tokio::select! {
        pulled = shown(pull, visibility(is_json)) => pulled,
        signal = interrupts.next() => return Ok(exit::signalled(signal)),
    };
    let pulled = pulled.map_err(|error| failure(&error))?;
    let summary = image::inspect(images_dir, &pulled).map_err(|error| failure(&error))?.summary;
    if is_json {
        print_json(&summary)?;
    } else {
        let digest = summary.digest.map(|digest| format!(" ({digest})")).unwrap_or_default();
        say(format!("pulled {}: {}{digest}", summary.name, BinaryBytes(summary.bytes)));
    }
    Ok(0)
}

async fn commit(daemon: &DaemonArgs, session: &SessionRef, image: &str, is_json: bool) -> Result<u8, Failure> {
    let client = daemon.client()?;
    let wanted = CommitImageRequest { session_id: session.find(&client).await?, image: image.to_owned() };
    let mut interrupts = Interrupts::new()?;
    let mut progress = Progress::new(visibility(is_json), None);
    let committing = client.commit_image(&wanted, |status| progress.set(status.bytes));
    let committed = tokio::select! {
        committed = committing => committed,
        // The daemon goes on.
        signal = interrupts.next() => return Ok(exit::signalled(signal)),
    };
    drop(progress);
    let image = committed?;
    if is_json {
        print_json(&image)?;
    } else {
        say(format!("committed {}: {}", image.name, BinaryBytes(image.bytes)));
    }
    Ok(0)
}

/// Shows how far a pull is until it is done, and returns the image's name.
async fn shown(mut pull: RunningPull, visibility: Visibility) -> Result<String, std::sync::Arc<ImageError>> {
    let mut progress: Option<Progress> = None;
    let mut is_waiting = false;
    loop {
        tokio::select! {
            done = pull.done.clone() => return done.map(|image| image.name.clone()),
            Ok(()) = pull.status.changed() => {
                let status = *pull.status.borrow_and_update();
                if status.phase == PullPhase::Waiting && !is_waiting {
                    is_waiting = true;
                    say("another pull has a layer of this image; waiting for it");
                }
                if status.total_bytes > 0 {
                    let bar = progress.get_or_insert_with(|| Progress::new(visibility, Some(status.total_bytes)));
                    bar.set(status.bytes);
                }
            }
        }
    }
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
    let mut table = Table::new(&["NAME", "SOURCE", "DIGEST", "SIZE", "SHARED", "CREATED"]);
    for image in images {
        let digest =
            image.digest.as_ref().map_or_else(|| "-".to_owned(), |digest| digest.hex()[..SHORT_DIGEST].to_owned());
        // The day is enough here; `inspect` has the whole.
        let created = image.created.as_ref().map_or_else(|| "-".to_owned(), |time| time.chars().take(10).collect());
        let has_files = matches!(image.source, ImageSource::Import | ImageSource::Registry | ImageSource::Commit);
        let size = |bytes: u64| if has_files { BinaryBytes(bytes).to_string() } else { "-".to_owned() };
        table.row(vec![
            Cell::new(escape_control(&image.name)),
            Cell::new(escape_control(&image.source.to_string())),
            Cell::new(digest),
            Cell::new(size(image.bytes)),
            Cell::new(size(image.shared_bytes)),
            Cell::new(escape_control(&created)),
        ]);
    }
    table.render(style)
}

//! `cove cp`: files and directories between here and a session, and between two sessions.
//!
//! A file travels raw, a directory as a tar stream; neither is ever whole in memory. What is copied into a session is all or
//! nothing for a file; a local file appears under its name only when it is whole.

mod local;
mod pack;
mod pipe;
mod place;
pub mod progress;
mod unpack;

use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use clap::Args;
use shared_protocol::SessionId;
use shared_protocol::runner::{FileKind, FileView};
use tokio::io::AsyncWriteExt;

use super::connect::Daemon;
use super::exit::{self, Failure};
use super::interrupt::Interrupts;
use super::output::{say, tame};
use crate::client::{Body, Client, Download};
use place::{Misplaced, Place, There, What, local_path, target};
use progress::Meter;

const EXAMPLES: &str = "\
Examples:
  cove cp data.csv 7183cb80-d6c:                    into /workspace
  cove cp 7183cb80-d6c:out/report.pdf .
  cove cp ./project 7183cb80-d6c:/workspace/src     a directory, with modes and links
  cove cp 7183cb80-d6c:src - | tar tf -             a directory as a tar stream
  tar c . | cove cp - 7183cb80-d6c:src/             and a tar stream into a directory
  echo hi | cove cp - 7183cb80-d6c:greeting

A relative path in a session is below /workspace. SRC/. means what is in SRC. A local name with a colon
is written ./a:b.";

const MODE_BITS: u32 = 0o777;
/// For the local side to say why it failed, once the other has.
const LOCAL_PATIENCE: Duration = Duration::from_secs(1);

/// Copy files and directories into and out of a session
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct CpArgs {
    /// SESSION:PATH, a local path, or - for standard input
    #[arg(value_name = "SRC")]
    source: OsString,
    /// SESSION:PATH, a local path, or - for standard output
    #[arg(value_name = "DST")]
    destination: OsString,
    /// No progress bar
    #[arg(short = 'q', long)]
    quiet: bool,
    #[command(flatten)]
    daemon: Daemon,
}

pub async fn cp(args: CpArgs) -> Result<u8, Failure> {
    let (source, destination) = (Place::parse(&args.source), Place::parse(&args.destination));
    let is_remote = |place: &Place| matches!(place, Place::Session { .. });
    if !is_remote(&source) && !is_remote(&destination) {
        return Err(Failure::usage(
            "one of the two must be in a session, as SESSION:PATH; for a copy here there is cp",
        ));
    }
    let copy = Copy { client: args.daemon.client()?, watched: !args.quiet && io::stderr().is_terminal() };
    let mut interrupts = Interrupts::new()?;
    tokio::select! {
        result = copy.copy(&source, &destination) => result.map(|()| 0),
        signal = interrupts.next() => Ok(exit::signalled(signal)),
    }
}

struct Copy {
    client: Client,
    /// Somebody watches, and is shown how far it is.
    watched: bool,
}

/// What comes out of a session.
struct Coming {
    download: Download,
    view: FileView,
    what: What,
}

impl Copy {
    async fn copy(&self, source: &Place, destination: &Place) -> Result<(), Failure> {
        match (source, destination) {
            (Place::Session { id, path }, Place::Local(to)) => self.to_local(id, path, to).await,
            (Place::Session { id, path }, Place::Stream) => self.to_stdout(id, path).await,
            (Place::Session { id, path }, Place::Session { id: to_id, path: to }) => {
                let Coming { download, view, what } = self.coming(id, path).await?;
                let to = self.remote_target(path, what, to_id, to).await?;
                let body = local::relay(download, self.meter(size(&view, what)));
                self.put(to_id, &to, what, Some(view.mode & MODE_BITS), body).await
            }
            (Place::Local(from), Place::Session { id, path }) => self.send_local(from, id, path).await,
            (Place::Stream, Place::Session { id, path }) => self.send_stdin(id, path).await,
            (Place::Local(_) | Place::Stream, Place::Local(_) | Place::Stream) => Ok(()),
        }
    }

    fn meter(&self, total: Option<u64>) -> Meter {
        Meter::new(self.watched, total)
    }

    async fn coming(&self, id: &SessionId, path: &[u8]) -> Result<Coming, Failure> {
        let view = self.client.stat(id, path).await?;
        let (what, download) = match view.kind {
            FileKind::Directory => (What::Directory, self.client.read_archive(id, path).await?),
            _ => (What::File, self.client.read_file(id, path).await?),
        };
        Ok(Coming { download, view, what })
    }

    async fn to_local(&self, id: &SessionId, path: &[u8], to: &Path) -> Result<(), Failure> {
        let there = local_there(to)?;
        let Coming { download, view, what } = self.coming(id, path).await?;
        let to = target(path, what, to.as_os_str().as_bytes(), there)
            .map_err(|why| misplaced(why, &to.display().to_string()))?;
        let (to, meter) = (local_path(to), self.meter(size(&view, what)));
        match what {
            What::File => local::write_file(download, &to, view.mode & MODE_BITS, meter).await,
            What::Directory => local::write_directory(download, to, meter).await,
        }
    }

    async fn to_stdout(&self, id: &SessionId, path: &[u8]) -> Result<(), Failure> {
        let Coming { mut download, view, what } = self.coming(id, path).await?;
        if what == What::Directory && io::stdout().is_terminal() {
            return Err(Failure::usage("a directory is a tar stream, which is not for a terminal; redirect it"));
        }
        // On a terminal the content itself is what is seen.
        let watched = self.watched && !io::stdout().is_terminal();
        let mut meter = Meter::new(watched, size(&view, what));
        let mut stdout = tokio::io::stdout();
        while let Some(bytes) = download.next().await? {
            stdout.write_all(&bytes).await.map_err(|e| Failure::stdout(&e))?;
            meter.add(bytes.len() as u64);
        }
        stdout.flush().await.map_err(|e| Failure::stdout(&e))
    }

    async fn send_local(&self, from: &Path, id: &SessionId, to: &[u8]) -> Result<(), Failure> {
        let shown = tame(&from.display().to_string());
        let failed = |e: io::Error| Failure::failed(format!("{shown}: {e}"));
        let metadata = std::fs::metadata(from).map_err(failed)?;
        let what = if metadata.is_dir() { What::Directory } else { What::File };
        let to = self.remote_target(from.as_os_str().as_bytes(), what, id, to).await?;
        match what {
            What::File => {
                let file = std::fs::File::open(from).map_err(failed)?;
                let total = Some(metadata.len()).filter(|_| metadata.is_file());
                let (reading, body) = local::reading(file, self.meter(total));
                self.upload(reading, self.put(id, &to, what, Some(metadata.mode() & MODE_BITS), body)).await
            }
            What::Directory => {
                let total = if self.watched { Some(pack::measure(from)) } else { None };
                let (packing, body) = local::packing(from.to_owned(), self.meter(total));
                self.upload(packing, self.put(id, &to, what, None, body)).await
            }
        }
    }

    /// What goes wrong here explains what goes wrong there, and is said in its place.
    async fn upload(
        &self,
        here: tokio::task::JoinHandle<Result<Vec<String>, Failure>>,
        there: impl Future<Output = Result<(), Failure>>,
    ) -> Result<(), Failure> {
        let sent = there.await;
        let skipped = match tokio::time::timeout(LOCAL_PATIENCE, here).await {
            Ok(done) => done.map_err(|e| Failure::failed(e.to_string()))?,
            // It waits for input that no longer matters, and ends with the process.
            Err(_) => return sent,
        };
        for name in skipped? {
            say(format!("passed over {name}: it is neither a file, nor a directory, nor a link"));
        }
        sent
    }

    async fn send_stdin(&self, id: &SessionId, to: &[u8]) -> Result<(), Failure> {
        let there = self.remote_there(id, to).await?;
        let what = if there == There::Directory || to.ends_with(b"/") { What::Directory } else { What::File };
        let (reading, body) = local::reading(io::stdin(), self.meter(None));
        self.upload(reading, self.put(id, to, what, None, body)).await
    }

    async fn put(&self, id: &SessionId, to: &[u8], what: What, mode: Option<u32>, body: Body) -> Result<(), Failure> {
        match what {
            What::File => self.client.write_file(id, to, mode, body).await?,
            What::Directory => self.client.write_archive(id, to, body).await?,
        };
        Ok(())
    }

    async fn remote_there(&self, id: &SessionId, path: &[u8]) -> Result<There, Failure> {
        match self.client.stat(id, path).await {
            Ok(view) if view.kind == FileKind::Directory => Ok(There::Directory),
            Ok(_) => Ok(There::Other),
            Err(error) if error.is("FILE_NOT_FOUND") => Ok(There::Nothing),
            Err(error) => Err(error.into()),
        }
    }

    async fn remote_target(&self, source: &[u8], what: What, id: &SessionId, to: &[u8]) -> Result<Vec<u8>, Failure> {
        let there = self.remote_there(id, to).await?;
        target(source, what, to, there).map_err(|why| misplaced(why, &format!("{id}:{}", String::from_utf8_lossy(to))))
    }
}

fn size(view: &FileView, what: What) -> Option<u64> {
    (what == What::File).then_some(view.size)
}

fn local_there(path: &Path) -> Result<There, Failure> {
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => Ok(There::Directory),
        Ok(_) => Ok(There::Other),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(There::Nothing),
        Err(error) => Err(Failure::failed(format!("{}: {error}", path.display()))),
    }
}

fn misplaced(why: Misplaced, destination: &str) -> Failure {
    let destination = tame(destination);
    Failure::failed(match why {
        Misplaced::DirectoryOntoFile => format!("{destination} is a file, and a directory cannot be copied onto it"),
        Misplaced::NoDirectory => format!("there is no directory {destination}"),
        Misplaced::NoName => format!("{destination} is a directory, and the source has no name to have in it"),
    })
}

//! `cove cp`: copies files and directories between this host and a session, or between two sessions.
//!
//! A file is sent as it is, a directory as a tar stream; neither is ever whole in memory. A file appears under its name only when
//! it is complete, in a session and on this host.

mod local;
mod pack;
mod pipe;
mod place;
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

use super::connect::DaemonArgs;
use super::exit::{self, Failure};
use super::interrupt::Interrupts;
use super::output::{escape_control, say};
use super::progress::{Progress, Visibility};
use super::session_ref::SessionRef;
use crate::client::{Body, Client, Download};
pub use place::Place;
use place::{Existing, SourceKind, TargetError, local_path, target};

const EXAMPLES: &str = "\
Examples:
  cove cp data.csv 7183cb80-d6c:                    into /workspace
  cove cp web:out/report.pdf .                      by the name of a session
  cove cp ./project 7183cb80-d6c:/workspace/src     a directory, with modes and links
  cove cp 7183cb80-d6c:src - | tar tf -             a directory as a tar stream
  tar c . | cove cp - 7183cb80-d6c:src/             a tar stream into a directory
  echo hi | cove cp - 7183cb80-d6c:greeting

A relative path in a session is below /workspace. SRC/. means the content of SRC. Write a local name
that contains a colon as ./a:b.";

const MODE_BITS: u32 = 0o777;
/// The longest wait for the local side to report its own error, once the other side has failed.
const LOCAL_TIMEOUT: Duration = Duration::from_secs(1);

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
    /// Show no progress bar
    #[arg(short = 'q', long)]
    quiet: bool,
    #[command(flatten)]
    daemon: DaemonArgs,
}

pub async fn cp(args: CpArgs) -> Result<u8, Failure> {
    let (source, destination) = (Place::parse(&args.source), Place::parse(&args.destination));
    let is_remote = |place: &Place| matches!(place, Place::Session { .. });
    if !is_remote(&source) && !is_remote(&destination) {
        return Err(Failure::usage(
            "one of the two paths must be in a session, as SESSION:PATH; use cp to copy on this host",
        ));
    }
    let copy = Copy { client: args.daemon.client()?, visibility: visibility(args.quiet) };
    let mut interrupts = Interrupts::new()?;
    let work = async {
        let (source, destination) = (copy.found(source).await?, copy.found(destination).await?);
        copy.copy(&source, &destination).await
    };
    tokio::select! {
        result = work => result.map(|()| 0),
        signal = interrupts.next() => Ok(exit::signalled(signal)),
    }
}

/// Copies between places whose sessions are known by their ids.
pub async fn copy(client: &Client, source: &Place, destination: &Place, quiet: bool) -> Result<(), Failure> {
    Copy { client: client.clone(), visibility: visibility(quiet) }.copy(source, destination).await
}

fn visibility(quiet: bool) -> Visibility {
    match !quiet && io::stderr().is_terminal() {
        true => Visibility::Shown,
        false => Visibility::Hidden,
    }
}

struct Copy {
    client: Client,
    /// Whether progress bars are shown.
    visibility: Visibility,
}

/// A file or directory that comes out of a session.
struct Incoming {
    download: Download,
    view: FileView,
    what: SourceKind,
}

impl Copy {
    /// A place whose session is known by its id.
    async fn found(&self, place: Place) -> Result<Place, Failure> {
        Ok(match place {
            Place::Session { id, path } => Place::Session { id: SessionRef::from(id).find(&self.client).await?, path },
            other => other,
        })
    }

    async fn copy(&self, source: &Place, destination: &Place) -> Result<(), Failure> {
        match (source, destination) {
            (Place::Session { id, path }, Place::Local(to)) => self.to_local(id, path, to).await,
            (Place::Session { id, path }, Place::Stream) => self.to_stdout(id, path).await,
            (Place::Session { id, path }, Place::Session { id: to_id, path: to }) => {
                let Incoming { download, view, what } = self.incoming(id, path).await?;
                let to = self.remote_target(path, what, to_id, to).await?;
                let body = local::relay(download, self.progress(size(&view, what)));
                self.put(to_id, &to, what, Some(view.mode & MODE_BITS), body).await
            }
            (Place::Local(from), Place::Session { id, path }) => self.send_local(from, id, path).await,
            (Place::Stream, Place::Session { id, path }) => self.send_stdin(id, path).await,
            (Place::Local(_) | Place::Stream, Place::Local(_) | Place::Stream) => Ok(()),
        }
    }

    fn progress(&self, total: Option<u64>) -> Progress {
        Progress::new(self.visibility, total)
    }

    async fn incoming(&self, id: &SessionId, path: &[u8]) -> Result<Incoming, Failure> {
        let view = self.client.stat(id, path).await?;
        let (what, download) = match view.kind {
            FileKind::Directory => (SourceKind::Directory, self.client.read_archive(id, path).await?),
            _ => (SourceKind::File, self.client.read_file(id, path).await?),
        };
        Ok(Incoming { download, view, what })
    }

    async fn to_local(&self, id: &SessionId, path: &[u8], to: &Path) -> Result<(), Failure> {
        let there = local_existing(to)?;
        let Incoming { download, view, what } = self.incoming(id, path).await?;
        let to = target(path, what, to.as_os_str().as_bytes(), there)
            .map_err(|why| target_failure(why, &to.display().to_string()))?;
        let (to, progress) = (local_path(to), self.progress(size(&view, what)));
        match what {
            SourceKind::File => local::write_file(download, &to, view.mode & MODE_BITS, progress).await,
            SourceKind::Directory => local::write_directory(download, to, progress).await,
        }
    }

    async fn to_stdout(&self, id: &SessionId, path: &[u8]) -> Result<(), Failure> {
        let Incoming { mut download, view, what } = self.incoming(id, path).await?;
        if what == SourceKind::Directory && io::stdout().is_terminal() {
            return Err(Failure::usage(
                "a directory becomes a tar stream, which a terminal cannot show; redirect the output",
            ));
        }
        // On a terminal the content itself is shown.
        let visibility = if io::stdout().is_terminal() { Visibility::Hidden } else { self.visibility };
        let mut progress = Progress::new(visibility, size(&view, what));
        let mut stdout = tokio::io::stdout();
        while let Some(bytes) = download.next().await? {
            stdout.write_all(&bytes).await.map_err(|e| Failure::stdout(&e))?;
            progress.add(bytes.len() as u64);
        }
        stdout.flush().await.map_err(|e| Failure::stdout(&e))
    }

    async fn send_local(&self, from: &Path, id: &SessionId, to: &[u8]) -> Result<(), Failure> {
        let shown = escape_control(&from.display().to_string());
        let failed = |e: io::Error| Failure::failed(format!("{shown}: {e}"));
        let metadata = std::fs::metadata(from).map_err(failed)?;
        let what = if metadata.is_dir() { SourceKind::Directory } else { SourceKind::File };
        let to = self.remote_target(from.as_os_str().as_bytes(), what, id, to).await?;
        match what {
            SourceKind::File => {
                let file = std::fs::File::open(from).map_err(failed)?;
                let total = Some(metadata.len()).filter(|_| metadata.is_file());
                let (reading, body) = local::reading(file, self.progress(total));
                self.upload(reading, self.put(id, &to, what, Some(metadata.mode() & MODE_BITS), body)).await
            }
            SourceKind::Directory => {
                let total = (self.visibility == Visibility::Shown).then(|| pack::measure(from));
                let (packing, body) = local::packing(from.to_owned(), self.progress(total));
                self.upload(packing, self.put(id, &to, what, None, body)).await
            }
        }
    }

    /// Waits for an upload. An error of the local side explains the error of the other side, and is reported instead of it.
    async fn upload(
        &self,
        here: tokio::task::JoinHandle<Result<Vec<String>, Failure>>,
        there: impl Future<Output = Result<(), Failure>>,
    ) -> Result<(), Failure> {
        let sent = there.await;
        let skipped = match tokio::time::timeout(LOCAL_TIMEOUT, here).await {
            Ok(done) => done.map_err(|e| Failure::failed(e.to_string()))?,
            // It still waits for input, which no longer matters.
            Err(_) => return sent,
        };
        for name in skipped? {
            say(format!("skipped {name}: it is neither a file, a directory nor a link"));
        }
        sent
    }

    async fn send_stdin(&self, id: &SessionId, to: &[u8]) -> Result<(), Failure> {
        let there = self.remote_existing(id, to).await?;
        let what =
            if there == Existing::Directory || to.ends_with(b"/") { SourceKind::Directory } else { SourceKind::File };
        let (reading, body) = local::reading(io::stdin(), self.progress(None));
        self.upload(reading, self.put(id, to, what, None, body)).await
    }

    async fn put(
        &self,
        id: &SessionId,
        to: &[u8],
        what: SourceKind,
        mode: Option<u32>,
        body: Body,
    ) -> Result<(), Failure> {
        match what {
            SourceKind::File => self.client.write_file(id, to, mode, body).await?,
            SourceKind::Directory => self.client.write_archive(id, to, body).await?,
        };
        Ok(())
    }

    async fn remote_existing(&self, id: &SessionId, path: &[u8]) -> Result<Existing, Failure> {
        match self.client.stat(id, path).await {
            Ok(view) if view.kind == FileKind::Directory => Ok(Existing::Directory),
            Ok(_) => Ok(Existing::Other),
            Err(error) if error.is("FILE_NOT_FOUND") => Ok(Existing::Nothing),
            Err(error) => Err(error.into()),
        }
    }

    async fn remote_target(
        &self,
        source: &[u8],
        what: SourceKind,
        id: &SessionId,
        to: &[u8],
    ) -> Result<Vec<u8>, Failure> {
        let there = self.remote_existing(id, to).await?;
        target(source, what, to, there)
            .map_err(|why| target_failure(why, &format!("{id}:{}", String::from_utf8_lossy(to))))
    }
}

fn size(view: &FileView, what: SourceKind) -> Option<u64> {
    (what == SourceKind::File).then_some(view.size)
}

fn local_existing(path: &Path) -> Result<Existing, Failure> {
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => Ok(Existing::Directory),
        Ok(_) => Ok(Existing::Other),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Existing::Nothing),
        Err(error) => Err(Failure::failed(format!("{}: {error}", path.display()))),
    }
}

fn target_failure(why: TargetError, destination: &str) -> Failure {
    let destination = escape_control(destination);
    Failure::failed(match why {
        TargetError::DirectoryOntoFile => format!("{destination} is a file; a directory cannot be copied onto it"),
        TargetError::NoDirectory => format!("there is no directory {destination}"),
        TargetError::NoName => format!("{destination} is a directory; give a file name, because the source has none"),
    })
}

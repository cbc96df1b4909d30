//! File operations for clients. Each runs in its own process, as the sandbox user; those of a whole disk as the runner's.
//!
//! ```text
//! http::files → Job → helper (runner's side) ═ two pipes ═ perform (forked, sandbox user) → resolve → ops | list |
//!                                                              transfer | pack | unpack | watch | gather
//! ```
//!
//! A job is a value: the client's request, checked as far as possible without touching a file. The runner forks. The child
//! does plain blocking work and writes its reply with the status. The runner passes the reply on and reads only its frames.
//! So a dead mount, a FIFO or a hostile tree can hang or exhaust a child, which is then killed, but never the runner.
//!
//! **Invariant:** in this folder only `helper` runs in the runner's own process, and it opens no path.

pub mod disk;
pub mod error;
#[cfg(test)]
mod fixture;
#[cfg(any(test, fuzzing))]
#[path = "fuzz_test.rs"]
pub mod fuzz;
pub mod gather;
pub mod helper;
pub mod inode;
pub mod list;
pub mod ops;
pub mod pack;
pub mod protocol;
pub mod resolve;
pub mod temporary;
pub mod transfer;
pub mod tree;
pub mod unpack;
pub mod watch;

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use shared_protocol::ErrorBody;

use error::At;
pub use helper::FileOperations;
use protocol::{BodyReader, HelperResult, ReplyWriter};
use resolve::FinalLink;
pub use resolve::Roots;
use transfer::Range;

/// A path as a client sent it: any bytes except NUL.
pub type RawPath = Vec<u8>;

/// One file operation that a client asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Job {
    Read {
        path: RawPath,
        range: Option<Range>,
    },
    Write {
        path: RawPath,
        mode: Option<u32>,
    },
    Stat {
        path: RawPath,
        last: FinalLink,
    },
    List {
        path: RawPath,
        recursive: bool,
    },
    Mkdir {
        path: RawPath,
        parents: bool,
        mode: Option<u32>,
    },
    Move {
        from: RawPath,
        to: RawPath,
        overwrite: bool,
    },
    Delete {
        path: RawPath,
        recursive: bool,
    },
    Pack {
        path: RawPath,
    },
    Unpack {
        path: RawPath,
    },
    Watch {
        path: RawPath,
        depth: watch::Depth,
    },
    /// What the body names: directories to list and files to read.
    Gather,
    /// All files of these directories, whoever may read them.
    PackDisk {
        directories: Vec<RawPath>,
    },
    UnpackDisk {
        directories: Vec<RawPath>,
    },
}

impl Job {
    /// The job's name in logs.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Read { .. } => "read",
            Self::Write { .. } => "write",
            Self::Stat { .. } => "stat",
            Self::List { .. } => "list",
            Self::Mkdir { .. } => "mkdir",
            Self::Move { .. } => "move",
            Self::Delete { .. } => "delete",
            Self::Pack { .. } => "pack",
            Self::Unpack { .. } => "unpack",
            Self::Watch { .. } => "watch",
            Self::Gather => "gather",
            Self::PackDisk { .. } => "pack disk",
            Self::UnpackDisk { .. } => "unpack disk",
        }
    }

    /// Whether the job reads the request's body.
    pub fn takes_body(&self) -> bool {
        matches!(self, Self::Write { .. } | Self::Unpack { .. } | Self::Gather | Self::UnpackDisk { .. })
    }
}

/// The main function of a helper process: performs the job and writes the reply.
pub fn perform(roots: &Roots, job: &Job, input: OwnedFd, output: OwnedFd) {
    let (input, mut output) = (File::from(input), File::from(output));
    let mut reader = &input;
    let (mut body, mut reply) = (BodyReader::new(&mut reader), ReplyWriter::new(&mut output));
    if let Err(error) = dispatch(roots, job, &mut body, input.as_fd(), &mut reply) {
        // If this fails too, the runner is gone or has given up, and nobody reads the reply.
        let _ = reply.outcome(&HelperResult::Failed(error));
    }
}

/// Performs a job. `client` is closed by its other side when the client leaves.
fn dispatch(
    roots: &Roots,
    job: &Job,
    body: &mut BodyReader<'_>,
    client: BorrowedFd<'_>,
    reply: &mut ReplyWriter<'_>,
) -> Result<(), ErrorBody> {
    match job {
        Job::Read { path, range } => transfer::read(roots, path, *range, reply),
        Job::Write { path, mode } => transfer::write(roots, path, *mode, body, reply),
        Job::Stat { path, last } => reply.json(200, &ops::stat(roots, path, *last)?).at(path),
        Job::List { path, recursive } => list::list(roots, path, *recursive, reply),
        Job::Mkdir { path, parents, mode } => reply.json(201, &ops::mkdir(roots, path, *parents, *mode)?).at(path),
        Job::Move { from, to, overwrite } => reply.json(200, &ops::rename(roots, from, to, *overwrite)?).at(to),
        Job::Delete { path, recursive } => {
            ops::delete(roots, path, *recursive, reply)?;
            reply.json(200, &serde_json::json!({ "ok": true })).at(path)
        }
        Job::Pack { path } => pack::pack(roots, path, reply),
        Job::Unpack { path } => unpack::unpack(roots, path, body, reply),
        Job::Watch { path, depth } => watch::watch(roots, path, *depth, client, reply),
        Job::Gather => gather::gather(roots, body, reply),
        Job::PackDisk { directories } => disk::pack::pack(directories, reply),
        Job::UnpackDisk { directories } => disk::unpack::unpack(directories, body, reply),
    }
}

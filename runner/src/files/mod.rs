//! File operations for a client, each in a process of its own, as the sandbox user.
//!
//! ```text
//! http::files → Job → helper (runner's side) ═ two pipes ═ perform (forked, sandbox user) → resolve → ops | list |
//!                                                              transfer | archive | unpack
//! ```
//!
//! A job is a value: what the client wants, checked as far as it can be without looking at a file. The runner forks; the
//! child does plain blocking work and writes its answer, status included; the runner passes it on and understands nothing
//! of it but its frame. So a dead mount, a FIFO or a hostile tree can hang or exhaust a child, which is then killed, and
//! never the runner.
//!
//! **Invariant:** in this folder only `helper` runs in the runner's own process, and it opens no path.

pub mod archive;
pub mod channel;
pub mod error;
#[cfg(test)]
mod ground;
pub mod helper;
pub mod list;
pub mod node;
pub mod ops;
pub mod resolve;
pub mod tar_stream;
pub mod temporary;
pub mod transfer;
pub mod tree;
pub mod unpack;

use std::fs::File;
use std::os::fd::OwnedFd;

use shared_protocol::ErrorBody;

use channel::{Answer, Intake, Outcome};
use error::At;
use resolve::{Last, Places};
use transfer::Range;

/// A path as a client gave it: any bytes but NUL.
pub type RawPath = Vec<u8>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Job {
    Read { path: RawPath, range: Option<Range> },
    Write { path: RawPath, mode: Option<u32> },
    Stat { path: RawPath, last: Last },
    List { path: RawPath, recursive: bool },
    Mkdir { path: RawPath, parents: bool, mode: Option<u32> },
    Move { from: RawPath, to: RawPath, overwrite: bool },
    Delete { path: RawPath, recursive: bool },
    Pack { path: RawPath },
    Unpack { path: RawPath },
}

impl Job {
    /// For logs.
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
        }
    }

    /// Whether the request's body is part of it.
    pub fn takes_body(&self) -> bool {
        matches!(self, Self::Write { .. } | Self::Unpack { .. })
    }
}

/// The whole life of a helper after it was set up.
pub fn perform(places: &Places, job: &Job, input: OwnedFd, output: OwnedFd) {
    let (mut input, mut output) = (File::from(input), File::from(output));
    let (mut intake, mut answer) = (Intake::new(&mut input), Answer::new(&mut output));
    if let Err(error) = dispatch(places, job, &mut intake, &mut answer) {
        // Where even this cannot be said, the runner is gone or has given up: nobody is listening.
        let _ = answer.outcome(&Outcome::Failed(error));
    }
}

fn dispatch(places: &Places, job: &Job, intake: &mut Intake<'_>, answer: &mut Answer<'_>) -> Result<(), ErrorBody> {
    match job {
        Job::Read { path, range } => transfer::read(places, path, *range, answer),
        Job::Write { path, mode } => transfer::write(places, path, *mode, intake, answer),
        Job::Stat { path, last } => answer.json(200, &ops::stat(places, path, *last)?).at(path),
        Job::List { path, recursive } => list::list(places, path, *recursive, answer),
        Job::Mkdir { path, parents, mode } => answer.json(201, &ops::mkdir(places, path, *parents, *mode)?).at(path),
        Job::Move { from, to, overwrite } => answer.json(200, &ops::rename(places, from, to, *overwrite)?).at(to),
        Job::Delete { path, recursive } => {
            ops::delete(places, path, *recursive, answer)?;
            answer.json(200, &serde_json::json!({ "ok": true })).at(path)
        }
        Job::Pack { path } => archive::pack(places, path, answer),
        Job::Unpack { path } => unpack::unpack(places, path, intake, answer),
    }
}

//! A test fixture: a root directory with a workspace in it, and a directory outside that nothing may reach.

use std::os::fd::AsFd;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use super::protocol::ReplyWriter;
use super::protocol::tests::{heard, sent};
use super::protocol::{BodyReader, HelperResult};
use super::resolve::Roots;
use super::{Job, dispatch};

pub struct Fixture {
    dir: tempfile::TempDir,
    pub roots: Roots,
}

impl Fixture {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("root/ws")).unwrap();
        std::fs::create_dir(dir.path().join("outside")).unwrap();
        std::fs::write(dir.path().join("outside/secret"), b"secret").unwrap();
        let root = dir.path().join("root");
        let roots = Roots::new(&root, &root.join("ws"));
        Self { dir, roots }
    }

    pub fn root(&self) -> PathBuf {
        self.dir.path().join("root")
    }

    pub fn workspace(&self) -> PathBuf {
        self.dir.path().join("root/ws")
    }

    pub fn outside(&self) -> PathBuf {
        self.dir.path().join("outside")
    }

    /// Makes a file in the workspace, with the directories that lead to it.
    pub fn file(&self, path: &str, content: &[u8]) {
        let path = self.workspace().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    pub fn link(&self, text: impl AsRef<Path>, path: &str) {
        symlink(text, self.workspace().join(path)).unwrap();
    }

    pub fn content(&self, path: &str) -> Vec<u8> {
        std::fs::read(self.workspace().join(path)).unwrap()
    }

    /// The names in the workspace, sorted.
    pub fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.workspace()).unwrap();
        let mut names: Vec<String> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// Makes nested directories, `d/d/d…`, deeper than a path can be long.
    pub fn deep(&self, levels: usize) {
        use nix::fcntl::{OFlag, openat};
        use nix::sys::stat::{Mode, mkdirat};
        let mut dir: std::os::fd::OwnedFd = std::fs::File::open(self.workspace()).unwrap().into();
        for _ in 0..levels {
            mkdirat(&dir, "d", Mode::S_IRWXU).unwrap();
            dir = openat(&dir, "d", OFlag::O_DIRECTORY, Mode::empty()).unwrap();
        }
    }

    /// Runs a job in this process. Returns its result, and its data if the reply was ended.
    pub fn run(&self, job: &Job) -> (HelperResult, Option<Vec<u8>>) {
        self.run_with(job, &sent(b"", 1, true))
    }

    /// The same as `run`, with the body that the runner sends.
    pub fn run_with(&self, job: &Job, mut input: &[u8]) -> (HelperResult, Option<Vec<u8>>) {
        let mut said = Vec::new();
        let mut reply = ReplyWriter::new(&mut said);
        // A client that stays.
        let client = std::fs::File::open("/dev/null").unwrap();
        if let Err(error) = dispatch(&self.roots, job, &mut BodyReader::new(&mut input), client.as_fd(), &mut reply) {
            reply.outcome(&HelperResult::Failed(error)).unwrap();
        }
        heard(&said)
    }

    /// The message of a job that must fail.
    pub fn refusal(&self, job: &Job) -> String {
        self.refusal_with(job, b"")
    }

    pub fn refusal_with(&self, job: &Job, body: &[u8]) -> String {
        match self.run_with(job, &sent(body, 1000, true)) {
            (HelperResult::Failed(error), _) => error.message,
            (done, _) => panic!("{job:?} was done: {done:?}"),
        }
    }
}

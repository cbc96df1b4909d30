//! The way to this machine: running tools, reading files and variables, resolving names. Tests replace it;
//! [`LocalTools`](crate::LocalTools) is the real one.

use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a tool may take to answer.
const RUN_TIMEOUT: Duration = Duration::from_secs(15);

/// What is asked of the machine. It is shared by the threads of all tools.
pub trait Tools: Sync {
    /// Runs a program until it ends or its time is over. Then nothing that it started in its process group runs any more.
    fn run(&self, invocation: &Invocation) -> Result<Output, RunError>;
    /// Reads a whole text file. Bytes that are not UTF-8 are replaced.
    fn read(&self, path: &Path) -> Result<String, ReadError>;
    /// The files of a directory, sorted; empty if it cannot be read.
    fn list(&self, directory: &Path) -> Vec<PathBuf>;
    /// The environment variables whose names and values are UTF-8.
    fn variables(&self) -> Vec<(String, String)>;
    /// The addresses of a name, or nothing if it has none or resolving takes too long.
    fn resolve(&self, host: &str) -> Vec<IpAddr>;
}

/// A program to run. It runs in `/`, so that it sees no project's configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invocation {
    pub program: String,
    pub arguments: Vec<String>,
    /// Added to the daemon's own environment.
    pub variables: Vec<(String, String)>,
    /// A variable that is set to an empty directory, which is removed after the run.
    pub scratch_variable: Option<String>,
    pub stdin: Vec<u8>,
    pub timeout: Duration,
}

impl Invocation {
    pub fn new(program: &str, arguments: &[&str]) -> Self {
        Self {
            program: program.to_owned(),
            arguments: arguments.iter().map(|&a| a.to_owned()).collect(),
            variables: Vec::new(),
            scratch_variable: None,
            stdin: Vec::new(),
            timeout: RUN_TIMEOUT,
        }
    }

    pub fn variable(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    pub fn scratch_variable(mut self, name: &str) -> Self {
        self.scratch_variable = Some(name.to_owned());
        self
    }

    pub fn stdin(mut self, bytes: Vec<u8>) -> Self {
        self.stdin = bytes;
        self
    }

    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }
}

/// What a program printed before it ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Output {
    /// The exit code; nothing if a signal ended it.
    pub code: Option<i32>,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
}

#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error("not installed")]
    NotInstalled,
    #[error("did not end in time and was killed")]
    TimedOut,
    #[error("printed too much and was killed")]
    TooMuchOutput,
    #[error("could not be run: {0}")]
    Io(io::Error),
}

#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("it does not exist")]
    Missing,
    #[error("it is too large")]
    TooLarge,
    #[error("it is not a text file")]
    NotText,
    #[error("{0}")]
    Io(io::Error),
}

//! The address of a sandbox's runner. A runtime reports it, and a runner client connects to it.

use std::path::PathBuf;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunnerAddress {
    Unix(PathBuf),
}

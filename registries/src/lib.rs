//! Finds the hosts that this machine's package managers download from. The daemon's network preset `packages` is made from
//! the answer, so a company's mirror works without any setting, and there is no list that can become outdated.
//!
//! ```text
//! detect ─┬─ tools/pip ───┐
//!         ├─ tools/npm ───┤  each in its own thread, with its own Inquiry
//!         ├─ tools/cargo ─┼──────→ Findings ──→ resolve the hosts ──→ Detected { found, variables, problems }
//!         └─ …            ┘
//!              │      │
//!            Tools  Fetch     the only two ways to the machine and to the network; tests replace both
//! ```
//!
//! First a tool is asked for its configuration and its built-in default. Then the registry is asked which hosts its files are
//! on: the links of an index page, the `dl` of a cargo index, the tarball of an npm package, redirects.
//!
//! **Invariant:** no host name of a registry stands in this crate. A default that no tool tells is not known.
//!
//! **Invariant:** user names, passwords and query strings of URLs never get into the result, and paths only in the variables for
//! sandboxes (`variable`), unless they may hold a token. `SourceUrl` does not print them, and no message quotes a configuration
//! file or the error output of a tool.
//!
//! Every wait, output, file and list has a bound, and the whole has a deadline. A tool that hangs is killed. A tool that is
//! missing is reported as not installed.

mod command_fetch;
mod detect;
mod detected;
mod fetch;
mod findings;
mod inquiry;
mod local_tools;
mod private;
mod source_url;
#[cfg(test)]
mod testing;
mod toolbox;
mod tools;
mod variable;

pub use command_fetch::CommandFetch;
pub use detect::{DETECT_DEADLINE, detect};
pub use detected::{Detected, Problem, ProblemKind, Rule, Source, Variable};
pub use fetch::{Body, Fetch, FetchError, Fetched, MAX_REDIRECTS, Request};
pub use local_tools::LocalTools;
pub use source_url::{SourceUrl, UrlError};
pub use toolbox::{Invocation, Output, ReadError, RunError, Tools};

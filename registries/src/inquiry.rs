//! The questions about one tool, and what was found. Each tool's thread owns one; it keeps the bounds.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::detected::{Problem, ProblemKind};
use crate::fetch::{Body, Fetch, Request};
use crate::findings::Finding;
use crate::source_url::{SourceUrl, UrlError};
use crate::toolbox::{Invocation, ReadError, RunError, Tools};
use crate::variable::{Offer, Part};

/// Hosts that one tool may have.
const MAX_FINDINGS: usize = 64;
/// Variables that one tool may have in sandboxes.
const MAX_OFFERS: usize = 16;
/// Problems that are kept of one tool.
const MAX_PROBLEMS: usize = 32;
/// How long a registry may take to answer.
const FETCH_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of a page of a registry.
const MAX_PAGE_BYTES: usize = 2 << 20;

/// The exit code of a shell, and of version managers' stubs, for a command that does not exist.
const NO_SUCH_COMMAND: i32 = 127;

pub struct Inquiry<'a> {
    pub tool: &'static str,
    tools: &'a dyn Tools,
    fetch: &'a dyn Fetch,
    deadline: Instant,
    pub findings: Vec<Finding>,
    pub offers: Vec<Offer>,
    pub problems: Vec<Problem>,
}

/// How a tool answered.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    Text(String),
    NotInstalled,
    /// It was reported.
    Failed,
}

impl<'a> Inquiry<'a> {
    pub fn new(tool: &'static str, tools: &'a dyn Tools, fetch: &'a dyn Fetch, deadline: Instant) -> Self {
        Self { tool, tools, fetch, deadline, findings: Vec::new(), offers: Vec::new(), problems: Vec::new() }
    }

    /// Runs a tool that must succeed, for its output.
    pub fn ask(&mut self, program: &str, arguments: &[&str]) -> Answer {
        match self.run(Invocation::new(program, arguments)) {
            Ok((Some(0), stdout, _)) => Answer::Text(stdout),
            Ok((Some(NO_SUCH_COMMAND), ..)) | Err(RunError::NotInstalled) => Answer::NotInstalled,
            Ok((code, ..)) => {
                let ended = code.map_or("was ended by a signal".to_owned(), |code| format!("ended with code {code}"));
                self.problem(ProblemKind::ToolFailed, format!("`{}` {ended}", shown(program, arguments)));
                Answer::Failed
            }
            Err(error) => {
                self.problem(ProblemKind::ToolFailed, format!("`{}` {error}", shown(program, arguments)));
                Answer::Failed
            }
        }
    }

    /// Runs a tool, for its exit code, output and error output.
    pub fn run(&mut self, invocation: Invocation) -> Result<(Option<i32>, String, String), RunError> {
        let timeout = invocation.timeout.min(self.time_left());
        if timeout.is_zero() {
            return Err(RunError::TimedOut);
        }
        let output = self.tools.run(&invocation.timeout(timeout))?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok((output.code, text(&output.stdout), text(&output.stderr)))
    }

    /// Reads a configuration file. That it does not exist is normal.
    pub fn read(&mut self, path: &Path) -> Option<String> {
        match self.tools.read(path) {
            Ok(text) => Some(text),
            Err(ReadError::Missing) => None,
            Err(error) => {
                self.problem(ProblemKind::Configuration, format!("{} was not read: {error}", path.display()));
                None
            }
        }
    }

    pub fn list(&self, directory: &Path) -> Vec<PathBuf> {
        self.tools.list(directory)
    }

    /// A variable that is set and not empty.
    pub fn variable(&self, name: &str) -> Option<String> {
        self.variables().into_iter().find(|(n, value)| n == name && !value.is_empty()).map(|(_, value)| value)
    }

    pub fn variables(&self) -> Vec<(String, String)> {
        self.tools.variables()
    }

    /// A path below the user's home directory.
    pub fn home(&self, path: &str) -> PathBuf {
        PathBuf::from(self.variable("HOME").unwrap_or_else(|| "/root".to_owned())).join(path)
    }

    /// A path below the user's configuration directory.
    pub fn user_config(&self, path: &str) -> PathBuf {
        self.variable("XDG_CONFIG_HOME").map_or_else(|| self.home(".config"), PathBuf::from).join(path)
    }

    /// Adds the host of a URL from a configuration. Local paths are ignored; what is not a URL is reported.
    pub fn add(&mut self, url: &str, because: &str) -> Option<SourceUrl> {
        self.add_parsed(SourceUrl::parse(url), because)
    }

    pub fn add_parsed(&mut self, url: Result<SourceUrl, UrlError>, because: &str) -> Option<SourceUrl> {
        match url {
            Ok(url) => self.push(&url, because, None).then_some(url),
            Err(UrlError::Local) => None,
            Err(error) => {
                self.problem(ProblemKind::Configuration, format!("{because} is ignored: {error}"));
                None
            }
        }
    }

    /// Adds a host that a registry names.
    pub fn add_named(&mut self, url: &SourceUrl, because: &str, registry: &SourceUrl) {
        self.push(url, because, Some(registry.host()));
    }

    fn push(&mut self, url: &SourceUrl, because: &str, named_by: Option<String>) -> bool {
        let finding = Finding { tool: self.tool, url: url.clone(), because: because.to_owned(), named_by };
        let is_known = self.findings.iter().any(|known| {
            (known.url.host(), known.url.port()) == (url.host(), url.port())
                && (&known.because, &known.named_by) == (&finding.because, &finding.named_by)
        });
        if !is_known && self.findings.len() >= MAX_FINDINGS {
            self.problem(ProblemKind::Limit, format!("more than {MAX_FINDINGS} hosts: the others are left out"));
            return false;
        }
        if !is_known {
            self.findings.push(finding);
        }
        true
    }

    /// Offers a setting as a variable for sandboxes: only one that somebody has configured, and not a built-in default.
    pub fn offer(&mut self, name: &str, value: Vec<Part>) {
        if self.offers.len() < MAX_OFFERS && !value.is_empty() {
            self.offers.push(Offer { tool: self.tool, name: name.to_owned(), value });
        }
    }

    /// Offers URLs, with spaces between them.
    pub fn offer_urls(&mut self, name: &str, urls: impl IntoIterator<Item = SourceUrl>) {
        let parts = urls.into_iter().enumerate().flat_map(|(at, url)| {
            let space = (at > 0).then(|| Part::Text(" ".to_owned()));
            space.into_iter().chain([Part::Url(url)])
        });
        self.offer(name, parts.collect());
    }

    /// Gets a page of a registry, and adds the hosts that it redirects to. A failure is reported.
    pub fn page(&mut self, url: &SourceUrl, registry: &SourceUrl) -> Option<(SourceUrl, Vec<u8>)> {
        match self.visit(url, registry) {
            Ok((last, Body::Whole(bytes))) => Some((last, bytes)),
            Ok((_, Body::TooLarge)) => {
                self.problem(ProblemKind::Registry, format!("{url} is larger than {MAX_PAGE_BYTES} bytes"));
                None
            }
            Err(message) => {
                self.problem(ProblemKind::Registry, message);
                None
            }
        }
    }

    /// Asks for a file, only to add the hosts that it redirects to. It may be large, and a failure is not reported: the
    /// file's own host is known already.
    pub fn follow_file(&mut self, url: &SourceUrl, registry: &SourceUrl) -> bool {
        self.visit(url, registry).is_ok()
    }

    fn visit(&mut self, url: &SourceUrl, registry: &SourceUrl) -> Result<(SourceUrl, Body), String> {
        let timeout = FETCH_TIMEOUT.min(self.time_left());
        if timeout.is_zero() {
            return Err(format!("{url} was not asked: the time is over"));
        }
        if !url.is_http() {
            return Err(format!("{url} was not asked: it is not HTTP"));
        }
        let request = Request { url: url.clone(), timeout, max_bytes: MAX_PAGE_BYTES };
        let fetched = self.fetch.get(&request).map_err(|error| format!("{url} was not read: {error}"))?;
        for redirect in fetched.visited.iter().skip(1) {
            self.add_named(redirect, "redirect of the registry", registry);
        }
        let last = fetched.visited.last().unwrap_or(url).clone();
        Ok((last, fetched.body))
    }

    /// Keeps a problem. Beyond the bound, only that a bound was reached is kept.
    pub fn problem(&mut self, kind: ProblemKind, message: String) {
        let is_kept = self.problems.len() < MAX_PROBLEMS || kind == ProblemKind::Limit;
        let (kind, message) = match is_kept {
            true => (kind, message),
            false => (ProblemKind::Limit, format!("more than {MAX_PROBLEMS} problems: the others are left out")),
        };
        let problem = Problem { tool: self.tool.to_owned(), kind, message };
        if !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
    }

    pub fn not_installed(&mut self) {
        let message = "not installed, so its built-in registry is not known".to_owned();
        self.problem(ProblemKind::NotInstalled, message);
    }

    fn time_left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }
}

/// A command as people read it. Our arguments hold no secrets.
fn shown(program: &str, arguments: &[&str]) -> String {
    [&[program], arguments].concat().join(" ")
}

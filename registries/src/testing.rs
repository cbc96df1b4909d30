//! A machine and a network made of maps, for tests.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::detected::{Problem, ProblemKind};
use crate::fetch::{Body, Fetch, FetchError, Fetched, Request};
use crate::inquiry::Inquiry;
use crate::source_url::SourceUrl;
use crate::toolbox::{Invocation, Output, ReadError, RunError, Tools};
use crate::tools::Question;
use crate::variable::variables;

/// A machine with the given answers, files, variables and names. A program without an answer is not installed.
#[derive(Default)]
pub struct FakeMachine {
    answers: Vec<(String, Output)>,
    hanging: Vec<String>,
    files: BTreeMap<PathBuf, String>,
    unreadable: Vec<PathBuf>,
    variables: Vec<(String, String)>,
    names: BTreeMap<String, Vec<IpAddr>>,
    pub runs: Mutex<Vec<Invocation>>,
}

impl FakeMachine {
    pub fn new() -> Self {
        Self::default().variable("HOME", "/home/ann")
    }

    /// The answer of a command, as typed.
    pub fn command(self, line: &str, stdout: &str) -> Self {
        self.output(line, 0, stdout, "")
    }

    pub fn output(mut self, line: &str, code: i32, stdout: &str, stderr: &str) -> Self {
        let output = Output { code: Some(code), stdout: stdout.into(), stderr: stderr.into() };
        self.answers.push((line.to_owned(), output));
        self
    }

    pub fn hanging(mut self, program: &str) -> Self {
        self.hanging.push(program.to_owned());
        self
    }

    pub fn file(mut self, path: &str, text: &str) -> Self {
        self.files.insert(path.into(), text.to_owned());
        self
    }

    pub fn unreadable(mut self, path: &str) -> Self {
        self.unreadable.push(path.into());
        self
    }

    pub fn variable(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    pub fn name(mut self, name: &str, addresses: &[&str]) -> Self {
        self.names.insert(name.to_owned(), addresses.iter().map(|a| a.parse().unwrap()).collect());
        self
    }

    /// Asks one question, without any network.
    pub fn ask(&self, question: Question) -> Asked {
        self.ask_with(question, &FakeNetwork::default())
    }

    pub fn ask_with(&self, question: Question, network: &dyn Fetch) -> Asked {
        let mut inquiry = Inquiry::new("tool", self, network, Instant::now() + Duration::from_secs(60));
        question(&mut inquiry);
        let found = inquiry.findings.iter().map(|f| (format!("{}:{}", f.url.host(), f.url.port()), f.because.clone()));
        let (variables, _) = variables(&inquiry.offers, &BTreeMap::new());
        let variables = variables.into_iter().map(|variable| (variable.name, variable.value));
        Asked { found: found.collect(), variables: variables.collect(), problems: inquiry.problems }
    }
}

/// What a question gave.
#[derive(Debug)]
pub struct Asked {
    /// `host:port` with the reason, in the order of the findings.
    pub found: Vec<(String, String)>,
    /// The variables for sandboxes.
    pub variables: Vec<(String, String)>,
    pub problems: Vec<Problem>,
}

impl Asked {
    /// The value of a variable for sandboxes.
    pub fn variable(&self, name: &str) -> Option<&str> {
        self.variables.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// The hosts with their ports, without repetitions.
    pub fn hosts(&self) -> Vec<&str> {
        let mut hosts: Vec<&str> = Vec::new();
        for (host, _) in &self.found {
            if !hosts.contains(&host.as_str()) {
                hosts.push(host);
            }
        }
        hosts
    }

    pub fn because(&self, host: &str) -> Vec<&str> {
        self.found.iter().filter(|(h, _)| h == host).map(|(_, because)| because.as_str()).collect()
    }

    /// The problems that are not about the missing network.
    pub fn kinds(&self) -> Vec<ProblemKind> {
        self.problems.iter().map(|p| p.kind).filter(|kind| *kind != ProblemKind::Registry).collect()
    }

    /// Fails if a secret is anywhere in the answer.
    pub fn assert_hides(&self, secret: &str) {
        assert!(!format!("{self:?}").contains(secret), "{self:?}");
    }
}

impl Tools for FakeMachine {
    fn run(&self, invocation: &Invocation) -> Result<Output, RunError> {
        self.runs.lock().unwrap().push(invocation.clone());
        if self.hanging.contains(&invocation.program) {
            return Err(RunError::TimedOut);
        }
        let line = [std::slice::from_ref(&invocation.program), &invocation.arguments].concat().join(" ");
        let answer = self.answers.iter().find(|(start, _)| line.starts_with(start.as_str()));
        answer.map(|(_, output)| output.clone()).ok_or(RunError::NotInstalled)
    }

    fn read(&self, path: &Path) -> Result<String, ReadError> {
        if self.unreadable.iter().any(|unreadable| unreadable == path) {
            return Err(ReadError::NotText);
        }
        self.files.get(path).cloned().ok_or(ReadError::Missing)
    }

    fn list(&self, directory: &Path) -> Vec<PathBuf> {
        self.files.keys().filter(|path| path.parent() == Some(directory)).cloned().collect()
    }

    fn variables(&self) -> Vec<(String, String)> {
        self.variables.clone()
    }

    fn resolve(&self, host: &str) -> Vec<IpAddr> {
        self.names.get(host).cloned().unwrap_or_default()
    }
}

/// A network with the given pages. All others have the status 404.
#[derive(Default)]
pub struct FakeNetwork {
    pages: BTreeMap<String, Fetched>,
    pub asked: Mutex<Vec<String>>,
}

impl FakeNetwork {
    pub fn page(self, url: &str, body: &str) -> Self {
        self.answer(url, &[], Body::Whole(body.into()))
    }

    pub fn redirect(self, url: &str, to: &[&str]) -> Self {
        self.answer(url, to, Body::TooLarge)
    }

    pub fn answer(mut self, url: &str, to: &[&str], body: Body) -> Self {
        let visited = [&[url], to].concat().into_iter().map(|url| SourceUrl::parse(url).unwrap()).collect();
        self.pages.insert(url.to_owned(), Fetched { visited, body });
        self
    }
}

impl Fetch for FakeNetwork {
    fn get(&self, request: &Request) -> Result<Fetched, FetchError> {
        let url = request.url.with_credentials();
        self.asked.lock().unwrap().push(url.to_owned());
        self.pages.get(url).cloned().ok_or(FetchError::Status(404))
    }
}

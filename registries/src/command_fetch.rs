//! Fetches with `curl`, or with Python if there is no curl, so the daemon needs no TLS library and uses the certificates and
//! proxies of this machine.
//!
//! The URL goes through standard input, because it may hold a password and arguments are visible to all users. Each redirect
//! is a run of its own: then every visited host is known, and credentials do not go along to another one.

use std::time::Instant;

use crate::fetch::{Body, Fetch, FetchError, Fetched, MAX_REDIRECTS, Request};
use crate::source_url::SourceUrl;
use crate::toolbox::{Invocation, Output, RunError, Tools};

/// curl's exit code for a body that is larger than asked for. The Python program uses the same.
const TOO_LARGE: i32 = 63;

/// curl's exit codes that say something to the operator.
const EXIT_CODES: [(i32, FetchError); 6] = [
    (5, FetchError::Connection("the proxy's name does not resolve")),
    (6, FetchError::Connection("its name does not resolve")),
    (7, FetchError::Connection("it does not accept connections")),
    (28, FetchError::TimedOut),
    (35, FetchError::Connection("TLS failed")),
    (60, FetchError::Connection("its certificate is not trusted")),
];

/// Prints the body, and `STATUS LOCATION` as the last line of its error output, as curl does with the arguments below.
const PYTHON: &str = r#"
import sys, urllib.error, urllib.request
from base64 import b64encode
from urllib.parse import unquote, urlsplit, urlunsplit

class Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_):
        return None

timeout, limit = float(sys.argv[1]), int(sys.argv[2])
parts = urlsplit(sys.stdin.readline().strip())
user, at, place = parts.netloc.rpartition("@")
request = urllib.request.Request(urlunsplit(parts._replace(netloc=place)), headers={"User-Agent": "cove"})
if at:
    name, _, password = user.partition(":")
    pair = unquote(name) + ":" + unquote(password)
    request.add_header("Authorization", "Basic " + b64encode(pair.encode()).decode())
try:
    answer = urllib.request.build_opener(Stay).open(request, timeout=timeout)
except urllib.error.HTTPError as error:
    answer = error
except OSError:
    print("\n000 ", file=sys.stderr)
    sys.exit(7)
body = answer.read(limit + 1)
print("\n%03d %s" % (answer.status, answer.headers.get("Location") or ""), file=sys.stderr)
if len(body) > limit:
    sys.exit(63)
sys.stdout.buffer.write(body)
"#;

/// Fetches by running a program.
pub struct CommandFetch<'a> {
    tools: &'a dyn Tools,
}

impl<'a> CommandFetch<'a> {
    pub fn new(tools: &'a dyn Tools) -> Self {
        Self { tools }
    }

    /// Makes one request, without following a redirect.
    fn once(&self, url: &SourceUrl, request: &Request, deadline: Instant) -> Result<Answer, FetchError> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(FetchError::TimedOut);
        }
        let (seconds, bytes) = (format!("{:.3}", left.as_secs_f64()), request.max_bytes.to_string());
        let curl = [
            // Without the user's .curlrc, which could change what is printed.
            "-q",
            "--silent",
            "--netrc-optional",
            "--globoff",
            "--proto",
            "=http,https",
            "--max-time",
            &seconds,
            "--max-filesize",
            &bytes,
            "--user-agent",
            "cove",
            "--write-out",
            "%{stderr}\n%{http_code} %{redirect_url}",
            "--config",
            "-",
        ];
        // A serialized URL has neither quotes nor backslashes.
        let config = format!("url = \"{}\"\n", url.with_credentials());
        let curl = Invocation::new("curl", &curl).stdin(config.into_bytes()).timeout(left);
        let output = match self.tools.run(&curl) {
            Err(RunError::NotInstalled) => {
                let line = format!("{}\n", url.with_credentials()).into_bytes();
                let python = Invocation::new("python3", &["-c", PYTHON, &seconds, &bytes]).stdin(line).timeout(left);
                self.tools.run(&python)
            }
            answered => answered,
        };
        match output {
            Ok(output) => Answer::read(output, url, request.max_bytes),
            Err(RunError::NotInstalled) => Err(FetchError::NoProgram),
            Err(RunError::TimedOut) => Err(FetchError::TimedOut),
            // A length that was not announced: curl stops at the bound only since 8.4.
            Err(RunError::TooMuchOutput) => Ok(Answer::Body(Body::TooLarge)),
            Err(RunError::Io(_)) => Err(FetchError::Connection("curl or python3 could not be run")),
        }
    }
}

impl Fetch for CommandFetch<'_> {
    fn get(&self, request: &Request) -> Result<Fetched, FetchError> {
        let deadline = Instant::now() + request.timeout;
        let mut visited = vec![request.url.clone()];
        let mut url = request.url.clone();
        loop {
            match self.once(&url, request, deadline)? {
                Answer::Body(body) => return Ok(Fetched { visited, body }),
                Answer::Redirect(_) if visited.len() > MAX_REDIRECTS => return Err(FetchError::TooManyRedirects),
                Answer::Redirect(to) => url = to,
            }
            visited.push(url.clone());
        }
    }
}

/// What one request gave.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Body(Body),
    Redirect(SourceUrl),
}

impl Answer {
    fn read(output: Output, url: &SourceUrl, max_bytes: usize) -> Result<Self, FetchError> {
        let stderr = String::from_utf8_lossy(&output.stderr);
        let (status, location) = stderr.lines().last().and_then(|line| line.split_once(' ')).unwrap_or_default();
        let status: u16 = status.parse().unwrap_or_default();
        match (status, output.code) {
            (300..=399, _) if !location.is_empty() => match url.follow(location) {
                Ok(to) if to.is_http() => Ok(Self::Redirect(to)),
                _ => Err(FetchError::BadRedirect),
            },
            (200..=299, Some(0)) if output.stdout.len() <= max_bytes => Ok(Self::Body(Body::Whole(output.stdout))),
            (200..=299, Some(0 | TOO_LARGE)) => Ok(Self::Body(Body::TooLarge)),
            (300..=999, _) => Err(FetchError::Status(status)),
            (_, code) => {
                let known = EXIT_CODES.into_iter().find(|(exit, _)| Some(*exit) == code);
                Err(known.map_or(FetchError::Connection("the request failed"), |(_, error)| error))
            }
        }
    }
}

#[cfg(test)]
#[path = "command_fetch_test.rs"]
mod tests;

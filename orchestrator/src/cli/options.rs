//! Values that several commands take: variables, labels, durations, and the limits of a session.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::Args;
use shared_protocol::WorkspaceId;
use shared_protocol::api::{CreateSessionRequest, NetworkMode, ResourcesRequest};

use super::exit::Failure;

/// Seconds without anybody there, after which a session that was made for one command goes by itself: its client was
/// killed and could not take it away.
const ABANDONED_SECONDS: u64 = 60;

/// What the session should be that a command makes.
#[derive(Args, Debug, Default, PartialEq)]
pub struct SessionOptions {
    /// A variable of the sandbox; a name alone passes on your own
    #[arg(short = 'e', long = "env", value_name = "NAME[=VALUE]")]
    pub env: Vec<String>,
    /// A named directory that outlives the session, at /workspace
    #[arg(long, value_name = "NAME", value_parser = workspace)]
    pub workspace: Option<WorkspaceId>,
    /// Memory limit in MiB
    #[arg(long, value_name = "N")]
    pub memory_mb: Option<u64>,
    /// Processor limit, as in 0.5
    #[arg(long, value_name = "N")]
    pub cpus: Option<f64>,
    /// Limit of processes
    #[arg(long, value_name = "N")]
    pub pids: Option<u64>,
    /// Disk limit in MiB
    #[arg(long, value_name = "N")]
    pub disk_mb: Option<u64>,
    /// Give it a network, where the runtime has one to give (default: loopback only)
    #[arg(long)]
    pub network: bool,
    /// Let the root file system be written to; what is written goes with the session
    #[arg(long)]
    pub writable_root: bool,
    /// A label of the session
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = pair)]
    pub labels: Vec<(String, String)>,
}

/// Whether a session goes when nobody is there any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keeping {
    OwnedByClient,
    Kept,
}

impl SessionOptions {
    pub fn request(&self, image: Option<&str>, keeping: Keeping) -> Result<CreateSessionRequest, Failure> {
        let resources =
            ResourcesRequest { cpus: self.cpus, memory_mb: self.memory_mb, pids: self.pids, disk_mb: self.disk_mb };
        Ok(CreateSessionRequest {
            image: image.map(str::to_owned),
            idle_seconds: (keeping == Keeping::OwnedByClient).then_some(ABANDONED_SECONDS),
            workspace_id: self.workspace.clone(),
            env: variables(&self.env)?,
            labels: self.labels.iter().cloned().collect(),
            resources: (resources != ResourcesRequest::default()).then_some(resources),
            network: self.network.then_some(NetworkMode::Full),
            writable_root: self.writable_root.then_some(true),
            ..CreateSessionRequest::default()
        })
    }
}

fn workspace(text: &str) -> Result<WorkspaceId, String> {
    WorkspaceId::new(text).map_err(|e| e.to_string())
}

/// `KEY=VALUE`.
pub fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("use KEY=VALUE".into()),
    }
}

/// `NAME=VALUE`, or `NAME` for the caller's own value.
pub fn variables(given: &[String]) -> Result<BTreeMap<String, String>, Failure> {
    let mut variables = BTreeMap::new();
    for text in given {
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, value.to_owned()),
            None => {
                let value = std::env::var(text);
                (
                    text.as_str(),
                    value.map_err(|_| Failure::usage(format!("-e {text}: there is no such variable here")))?,
                )
            }
        };
        if name.is_empty() {
            return Err(Failure::usage(format!("-e {text}: use NAME=VALUE")));
        }
        variables.insert(name.to_owned(), value);
    }
    Ok(variables)
}

/// `1500ms`, `30s`, `5m`; a bare number is seconds.
pub fn duration(text: &str) -> Result<Duration, String> {
    match text.parse::<u32>() {
        Ok(seconds) => Ok(Duration::from_secs(seconds.into())),
        Err(_) => humantime::parse_duration(text).map_err(|_| "use a time as in 1500ms, 30s or 5m".into()),
    }
}

/// The wire has no zero: there it means the daemon's default.
pub fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_with_and_without_a_unit() {
        assert_eq!(duration("90"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("1500ms"), Ok(Duration::from_millis(1500)));
        assert!(duration("soon").is_err());
        assert_eq!(milliseconds(Duration::ZERO), 1);
    }

    #[test]
    fn a_value_may_hold_an_equals_sign_and_a_name_must_be_there() {
        let read = variables(&["A=b=c".into(), "EMPTY=".into()]).unwrap();
        assert_eq!((read["A"].as_str(), read["EMPTY"].as_str()), ("b=c", ""));
        assert!(variables(&["=x".into()]).is_err());
        assert!(variables(&["COVE_NO_SUCH_VARIABLE_HERE".into()]).is_err());
    }

    #[test]
    fn limits_that_were_not_asked_for_are_left_to_the_daemon() {
        let request = SessionOptions::default().request(None, Keeping::Kept).unwrap();
        assert_eq!(request, CreateSessionRequest::default());
        let options = SessionOptions { memory_mb: Some(64), ..SessionOptions::default() };
        let request = options.request(Some("python"), Keeping::OwnedByClient).unwrap();
        assert_eq!(request.resources.unwrap().memory_mb, Some(64));
        assert_eq!(request.idle_seconds, Some(ABANDONED_SECONDS));
    }
}

//! Options that several commands have: variables, labels, durations, and the limits of a session.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::Args;
use shared_protocol::WorkspaceId;
use shared_protocol::api::{CreateSessionRequest, NetworkSpec, Profile, ResourcesRequest, TimeLimit};

use super::exit::Failure;
use super::network_option;

/// Idle seconds after which the daemon ends a session that was made for one command. Its client was killed and could not end it.
const ABANDONED_SECONDS: u64 = 60;

/// Options of the session that a command creates.
#[derive(Args, Debug, Default, PartialEq)]
pub struct SessionOptions {
    /// Set a variable in the sandbox; a name alone passes your own value on
    #[arg(short = 'e', long = "env", value_name = "NAME[=VALUE]")]
    pub env: Vec<String>,
    /// Mount a named workspace at /workspace; it outlives the session
    #[arg(long, value_name = "NAME", value_parser = workspace)]
    pub workspace: Option<WorkspaceId>,
    /// Memory limit in MiB
    #[arg(long, value_name = "N")]
    pub memory_mb: Option<u64>,
    /// CPU limit, for example 0.5
    #[arg(long, value_name = "N")]
    pub cpus: Option<f64>,
    /// Limit of the number of processes
    #[arg(long, value_name = "N")]
    pub pids: Option<u64>,
    /// Disk limit in MiB
    #[arg(long, value_name = "N")]
    pub disk_mb: Option<u64>,
    /// What the sandbox may reach: none, packages, learn, full, a preset of the daemon, or rules such as example.com,*.example.com:8443
    #[arg(long, value_name = "NETWORK", value_parser = network_option::parse)]
    pub network: Option<NetworkSpec>,
    /// Make the root file system writable; what is written there ends with the session
    #[arg(long)]
    pub writable_root: bool,
    /// Allow more than usual: ptrace (trace running processes) or debug (also access their memory)
    #[arg(long = "profile", value_name = "NAME", value_parser = profile)]
    pub profiles: Vec<Profile>,
    /// Add a label to the session
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = pair)]
    pub labels: Vec<(String, String)>,
}

/// How long a session lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lifetime {
    /// It ends with the command, and a short time after the client if that is killed.
    OfCommand,
    /// It stays when the command ends.
    Kept,
}

impl SessionOptions {
    pub fn request(&self, image: Option<&str>, lifetime: Lifetime) -> Result<CreateSessionRequest, Failure> {
        let resources =
            ResourcesRequest { cpus: self.cpus, memory_mb: self.memory_mb, pids: self.pids, disk_mb: self.disk_mb };
        Ok(CreateSessionRequest {
            image: image.map(str::to_owned),
            idle_seconds: (lifetime == Lifetime::OfCommand).then_some(ABANDONED_SECONDS),
            workspace_id: self.workspace.clone(),
            env: variables(&self.env)?,
            labels: self.labels.iter().cloned().collect(),
            resources: (resources != ResourcesRequest::default()).then_some(resources),
            network: self.network.clone(),
            writable_root: self.writable_root.then_some(true),
            profiles: self.profiles.clone(),
            ..CreateSessionRequest::default()
        })
    }
}

fn profile(text: &str) -> Result<Profile, String> {
    let names = || Profile::ALL.map(Profile::name).join(", ");
    Profile::ALL.into_iter().find(|profile| profile.name() == text).ok_or_else(|| format!("use one of {}", names()))
}

fn workspace(text: &str) -> Result<WorkspaceId, String> {
    WorkspaceId::new(text).map_err(|e| e.to_string())
}

/// Parses `KEY=VALUE`.
pub fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("use KEY=VALUE".into()),
    }
}

/// Parses `NAME=VALUE`, or `NAME` for the caller's own value.
pub fn variables(given: &[String]) -> Result<BTreeMap<String, String>, Failure> {
    let mut variables = BTreeMap::new();
    for text in given {
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, value.to_owned()),
            None => {
                let value = std::env::var(text);
                (
                    text.as_str(),
                    value
                        .map_err(|_| Failure::usage(format!("-e {text}: this variable is not set; use NAME=VALUE")))?,
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

/// Parses `1500ms`, `30s` or `5m`; a number alone is seconds.
pub fn duration(text: &str) -> Result<Duration, String> {
    match text.parse::<u32>() {
        Ok(seconds) => Ok(Duration::from_secs(seconds.into())),
        Err(_) => humantime::parse_duration(text).map_err(|_| "use a time such as 1500ms, 30s or 5m".into()),
    }
}

/// Parses the time limit of a command: a time, or `none`.
pub fn time_limit(text: &str) -> Result<TimeLimit, String> {
    match text {
        "none" => Ok(TimeLimit::Unlimited),
        _ => duration(text)
            .map(|duration| TimeLimit::Milliseconds(milliseconds(duration)))
            .map_err(|e| format!("{e}, or none")),
    }
}

/// At least 1, because 0 asks for the daemon's default.
fn milliseconds(duration: Duration) -> u64 {
    whole_milliseconds(duration).max(1)
}

pub fn whole_milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
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
        assert_eq!(time_limit("2s"), Ok(TimeLimit::Milliseconds(2000)));
        assert_eq!(time_limit("none"), Ok(TimeLimit::Unlimited));
        assert!(time_limit("never").is_err_and(|e| e.contains("none")));
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
        let request = SessionOptions::default().request(None, Lifetime::Kept).unwrap();
        assert_eq!(request, CreateSessionRequest::default());
        let options = SessionOptions { memory_mb: Some(64), ..SessionOptions::default() };
        let request = options.request(Some("python"), Lifetime::OfCommand).unwrap();
        assert_eq!(request.resources.unwrap().memory_mb, Some(64));
        assert_eq!(request.idle_seconds, Some(ABANDONED_SECONDS));
    }
}

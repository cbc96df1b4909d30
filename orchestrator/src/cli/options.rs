//! Options that several commands have: variables, labels, durations, and the limits of a session.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::Args;
use shared_protocol::api::{CreateSessionRequest, NetworkSpec, Profile, ResourcesRequest, SessionUser, TimeLimit};
use shared_protocol::{RuntimeName, SnapshotId, WorkspaceId};

use super::exit::Failure;
use super::inject_option::{self, InjectOption};
use super::network_option;

/// Idle seconds after which the daemon ends a session that was made for one command. Its client was killed and could not end it.
const ABANDONED_SECONDS: u64 = 60;

/// Where a workspace is mounted.
const WORKSPACE_PLACE: &str = "/workspace";
/// The most digits behind the point of a size.
const MAX_DECIMALS: usize = 6;

/// Options of the session that a command creates.
#[derive(Args, Debug, Default, PartialEq)]
pub struct SessionOptions {
    /// Set a variable in the sandbox; a name alone passes your own value on
    #[arg(short = 'e', long = "env", value_name = "NAME[=VALUE]")]
    pub env: Vec<String>,
    /// Start from a snapshot, with its files and shells
    #[arg(long, value_name = "SNAPSHOT", value_parser = snapshot)]
    pub snapshot: Option<SnapshotId>,
    /// Mount a named workspace at /workspace; it outlives the session
    #[arg(short = 'v', long, visible_alias = "volume", value_name = "NAME", value_parser = workspace)]
    pub workspace: Option<WorkspaceId>,
    /// Memory limit, for example 512m or 2g
    #[arg(short = 'm', long = "memory", value_name = "SIZE", value_parser = size_in_mib, conflicts_with = "memory_mb")]
    pub memory: Option<u64>,
    /// Memory limit in MiB
    #[arg(long, value_name = "N")]
    pub memory_mb: Option<u64>,
    /// CPU limit, for example 0.5
    #[arg(long, value_name = "N")]
    pub cpus: Option<f64>,
    /// Limit of the number of processes
    #[arg(long, visible_alias = "pids-limit", value_name = "N")]
    pub pids: Option<u64>,
    /// Disk limit in MiB
    #[arg(long, value_name = "N")]
    pub disk_mb: Option<u64>,
    /// What the sandbox may reach: none, packages, learn, full, a preset of the daemon, or rules such as example.com,*.example.com:8443
    #[arg(long, alias = "net", value_name = "NETWORK", value_parser = network_option::parse)]
    pub network: Option<NetworkSpec>,
    /// Add a header to requests to a host, with a value that the sandbox never sees: HOST:HEADER=secret:NAME; may be given more than once
    #[arg(long, value_name = "INJECTION", value_parser = inject_option::parse)]
    pub inject: Vec<InjectOption>,
    /// Make the root file system writable; what is written there ends with the session
    #[arg(long)]
    pub writable_root: bool,
    /// Run commands as this user: default, or root of the sandbox, with which the root file system is writable
    #[arg(long, short = 'u', value_name = "USER", value_parser = user)]
    pub user: Option<SessionUser>,
    /// Allow more than usual: ptrace (trace running processes) or debug (also access their memory)
    #[arg(long = "profile", value_name = "NAME", value_parser = profile)]
    pub profiles: Vec<Profile>,
    /// Add a label to the session
    #[arg(short = 'l', long = "label", value_name = "KEY=VALUE", value_parser = pair)]
    pub labels: Vec<(String, String)>,
    /// Runtime that makes the sandbox: local or docker (default: the daemon's)
    #[arg(long, value_name = "NAME")]
    pub runtime: Option<RuntimeName>,
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
        let resources = ResourcesRequest {
            cpus: self.cpus,
            memory_mb: self.memory.or(self.memory_mb),
            pids: self.pids,
            disk_mb: self.disk_mb,
        };
        Ok(CreateSessionRequest {
            image: image.map(str::to_owned),
            idle_seconds: (lifetime == Lifetime::OfCommand).then_some(ABANDONED_SECONDS),
            runtime: self.runtime.clone(),
            snapshot: self.snapshot.clone(),
            workspace_id: self.workspace.clone(),
            env: variables(&self.env)?,
            labels: self.labels.iter().cloned().collect(),
            resources: (resources != ResourcesRequest::default()).then_some(resources),
            network: self.network.clone(),
            inject: inject_option::all(&self.inject),
            writable_root: self.writable_root.then_some(true),
            user: self.user,
            profiles: self.profiles.clone(),
            ..CreateSessionRequest::default()
        })
    }
}

fn user(text: &str) -> Result<SessionUser, String> {
    let names = || SessionUser::ALL.map(SessionUser::name).join(" or ");
    SessionUser::ALL.into_iter().find(|user| user.name() == text).ok_or_else(|| format!("use {}", names()))
}

fn profile(text: &str) -> Result<Profile, String> {
    let names = || Profile::ALL.map(Profile::name).join(", ");
    Profile::ALL.into_iter().find(|profile| profile.name() == text).ok_or_else(|| format!("use one of {}", names()))
}

fn snapshot(text: &str) -> Result<SnapshotId, String> {
    SnapshotId::new(text).map_err(|e| e.to_string())
}

/// Parses the name of a workspace. Docker's `NAME:/workspace` means the same.
fn workspace(text: &str) -> Result<WorkspaceId, String> {
    if text.starts_with(['/', '.', '~']) {
        let hint = "give the name of a workspace, and copy the directory into it: `cove workspace cp DIR NAME:`";
        return Err(format!("a sandbox mounts no directory of this machine; {hint}"));
    }
    let (name, place) = text.split_once(':').unwrap_or((text, WORKSPACE_PLACE));
    if place != WORKSPACE_PLACE {
        return Err(format!("a workspace is mounted at {WORKSPACE_PLACE} and nowhere else; use {name}"));
    }
    WorkspaceId::new(name).map_err(|e| e.to_string())
}

/// Parses a size with a unit as docker has it, in MiB, rounded up. A number alone is in bytes.
pub fn size_in_mib(text: &str) -> Result<u64, String> {
    let digits = text.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b'.').count();
    let (number, unit) = text.split_at(digits);
    let bytes_per_unit: u64 = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" | "kib" => 1 << 10,
        "m" | "mb" | "mib" => 1 << 20,
        "g" | "gb" | "gib" => 1 << 30,
        "t" | "tb" | "tib" => 1 << 40,
        _ => return Err("use a size such as 512m or 2g".into()),
    };
    let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
    let parsed = whole.parse::<u64>().ok().zip(part.parse::<u64>().ok().filter(|_| part.len() <= MAX_DECIMALS));
    let bytes = parsed.and_then(|(whole, part)| {
        let scale = 10u64.checked_pow(u32::try_from(part_len(number)).ok()?)?;
        whole.checked_mul(bytes_per_unit)?.checked_add(part.checked_mul(bytes_per_unit)? / scale)
    });
    let mib = bytes.ok_or("use a size such as 512m or 2g")?.div_ceil(1 << 20);
    if mib == 0 { Err("0 is no size: use one such as 512m or 2g".into()) } else { Ok(mib) }
}

/// How many digits a number has behind its point.
fn part_len(number: &str) -> usize {
    number.split_once('.').map_or(1, |(_, part)| part.len())
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
    fn sizes_are_read_as_docker_reads_them() {
        for (text, mib) in [
            ("2g", 2048),
            ("512m", 512),
            ("512M", 512),
            ("1.5g", 1536),
            ("1048577", 2),
            ("64MiB", 64),
            ("1k", 1),
            ("0.25g", 256),
        ] {
            assert_eq!(size_in_mib(text), Ok(mib), "{text}");
        }
        for bad in ["", "0", "m", "2x", "-1g", "1.2.3g", "99999999999999t", "1.1234567g", "2 g"] {
            assert!(size_in_mib(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_workspace_is_a_name_and_no_directory_of_this_machine() {
        assert_eq!(workspace("data").unwrap().as_str(), "data");
        assert_eq!(workspace("data:/workspace").unwrap().as_str(), "data");
        assert!(workspace("data:/mnt").unwrap_err().contains("/workspace"));
        for path in [".", "./src:/workspace", "/src:/app", "~/x"] {
            assert!(workspace(path).unwrap_err().contains("cove workspace cp"), "{path}");
        }
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

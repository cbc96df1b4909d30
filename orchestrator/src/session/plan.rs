//! From what a client asked for to a session that is complete and within bounds, or a sentence that says what to mend. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use shared_protocol::api::{CreateSessionRequest, NetworkMode, ResourcesRequest, ResourcesView};
use shared_protocol::runner::{MAX_ENV_BYTES, MAX_ENV_VALUE_BYTES};
use shared_protocol::{RuntimeName, SessionId, WorkspaceId};

use super::SessionError;
use crate::config::SessionsConfig;
use crate::runtime::SandboxSpec;

pub const MAX_LABELS: usize = 64;
pub const MAX_LABEL_KEY_BYTES: usize = 128;
pub const MAX_LABEL_VALUE_BYTES: usize = 1024;
pub const MAX_IMAGE_BYTES: usize = 256;
/// Of the runner, which does not pass them on.
const RESERVED_VARIABLES: &str = "COVE_RUNNER_";

/// Below these a shell does not start.
const MIN_CPUS: f64 = 0.01;
const MIN_MEMORY_MB: u64 = 32;
const MIN_PIDS: u64 = 16;
const MIN_DISK_MB: u64 = 1;

#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    pub image: String,
    pub runtime: Option<RuntimeName>,
    pub workspace: Option<WorkspaceId>,
    pub env: BTreeMap<String, String>,
    pub labels: BTreeMap<String, String>,
    pub resources: ResourcesView,
    pub network: NetworkMode,
    pub writable_root: bool,
    pub lifetime: Duration,
    /// How long it may be idle before it is paused.
    pub idle_pause: Option<Duration>,
}

impl Plan {
    pub fn resolve(request: CreateSessionRequest, config: &SessionsConfig) -> Result<Self, SessionError> {
        let image = request.image.unwrap_or_else(|| config.default_image.clone());
        if image.is_empty() || image.len() > MAX_IMAGE_BYTES || image.chars().any(char::is_control) {
            let message = format!("image must be a name of 1 to {MAX_IMAGE_BYTES} bytes without control characters");
            return Err(SessionError::InvalidImage(message));
        }
        check_env(&request.env)?;
        check_labels(&request.labels)?;
        let ttl = seconds("ttl_seconds", request.ttl_seconds, config)?.unwrap_or(config.default_ttl_seconds);
        let idle = seconds("idle_seconds", request.idle_seconds, config)?.unwrap_or(u64::MAX);
        let idle_pause = request.idle_pause_seconds.unwrap_or(config.default_idle_pause_seconds);
        if idle_pause > config.max_ttl_seconds {
            let max = config.max_ttl_seconds;
            return Err(invalid(format!("idle_pause_seconds must be 0 (never) to {max}, not {idle_pause}")));
        }
        Ok(Self {
            image,
            runtime: request.runtime,
            workspace: request.workspace_id,
            env: request.env,
            labels: request.labels,
            resources: resources(request.resources.unwrap_or_default(), config)?,
            network: request.network.unwrap_or_default(),
            writable_root: request.writable_root.unwrap_or(false),
            lifetime: Duration::from_secs(ttl.min(idle)),
            idle_pause: (idle_pause > 0).then(|| Duration::from_secs(idle_pause)),
        })
    }
}

impl Plan {
    /// Of its sandbox; the workspace is the registry's to mount.
    pub fn spec(&self, id: SessionId) -> SandboxSpec {
        SandboxSpec {
            id,
            image: self.image.clone(),
            resources: self.resources,
            network: self.network,
            writable_root: self.writable_root,
            workspace: None,
            env: self.env.clone(),
        }
    }
}

fn invalid(message: String) -> SessionError {
    SessionError::InvalidRequest(message)
}

fn seconds(name: &str, given: Option<u64>, config: &SessionsConfig) -> Result<Option<u64>, SessionError> {
    match given {
        Some(value) if value == 0 || value > config.max_ttl_seconds => {
            Err(invalid(format!("{name} must be 1 to {}, not {value}", config.max_ttl_seconds)))
        }
        other => Ok(other),
    }
}

fn resources(asked: ResourcesRequest, config: &SessionsConfig) -> Result<ResourcesView, SessionError> {
    let (default, max) = (&config.default_resources, &config.max_resources);
    let cpus = asked.cpus.unwrap_or(default.cpus);
    // Written so that what is not a number is refused too.
    if !(MIN_CPUS..=max.cpus).contains(&cpus) {
        return Err(invalid(format!("resources.cpus must be {MIN_CPUS} to {}, not {cpus}", max.cpus)));
    }
    let whole = |name: &str, asked: Option<u64>, default: u64, min: u64, max: u64| {
        let value = asked.unwrap_or(default);
        if (min..=max).contains(&value) {
            Ok(value)
        } else {
            Err(invalid(format!("resources.{name} must be {min} to {max}, not {value}")))
        }
    };
    let memory_mb = whole("memory_mb", asked.memory_mb, default.memory_mb, MIN_MEMORY_MB, max.memory_mb)?;
    // A disk may be memory: one that was not asked for leaves programs half of it.
    let default_disk_mb = default.disk_mb.min(memory_mb / 2).max(MIN_DISK_MB);
    Ok(ResourcesView {
        cpus,
        memory_mb,
        pids: whole("pids", asked.pids, default.pids, MIN_PIDS, max.pids)?,
        disk_mb: whole("disk_mb", asked.disk_mb, default_disk_mb, MIN_DISK_MB, max.disk_mb)?,
    })
}

fn check_env(env: &BTreeMap<String, String>) -> Result<(), SessionError> {
    let mut bytes = 0;
    for (name, value) in env {
        let mut letters = name.bytes();
        let begins_well = letters.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_');
        if !begins_well || !letters.all(|b| b.is_ascii_alphanumeric() || b == b'_') {
            let message =
                format!("{name:?} cannot be a variable's name: use A-Z a-z 0-9 _ and do not begin with a digit");
            return Err(invalid(message));
        }
        if name.starts_with(RESERVED_VARIABLES) {
            return Err(invalid(format!("variables that begin with {RESERVED_VARIABLES} are the runner's own")));
        }
        if value.contains('\0') {
            return Err(invalid(format!("the value of {name} contains a NUL byte")));
        }
        if name.len() + value.len() > MAX_ENV_VALUE_BYTES {
            return Err(invalid(format!("the variable {name} is longer than {MAX_ENV_VALUE_BYTES} bytes")));
        }
        bytes += name.len() + value.len();
    }
    if bytes > MAX_ENV_BYTES {
        return Err(invalid(format!("env has {bytes} bytes; at most {MAX_ENV_BYTES} fit")));
    }
    Ok(())
}

fn check_labels(labels: &BTreeMap<String, String>) -> Result<(), SessionError> {
    if labels.len() > MAX_LABELS {
        return Err(invalid(format!("{} labels were given; at most {MAX_LABELS} are kept", labels.len())));
    }
    for (key, value) in labels {
        let plain = !key.contains('=') && !key.chars().chain(value.chars()).any(char::is_control);
        if !plain || key.is_empty() || key.len() > MAX_LABEL_KEY_BYTES || value.len() > MAX_LABEL_VALUE_BYTES {
            return Err(invalid(format!(
                "a label's key has 1 to {MAX_LABEL_KEY_BYTES} bytes and no '=', its value at most {MAX_LABEL_VALUE_BYTES}, and \
                 neither has control characters"
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn resolve(json: &str) -> Result<Plan, SessionError> {
        let request = serde_json::from_str(json).unwrap();
        Plan::resolve(request, &SessionsConfig::default())
    }

    #[test]
    fn nothing_asked_for_is_a_session_with_the_defaults() {
        let config = SessionsConfig::default();
        let plan = resolve("{}").unwrap();
        assert_eq!(plan.image, "base");
        assert_eq!(plan.resources, config.default_resources);
        assert_eq!(plan.lifetime, Duration::from_secs(config.default_ttl_seconds));
        assert_eq!(plan.network, NetworkMode::None);
        assert!(!plan.writable_root);
    }

    #[test]
    fn the_shorter_of_ttl_and_idle_counts() {
        assert_eq!(resolve(r#"{"ttl_seconds":50,"idle_seconds":20}"#).unwrap().lifetime, Duration::from_secs(20));
        assert_eq!(resolve(r#"{"ttl_seconds":50,"idle_seconds":90}"#).unwrap().lifetime, Duration::from_secs(50));
    }

    #[test]
    fn a_pause_for_lack_of_use_is_the_daemons_default_unless_one_is_asked_for() {
        let config = SessionsConfig { default_idle_pause_seconds: 7, ..SessionsConfig::default() };
        let asked = |json: &str| Plan::resolve(serde_json::from_str(json).unwrap(), &config).unwrap().idle_pause;
        assert_eq!(asked("{}"), Some(Duration::from_secs(7)));
        assert_eq!(asked(r#"{"idle_pause_seconds":3}"#), Some(Duration::from_secs(3)));
        assert_eq!(asked(r#"{"idle_pause_seconds":0}"#), None);
        assert_eq!(resolve("{}").unwrap().idle_pause, None);
    }

    #[test]
    fn a_small_memory_has_a_small_disk_unless_one_is_asked_for() {
        assert_eq!(resolve(r#"{"resources":{"memory_mb":64}}"#).unwrap().resources.disk_mb, 32);
        assert_eq!(resolve(r#"{"resources":{"memory_mb":64,"disk_mb":50}}"#).unwrap().resources.disk_mb, 50);
    }

    #[test]
    fn what_is_out_of_bounds_is_refused_with_its_name() {
        for (json, name) in [
            (r#"{"ttl_seconds":0}"#, "ttl_seconds"),
            (r#"{"ttl_seconds":18446744073709551615}"#, "ttl_seconds"),
            (r#"{"idle_seconds":0}"#, "idle_seconds"),
            (r#"{"idle_pause_seconds":18446744073709551615}"#, "idle_pause_seconds"),
            (r#"{"resources":{"cpus":-1}}"#, "cpus"),
            (r#"{"resources":{"cpus":1e300}}"#, "cpus"),
            (r#"{"resources":{"memory_mb":0}}"#, "memory_mb"),
            (r#"{"resources":{"pids":1}}"#, "pids"),
            (r#"{"resources":{"disk_mb":18446744073709551615}}"#, "disk_mb"),
            (r#"{"env":{"1A":""}}"#, "1A"),
            (r#"{"env":{"":""}}"#, "variable"),
            (r#"{"env":{"A=B":""}}"#, "A=B"),
            (r#"{"env":{"A":"\u0000"}}"#, "NUL"),
            (r#"{"env":{"COVE_RUNNER_UID":"0"}}"#, "COVE_RUNNER_"),
            (r#"{"labels":{"a=b":"c"}}"#, "label"),
            (r#"{"labels":{"":"c"}}"#, "label"),
            (r#"{"labels":{"a":"\n"}}"#, "label"),
            (r#"{"image":""}"#, "image"),
        ] {
            let error = resolve(json).expect_err(json).to_string();
            assert!(error.contains(name), "{json}: {error}");
        }
    }

    proptest! {
        #[test]
        fn what_is_accepted_is_within_the_configured_bounds(
            cpus in prop::option::of(any::<f64>()), memory_mb: Option<u64>, pids: Option<u64>, disk_mb: Option<u64>, ttl: Option<u64>,
        ) {
            let config = SessionsConfig::default();
            let request = CreateSessionRequest {
                ttl_seconds: ttl,
                resources: Some(ResourcesRequest { cpus, memory_mb, pids, disk_mb }),
                ..CreateSessionRequest::default()
            };
            if let Ok(plan) = Plan::resolve(request, &config) {
                let (got, max) = (plan.resources, config.max_resources);
                prop_assert!(got.cpus > 0.0 && got.cpus <= max.cpus);
                prop_assert!(got.memory_mb <= max.memory_mb && got.pids <= max.pids && got.disk_mb <= max.disk_mb);
                prop_assert!(plan.lifetime <= Duration::from_secs(config.max_ttl_seconds));
            }
        }
    }
}

//! Turns a client's request into a complete and checked session spec, or an error that says what to correct. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use shared_protocol::api::{
    CreateSessionRequest, InjectionSpec, Profile, ResourcesRequest, ResourcesView, SessionUser, UpdateSessionRequest,
};
use shared_protocol::runner::{MAX_ENV_BYTES, MAX_ENV_VALUE_BYTES};
use shared_protocol::{RuntimeName, SessionId, SessionName};

use super::SessionError;
use crate::config::SessionsConfig;
use crate::network::SessionPolicy;
use crate::owner::Creator;
use crate::runtime::policy::max_disk_mb;
use crate::spec::{DiskPlace, LinkGenerations, SessionSpec, Variables};

pub const MAX_LABELS: usize = 64;
pub const MAX_LABEL_KEY_BYTES: usize = 128;
pub const MAX_LABEL_VALUE_BYTES: usize = 1024;
pub const MAX_IMAGE_BYTES: usize = 256;
/// The prefix of the runner's own variables, which the runner does not pass on to commands.
const RESERVED_VARIABLES: &str = "COVE_RUNNER_";

/// The minimum resources, without which a shell does not start.
const MIN_CPUS: f64 = 0.01;
const MIN_MEMORY_MB: u64 = 32;
const MIN_PIDS: u64 = 16;
const MIN_DISK_MB: u64 = 1;

/// A complete and checked request: the spec, which is stored, and the variables, which only the sandbox gets.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    pub spec: Arc<SessionSpec>,
    pub env: Variables,
}

impl Plan {
    /// Adds variables of the daemon as far as there is room. Those that the client has named win, whatever the case of their
    /// letters: npm reads `npm_config_registry` in any case.
    pub fn add_variables(&mut self, ours: Vec<(String, String)>) {
        let env = &mut self.env.0;
        let mut bytes: usize = env.iter().map(|(name, value)| name.len() + value.len()).sum();
        for (name, value) in ours {
            let size = name.len() + value.len();
            if !env.keys().any(|known| known.eq_ignore_ascii_case(&name)) && bytes + size <= MAX_ENV_BYTES {
                bytes += size;
                env.insert(name, value);
            }
        }
    }

    pub fn resolve(
        request: CreateSessionRequest,
        creator: &Creator,
        config: &SessionsConfig,
        default_runtime: &RuntimeName,
        disks: impl FnOnce(&RuntimeName) -> DiskPlace,
    ) -> Result<Self, SessionError> {
        let image = request.image.unwrap_or_else(|| config.default_image.clone());
        if image.is_empty() || image.len() > MAX_IMAGE_BYTES || image.chars().any(char::is_control) {
            let message = format!("image must be a name of 1 to {MAX_IMAGE_BYTES} bytes without control characters");
            return Err(SessionError::InvalidImage(message));
        }
        check_name(request.name.as_ref())?;
        check_env(&request.env)?;
        check_labels(&request.labels)?;
        let ttl = seconds("ttl_seconds", request.ttl_seconds, config)?.unwrap_or(config.default_ttl_seconds);
        let idle = seconds("idle_seconds", request.idle_seconds, config)?.unwrap_or(u64::MAX);
        let idle_pause = request.idle_pause_seconds.unwrap_or(config.default_idle_pause_seconds);
        if idle_pause > config.max_ttl_seconds {
            let max = config.max_ttl_seconds;
            return Err(invalid(format!("idle_pause_seconds must be 0 (never) to {max}, not {idle_pause}")));
        }
        let runtime = request.runtime.unwrap_or_else(|| default_runtime.clone());
        let disk = disks(&runtime);
        let user = request.user.unwrap_or_default();
        let spec = SessionSpec {
            owner: creator.owner.clone(),
            name: request.name,
            image,
            runtime,
            workspace: request.workspace_id,
            labels: request.labels,
            resources: resources(request.resources.unwrap_or_default(), config, disk)?,
            network: request.network.unwrap_or_default(),
            network_maximum: creator.network_maximum.clone(),
            inject: request.inject,
            // Who asks for root wants to install something.
            writable_root: request.writable_root.unwrap_or(user == SessionUser::Root),
            user,
            profiles: profiles(&request.profiles, config)?,
            lifetime: Duration::from_secs(ttl.min(idle)),
            links: LinkGenerations::default(),
            idle_pause: (idle_pause > 0).then(|| Duration::from_secs(idle_pause)),
        };
        Ok(Self { spec: Arc::new(spec), env: Variables(request.env) })
    }
}

/// A checked change of a session. `None` leaves a value as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Update {
    pub lifetime: Option<Duration>,
    pub labels: Option<BTreeMap<String, String>>,
    /// The policy, with the headers that are injected.
    pub network: Option<SessionPolicy>,
    pub links: Option<LinkGenerations>,
    /// What is stored of those headers, if they change too.
    pub inject: Option<Vec<InjectionSpec>>,
}

impl Update {
    /// Checks a change by the rules of a create.
    pub fn resolve(request: UpdateSessionRequest, config: &SessionsConfig) -> Result<Self, SessionError> {
        let ttl = seconds("ttl_seconds", request.ttl_seconds, config)?;
        let idle = seconds("idle_seconds", request.idle_seconds, config)?;
        if let Some(labels) = &request.labels {
            check_labels(labels)?;
        }
        let lifetime = ttl.into_iter().chain(idle).min().map(Duration::from_secs);
        Ok(Self { lifetime, labels: request.labels, ..Self::default() })
    }
}

/// The profiles that were asked for, each once, if the operator allows them.
fn profiles(asked: &[Profile], config: &SessionsConfig) -> Result<Vec<Profile>, SessionError> {
    if let Some(refused) = asked.iter().find(|profile| !config.allowed_profiles.contains(profile)) {
        let name = refused.name();
        return Err(invalid(format!(
            "the profile {name:?} is not allowed here; the daemon's operator allows it with sessions.allowed_profiles"
        )));
    }
    Ok(Profile::ALL.into_iter().filter(|profile| asked.contains(profile)).collect())
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

fn resources(asked: ResourcesRequest, config: &SessionsConfig, disk: DiskPlace) -> Result<ResourcesView, SessionError> {
    let (default, max) = (&config.default_resources, &config.max_resources);
    let cpus = asked.cpus.unwrap_or(default.cpus);
    // This form also refuses NaN.
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
    let in_memory = disk == DiskPlace::Memory;
    // A default disk in memory leaves half of the memory to programs.
    let default_disk_mb = if in_memory { default.disk_mb.min(memory_mb / 2).max(MIN_DISK_MB) } else { default.disk_mb };
    let asked_disk_mb = whole("disk_mb", asked.disk_mb, default_disk_mb, MIN_DISK_MB, max.disk_mb)?;
    // A disk in memory never takes all of it. One that is larger than the memory stays as it is: the runtime refuses it.
    let fits = in_memory && asked_disk_mb <= memory_mb;
    let disk_mb = if fits { asked_disk_mb.min(max_disk_mb(memory_mb)) } else { asked_disk_mb };
    Ok(ResourcesView { cpus, memory_mb, pids: whole("pids", asked.pids, default.pids, MIN_PIDS, max.pids)?, disk_mb })
}

/// Refuses a name that could be the id of another session.
fn check_name(name: Option<&SessionName>) -> Result<(), SessionError> {
    match name.filter(|name| SessionId::is_made_form(name.as_str())) {
        Some(name) => {
            Err(invalid(format!("name must not have the form of a session id, as {name:?} has", name = name.as_str())))
        }
        None => Ok(()),
    }
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
    use shared_protocol::api::NetworkSpec;

    fn resolve(json: &str) -> Result<SessionSpec, SessionError> {
        resolve_with(json, &SessionsConfig::default())
    }

    fn resolve_with(json: &str, config: &SessionsConfig) -> Result<SessionSpec, SessionError> {
        let request = serde_json::from_str(json).unwrap();
        // On this runtime disks are on the disk, and on the other in memory.
        let disks = |runtime: &RuntimeName| {
            if *runtime == RuntimeName::local() { DiskPlace::Disk } else { DiskPlace::Memory }
        };
        Plan::resolve(request, &Creator::first(), config, &RuntimeName::local(), disks)
            .map(|plan| SessionSpec::clone(&plan.spec))
    }

    #[test]
    fn a_runtime_that_was_not_asked_for_is_the_default_one() {
        assert_eq!(resolve("{}").unwrap().runtime, RuntimeName::local());
        assert_eq!(resolve(r#"{"runtime":"docker"}"#).unwrap().runtime, RuntimeName::docker());
    }

    #[test]
    fn nothing_asked_for_is_a_session_with_the_defaults() {
        let config = SessionsConfig::default();
        let plan = resolve("{}").unwrap();
        assert_eq!(plan.image, "base");
        assert_eq!(plan.resources, config.default_resources);
        assert_eq!(plan.lifetime, Duration::from_secs(config.default_ttl_seconds));
        assert_eq!(plan.network, NetworkSpec::default());
        assert!(!plan.writable_root);
        assert_eq!(plan.user, SessionUser::Default);
    }

    #[test]
    fn root_can_change_its_root_file_system_unless_that_is_declined() {
        let of = |json: &str| resolve(json).map(|plan| (plan.user, plan.writable_root)).unwrap();
        assert_eq!(of(r#"{"user":"root"}"#), (SessionUser::Root, true));
        assert_eq!(of(r#"{"user":"root","writable_root":false}"#), (SessionUser::Root, false));
        assert_eq!(of(r#"{"user":"default"}"#), (SessionUser::Default, false));
    }

    #[test]
    fn variables_of_the_daemon_come_after_those_of_the_client_and_only_as_far_as_they_fit() {
        let with = |json: &str| {
            let request = serde_json::from_str(json).unwrap();
            let (config, local) = (SessionsConfig::default(), RuntimeName::local());
            let mut plan = Plan::resolve(request, &Creator::first(), &config, &local, |_| DiskPlace::Disk).unwrap();
            let ours = [("NPM_CONFIG_REGISTRY", "https://mirror.test"), ("GOPROXY", "https://go.test")];
            plan.add_variables(ours.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec());
            plan.env.0
        };
        assert_eq!(with("{}").len(), 2);
        let named = with(r#"{"env":{"npm_config_registry":"https://own.test"}}"#);
        assert_eq!(named.keys().collect::<Vec<_>>(), ["GOPROXY", "npm_config_registry"]);
        let nearly_full: BTreeMap<String, String> =
            (0..16).map(|at| (format!("V{at:02}"), "x".repeat(MAX_ENV_BYTES / 16 - 5))).collect();
        let request = serde_json::json!({ "env": nearly_full }).to_string();
        let kept = with(&request);
        assert!(kept.contains_key("GOPROXY") && !kept.contains_key("NPM_CONFIG_REGISTRY"), "only the smaller one fits");
    }

    #[test]
    fn the_shorter_of_ttl_and_idle_counts() {
        assert_eq!(resolve(r#"{"ttl_seconds":50,"idle_seconds":20}"#).unwrap().lifetime, Duration::from_secs(20));
        assert_eq!(resolve(r#"{"ttl_seconds":50,"idle_seconds":90}"#).unwrap().lifetime, Duration::from_secs(50));
    }

    #[test]
    fn a_change_is_checked_as_a_create_is_and_leaves_the_rest() {
        let update = |json: &str| Update::resolve(serde_json::from_str(json).unwrap(), &SessionsConfig::default());
        assert_eq!(update("{}").unwrap(), Update::default());
        let both = update(r#"{"ttl_seconds":50,"idle_seconds":20}"#).unwrap();
        assert_eq!(both, Update { lifetime: Some(Duration::from_secs(20)), ..Update::default() });
        assert_eq!(update(r#"{"idle_seconds":9}"#).unwrap().lifetime, Some(Duration::from_secs(9)));
        assert_eq!(update(r#"{"labels":{}}"#).unwrap().labels, Some(BTreeMap::new()));
        for (json, name) in [
            (r#"{"ttl_seconds":0}"#, "ttl_seconds"),
            (r#"{"idle_seconds":18446744073709551615}"#, "idle_seconds"),
            (r#"{"labels":{"a=b":"c"}}"#, "label"),
        ] {
            assert!(update(json).expect_err(json).to_string().contains(name), "{json}");
        }
    }

    #[test]
    fn a_pause_for_lack_of_use_is_the_daemons_default_unless_one_is_asked_for() {
        let config = SessionsConfig { default_idle_pause_seconds: 7, ..SessionsConfig::default() };
        let asked = |json: &str| resolve_with(json, &config).unwrap().idle_pause;
        assert_eq!(asked("{}"), Some(Duration::from_secs(7)));
        assert_eq!(asked(r#"{"idle_pause_seconds":3}"#), Some(Duration::from_secs(3)));
        assert_eq!(asked(r#"{"idle_pause_seconds":0}"#), None);
        assert_eq!(resolve("{}").unwrap().idle_pause, None);
    }

    #[test]
    fn a_small_memory_has_a_small_disk_in_it_unless_one_is_asked_for() {
        let disk = |json: &str| resolve(json).unwrap().resources.disk_mb;
        assert_eq!(disk(r#"{"runtime":"docker","resources":{"memory_mb":64}}"#), 32);
        assert_eq!(disk(r#"{"runtime":"docker","resources":{"memory_mb":128,"disk_mb":80}}"#), 80);
        assert_eq!(disk(r#"{"runtime":"docker"}"#), 1024);
    }

    #[test]
    fn a_disk_on_the_disk_does_not_depend_on_the_memory() {
        let disk = |json: &str| resolve(json).unwrap().resources.disk_mb;
        assert_eq!(disk(r#"{"resources":{"memory_mb":64}}"#), 10 << 10);
        assert_eq!(disk(r#"{"resources":{"memory_mb":64,"disk_mb":64}}"#), 64);
        assert_eq!(disk(r#"{"resources":{"memory_mb":64,"disk_mb":4000}}"#), 4000);
    }

    #[test]
    fn a_disk_in_memory_that_is_as_large_as_the_memory_is_made_smaller_and_a_larger_one_is_left_to_the_runtime() {
        let disk = |json: &str| resolve(json).unwrap().resources.disk_mb;
        assert_eq!(disk(r#"{"runtime":"docker","resources":{"memory_mb":128,"disk_mb":128}}"#), 90);
        assert_eq!(disk(r#"{"runtime":"docker","resources":{"memory_mb":128,"disk_mb":129}}"#), 129);
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
            (r#"{"name":"7183cb80-d6c"}"#, "name"),
        ] {
            let error = resolve(json).expect_err(json).to_string();
            assert!(error.contains(name), "{json}: {error}");
        }
    }

    proptest! {
        #[test]
        fn what_is_accepted_is_within_the_configured_bounds(
            cpus in prop::option::of(any::<f64>()), memory_mb: Option<u64>, pids: Option<u64>, disk_mb: Option<u64>, ttl: Option<u64>,
            place in prop_oneof![Just(DiskPlace::Disk), Just(DiskPlace::Memory)],
        ) {
            let config = SessionsConfig::default();
            let request = CreateSessionRequest {
                ttl_seconds: ttl,
                resources: Some(ResourcesRequest { cpus, memory_mb, pids, disk_mb }),
                ..CreateSessionRequest::default()
            };
            if let Ok(Plan { spec, .. }) = Plan::resolve(request, &Creator::first(), &config, &RuntimeName::local(), |_| place) {
                let (got, max) = (spec.resources, config.max_resources);
                prop_assert!(got.cpus > 0.0 && got.cpus <= max.cpus);
                prop_assert!(got.memory_mb <= max.memory_mb && got.pids <= max.pids && got.disk_mb <= max.disk_mb);
                prop_assert!(spec.lifetime <= Duration::from_secs(config.max_ttl_seconds));
            }
        }
    }
}

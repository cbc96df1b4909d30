//! `[sessions]`: how many sessions there may be, how long they live, and their limits.

use shared_protocol::api::{Profile, ResourcesView};

use super::ConfigError;
use super::settings::Settings;

#[derive(Debug, Clone, PartialEq)]
pub struct SessionsConfig {
    pub max_sessions: u64,
    /// The memory limit for all sessions together. By default what sandboxes may use of the host, times the factor below.
    pub max_total_memory_mb: Option<u64>,
    /// How often the host's memory may be promised, because sessions rarely use all of theirs at the same time.
    pub memory_overcommit: u64,
    /// The same for the disk.
    pub max_total_disk_mb: Option<u64>,
    pub disk_overcommit: u64,
    pub max_total_cpus: Option<f64>,
    pub default_ttl_seconds: u64,
    pub max_ttl_seconds: u64,
    /// Seconds without use after which a session is paused; 0 means never.
    pub default_idle_pause_seconds: u64,
    pub default_image: String,
    /// What a stop of the daemon does to sessions. `None` means that SIGTERM keeps them and Ctrl-C ends them.
    pub on_stop: Option<OnStop>,
    /// The limits of a session that asks for none.
    pub default_resources: ResourcesView,
    pub max_resources: ResourcesView,
    /// The memory that all sandboxes together leave to the daemon and the rest of the host.
    pub host_reserve_mb: u64,
    /// What the disks of all sandboxes together leave free on the data directory's file system. By default a tenth of it, and at
    /// most 10 GiB.
    pub host_reserve_disk_mb: Option<u64>,
    /// The CPU weight of all sandboxes together, in percent of the default weight of a process group.
    pub cpu_weight_percent: u64,
    /// The profiles that a create may ask for.
    pub allowed_profiles: Vec<Profile>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnStop {
    /// The next daemon on the same data directory finds them again.
    Keep,
    Destroy,
}

impl std::str::FromStr for OnStop {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "keep" => Ok(Self::Keep),
            "destroy" => Ok(Self::Destroy),
            _ => Err(()),
        }
    }
}

/// The longest TTL: a year. Data that has to live longer belongs in a workspace.
const MAX_TTL_SECONDS: u64 = 366 * 24 * 3600;
const MAX_MAX_SESSIONS: u64 = 100_000;
const MAX_PIDS: u64 = 1 << 22;
/// The largest size in MiB: one pebibyte.
pub(super) const MAX_MIB: u64 = 1 << 30;
const MAX_OVERCOMMIT: u64 = 1_000_000;
const MAX_CPU_WEIGHT_PERCENT: u64 = 1000;

/// The part of the host's memory that is left to it by default, and the most that this is.
const HOST_RESERVE_SHARE: u64 = 8;
const MAX_HOST_RESERVE_MB: u64 = 2048;
/// The least memory that a reserve leaves to sandboxes.
const MIN_SANDBOXES_MB: u64 = 64;

impl Default for SessionsConfig {
    fn default() -> Self {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let memory_mb = host_memory_mb();
        Self {
            max_sessions: 1024,
            max_total_memory_mb: None,
            memory_overcommit: 100,
            max_total_disk_mb: None,
            disk_overcommit: 200,
            max_total_cpus: None,
            default_ttl_seconds: 1800,
            max_ttl_seconds: 30 * 24 * 3600,
            default_idle_pause_seconds: 0,
            default_image: "base".into(),
            on_stop: None,
            default_resources: ResourcesView {
                cpus: 1.0,
                memory_mb: 2048.min(memory_mb),
                pids: 256,
                disk_mb: 10 << 10,
            },
            max_resources: ResourcesView {
                cpus: u32::try_from(cpus).map_or(1.0, f64::from),
                memory_mb,
                pids: 32_768,
                disk_mb: 1 << 20,
            },
            host_reserve_mb: (memory_mb / HOST_RESERVE_SHARE).min(MAX_HOST_RESERVE_MB),
            host_reserve_disk_mb: None,
            cpu_weight_percent: 25,
            // It reaches only processes of the session, and only by a call that programs may make to their children anyway.
            allowed_profiles: vec![Profile::Ptrace],
        }
    }
}

/// The profiles in the setting, if it is there. An empty list allows none.
fn profiles(settings: &mut Settings) -> Result<Option<Vec<Profile>>, ConfigError> {
    const KEY: &str = "sessions.allowed_profiles";
    let Some(origin) = settings.origin_of(KEY) else { return Ok(None) };
    let names = settings.texts(KEY)?;
    let profile = |name: &String| {
        let found = Profile::ALL.into_iter().find(|profile| profile.name() == *name);
        found.ok_or_else(|| {
            let known = Profile::ALL.map(Profile::name).join(", ");
            ConfigError::new(origin.clone(), KEY, format!("is wrong: there is no profile {name:?}; there are {known}"))
        })
    };
    names.iter().map(profile).collect::<Result<_, _>>().map(Some)
}

impl SessionsConfig {
    pub(super) fn read(settings: &mut Settings) -> Result<Self, ConfigError> {
        let host = Self::default();
        let (d, m) = (host.default_resources, host.max_resources);
        let s = settings;
        let config = Self {
            max_sessions: s.whole("sessions.max_sessions", host.max_sessions, 0..=MAX_MAX_SESSIONS)?,
            max_total_memory_mb: s.optional_whole("sessions.max_total_memory_mb", 0..=MAX_MIB)?,
            memory_overcommit: s.whole("sessions.memory_overcommit", host.memory_overcommit, 1..=MAX_OVERCOMMIT)?,
            max_total_disk_mb: s.optional_whole("sessions.max_total_disk_mb", 0..=MAX_MIB)?,
            disk_overcommit: s.whole("sessions.disk_overcommit", host.disk_overcommit, 1..=MAX_OVERCOMMIT)?,
            max_total_cpus: s.optional_number("sessions.max_total_cpus", 0.0..=1e6)?,
            default_ttl_seconds: s.whole(
                "sessions.default_ttl_seconds",
                host.default_ttl_seconds,
                1..=MAX_TTL_SECONDS,
            )?,
            max_ttl_seconds: s.whole("sessions.max_ttl_seconds", host.max_ttl_seconds, 1..=MAX_TTL_SECONDS)?,
            default_idle_pause_seconds: s.whole("sessions.default_idle_pause_seconds", 0, 0..=MAX_TTL_SECONDS)?,
            default_image: s.text("sessions.default_image")?.unwrap_or(host.default_image),
            on_stop: s.parsed("sessions.on_stop", "keep or destroy")?,
            max_resources: ResourcesView {
                cpus: s.optional_number("sessions.max_cpus", 0.01..=1e6)?.unwrap_or(m.cpus),
                memory_mb: s.whole("sessions.max_memory_mb", m.memory_mb, 32..=MAX_MIB)?,
                pids: s.whole("sessions.max_pids", m.pids, 16..=MAX_PIDS)?,
                disk_mb: s.whole("sessions.max_disk_mb", m.disk_mb, 1..=MAX_MIB)?,
            },
            default_resources: ResourcesView {
                cpus: s.optional_number("sessions.default_cpus", 0.01..=1e6)?.unwrap_or(d.cpus),
                memory_mb: s.whole("sessions.default_memory_mb", d.memory_mb, 32..=MAX_MIB)?,
                pids: s.whole("sessions.default_pids", d.pids, 16..=MAX_PIDS)?,
                disk_mb: s.whole("sessions.default_disk_mb", d.disk_mb, 1..=MAX_MIB)?,
            },
            host_reserve_mb: s.whole("sessions.host_reserve_mb", host.host_reserve_mb, 0..=MAX_MIB)?,
            host_reserve_disk_mb: s.optional_whole("sessions.host_reserve_disk_mb", 0..=MAX_MIB)?,
            cpu_weight_percent: s.whole(
                "sessions.cpu_weight_percent",
                host.cpu_weight_percent,
                1..=MAX_CPU_WEIGHT_PERCENT,
            )?,
            allowed_profiles: profiles(s)?.unwrap_or(host.allowed_profiles),
        };
        if config.host_reserve_mb + MIN_SANDBOXES_MB > host_memory_mb() {
            const KEY: &str = "sessions.host_reserve_mb";
            let message = format!("leaves less than {MIN_SANDBOXES_MB} MiB of this host to sandboxes");
            return Err(ConfigError::new(s.origin_of(KEY).unwrap_or_default(), KEY, message));
        }
        config.check(s)
    }

    /// The memory limit for all sessions together.
    pub fn total_memory_mb(&self) -> u64 {
        let usable = host_memory_mb().saturating_sub(self.host_reserve_mb);
        self.max_total_memory_mb.unwrap_or_else(|| usable.saturating_mul(self.memory_overcommit))
    }

    /// Refuses a default that was configured above its maximum, and lowers one that was not configured.
    fn check(mut self, settings: &Settings) -> Result<Self, ConfigError> {
        let given = |key: &str| settings.origin_of(key);
        let over =
            |key: &str| Err(ConfigError::new(given(key).unwrap_or_default(), key, "is above its maximum".into()));
        let (default, max) = (&mut self.default_resources, &self.max_resources);
        if default.cpus > max.cpus {
            if given("sessions.default_cpus").is_some() {
                return over("sessions.default_cpus");
            }
            default.cpus = max.cpus;
        }
        for (key, value, limit) in [
            ("sessions.default_memory_mb", &mut default.memory_mb, max.memory_mb),
            ("sessions.default_pids", &mut default.pids, max.pids),
            ("sessions.default_disk_mb", &mut default.disk_mb, max.disk_mb),
            ("sessions.default_ttl_seconds", &mut self.default_ttl_seconds, self.max_ttl_seconds),
            ("sessions.default_idle_pause_seconds", &mut self.default_idle_pause_seconds, self.max_ttl_seconds),
        ] {
            if *value > limit {
                if given(key).is_some() {
                    return over(key);
                }
                *value = limit;
            }
        }
        Ok(self)
    }
}

/// The memory of the host.
pub fn host_memory_mb() -> u64 {
    const FALLBACK_MB: u64 = 4096;
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = total.and_then(|rest| rest.split_whitespace().next()).and_then(|number| number.parse::<u64>().ok());
    kib.map_or(FALLBACK_MB, |kib| (kib / 1024).max(64))
}

//! `[sessions]`: how many, how long, how large.

use shared_protocol::api::ResourcesView;

use super::ConfigError;
use super::settings::Settings;

#[derive(Debug, Clone, PartialEq)]
pub struct SessionsConfig {
    pub max_sessions: u64,
    /// Of all sessions together; `None`: no limit, since limits of sessions are rarely all used at once.
    pub max_total_memory_mb: Option<u64>,
    pub max_total_cpus: Option<f64>,
    pub default_ttl_seconds: u64,
    pub max_ttl_seconds: u64,
    /// Of idleness, after which a session is paused; 0: never.
    pub default_idle_pause_seconds: u64,
    pub default_image: String,
    /// What becomes of sessions when the daemon stops; `None`: SIGTERM keeps them, SIGINT destroys them.
    pub on_stop: Option<OnStop>,
    /// Of one session.
    pub default_resources: ResourcesView,
    pub max_resources: ResourcesView,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnStop {
    /// For the next daemon of the same data directory.
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

/// A year: more is a mistake, or wants a workspace.
const MAX_TTL_SECONDS: u64 = 366 * 24 * 3600;
const MAX_MAX_SESSIONS: u64 = 100_000;
const MAX_PIDS: u64 = 1 << 22;
/// In MiB: a pebibyte.
const MAX_MIB: u64 = 1 << 30;

impl Default for SessionsConfig {
    fn default() -> Self {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let memory_mb = host_memory_mb();
        Self {
            max_sessions: 1024,
            max_total_memory_mb: None,
            max_total_cpus: None,
            default_ttl_seconds: 1800,
            max_ttl_seconds: 30 * 24 * 3600,
            default_idle_pause_seconds: 0,
            default_image: "base".into(),
            on_stop: None,
            default_resources: ResourcesView { cpus: 1.0, memory_mb: 1024.min(memory_mb), pids: 256, disk_mb: 512 },
            max_resources: ResourcesView {
                cpus: u32::try_from(cpus).map_or(1.0, f64::from),
                memory_mb,
                pids: 32_768,
                // Written to memory where the host has no quotas.
                disk_mb: memory_mb.max(512),
            },
        }
    }
}

impl SessionsConfig {
    pub(super) fn read(settings: &mut Settings) -> Result<Self, ConfigError> {
        let host = Self::default();
        let (d, m) = (host.default_resources, host.max_resources);
        let s = settings;
        let config = Self {
            max_sessions: s.whole("sessions.max_sessions", host.max_sessions, 0..=MAX_MAX_SESSIONS)?,
            max_total_memory_mb: s.optional_whole("sessions.max_total_memory_mb", 0..=MAX_MIB)?,
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
        };
        config.check(s)
    }

    /// A default above its maximum: refused if somebody asked for it, lowered if it is only ours.
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

fn host_memory_mb() -> u64 {
    const FALLBACK_MB: u64 = 4096;
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = total.and_then(|rest| rest.split_whitespace().next()).and_then(|number| number.parse::<u64>().ok());
    kib.map_or(FALLBACK_MB, |kib| (kib / 1024).max(64))
}

//! `[exec]`: time and output limits of commands.

use super::ConfigError;
use super::settings::Settings;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecConfig {
    /// The time limit of a command that asks for none; 0 means no limit.
    pub default_timeout_ms: u64,
    /// The longest time limit that a request may ask for; 0 means any.
    pub max_timeout_ms: u64,
    /// How much output a plain reply contains, if the request does not say.
    pub max_output_bytes: u64,
    /// The largest output limit that a request may ask for, because a reply is built in memory.
    pub max_max_output_bytes: u64,
}

const WEEK_MS: u64 = 7 * 24 * 3600 * 1000;
const MAX_REPLY_BYTES: u64 = 256 << 20;

impl Default for ExecConfig {
    fn default() -> Self {
        Self {
            default_timeout_ms: 120_000,
            max_timeout_ms: 0,
            max_output_bytes: 1 << 20,
            max_max_output_bytes: 16 << 20,
        }
    }
}

impl ExecConfig {
    pub(super) fn read(settings: &mut Settings) -> Result<Self, ConfigError> {
        let ours = Self::default();
        Ok(Self {
            default_timeout_ms: settings.whole("exec.default_timeout_ms", ours.default_timeout_ms, 0..=WEEK_MS)?,
            max_timeout_ms: settings.whole("exec.max_timeout_ms", ours.max_timeout_ms, 0..=WEEK_MS)?,
            max_output_bytes: settings.whole("exec.max_output_bytes", ours.max_output_bytes, 0..=MAX_REPLY_BYTES)?,
            max_max_output_bytes: settings.whole(
                "exec.max_max_output_bytes",
                ours.max_max_output_bytes,
                0..=MAX_REPLY_BYTES,
            )?,
        })
    }
}

//! `[log]`: what the daemon logs on standard error, and in which format.

use super::ConfigError;
use super::settings::Settings;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    Text,
    Json,
}

impl std::str::FromStr for LogFormat {
    type Err = ();
    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            _ => Err(()),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogConfig {
    pub format: LogFormat,
    /// A filter of `tracing-subscriber`, such as `info` or `orchestrator=debug`.
    pub filter: String,
}

impl LogConfig {
    pub(super) fn read(settings: &mut Settings) -> Result<Self, ConfigError> {
        let filter = settings.text("log.filter")?.unwrap_or_else(|| "info".into());
        if let Err(error) = filter.parse::<tracing_subscriber::EnvFilter>() {
            let origin = settings.origin_of("log.filter").unwrap_or_default();
            return Err(ConfigError::new(origin, "log.filter", format!("is not a log filter: {error}")));
        }
        Ok(Self { format: settings.parsed("log.format", "text or json")?.unwrap_or(LogFormat::Text), filter })
    }
}

//! What the daemon was asked to be.

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecConfig {
    /// 0: none.
    pub default_timeout_ms: u64,
    /// What a request may ask for; 0: anything.
    pub max_timeout_ms: u64,
    pub max_output_bytes: u64,
    pub max_max_output_bytes: u64,
}

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

#[derive(Debug, Clone, Default)]
pub struct Config {
    pub exec: ExecConfig,
}

//! How likely the kernel is to kill this process when the host's memory runs out.

use std::io;

const FILE: &str = "/proc/self/oom_score_adj";

/// The value of this process. Without `/proc` it is the default.
pub fn own() -> i32 {
    std::fs::read_to_string(FILE).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

/// Sets the value of this process, which its children inherit. To lower it needs CAP_SYS_RESOURCE.
pub fn set(value: i32) -> io::Result<()> {
    std::fs::write(FILE, value.to_string())
}

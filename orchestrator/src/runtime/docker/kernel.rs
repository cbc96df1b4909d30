//! The kernel that a container runs on: the host's, or gVisor, which is a kernel of the container's own.
//!
//! The program of the engine's runtime shows which one it is, whatever name an administrator gave to that runtime. With
//! gVisor, the host's limits apply to all of gVisor's threads and memory, and the processes of the sandbox are only a part
//! of those.

use bollard::models::SystemInfo;

/// The name of gVisor's program. It is also the usual name of the runtime, for an engine that does not report the program.
const GVISOR_PROGRAM: &str = "runsc";

/// The argument that turns gVisor's network off.
const NO_NETWORK: &str = "network=none";

/// The number of gVisor's own threads, with some room. About 30 were seen when idle and 60 when busy.
const GVISOR_OWN_THREADS: u64 = 192;
/// The number of host threads for each process inside, with some room. About four were seen.
const GVISOR_THREADS_EACH: u64 = 6;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kernel {
    Host,
    Gvisor,
}

/// Whether the requested runtime, or the engine's default, has a network. An argument can turn gVisor's network off
/// completely; `network = "full"` would then silently mean no network.
pub fn has_network(info: &SystemInfo, asked: Option<&str>) -> bool {
    let Some(name) = asked.or(info.default_runtime.as_deref()) else { return true };
    let known = info.runtimes.as_ref().and_then(|runtimes| runtimes.get(name));
    let arguments = known.and_then(|runtime| runtime.runtime_args.as_ref());
    !arguments.is_some_and(|arguments| arguments.iter().any(|argument| argument.trim_start_matches('-') == NO_NETWORK))
}

impl Kernel {
    /// The kernel of the requested runtime, or of the engine's default.
    pub fn of(info: &SystemInfo, asked: Option<&str>) -> Self {
        let Some(name) = asked.or(info.default_runtime.as_deref()) else { return Self::Host };
        let known = info.runtimes.as_ref().and_then(|runtimes| runtimes.get(name));
        let path = known.and_then(|runtime| runtime.path.as_deref()).filter(|path| !path.is_empty()).unwrap_or(name);
        let program = path.rsplit('/').next().unwrap_or(path);
        if program.starts_with(GVISOR_PROGRAM) { Self::Gvisor } else { Self::Host }
    }

    /// The limit of host threads for this number of processes inside.
    pub fn host_threads(self, processes: u64) -> u64 {
        match self {
            Self::Host => processes,
            Self::Gvisor => processes.saturating_mul(GVISOR_THREADS_EACH).saturating_add(GVISOR_OWN_THREADS),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bollard::models::Runtime;
    use std::collections::HashMap;

    #[test]
    fn gvisor_is_known_by_its_program() {
        let runtime = |path: &str| Runtime { path: Some(path.into()), ..Runtime::default() };
        let runtimes = [("runc", "runc"), ("safe", "/usr/bin/runsc"), ("runsc", "/usr/local/bin/runsc-debug")];
        let info = SystemInfo {
            runtimes: Some(runtimes.map(|(name, path)| (name.to_owned(), runtime(path))).into()),
            default_runtime: Some("runc".into()),
            ..SystemInfo::default()
        };
        assert_eq!(Kernel::of(&info, None), Kernel::Host);
        assert_eq!(Kernel::of(&info, Some("runc")), Kernel::Host);
        assert_eq!(Kernel::of(&info, Some("safe")), Kernel::Gvisor);
        assert_eq!(Kernel::of(&info, Some("runsc")), Kernel::Gvisor);
        // This engine reports no runtimes.
        assert_eq!(
            Kernel::of(&SystemInfo { runtimes: Some(HashMap::new()), ..info.clone() }, Some("runsc")),
            Kernel::Gvisor
        );
        let default = SystemInfo { default_runtime: Some("safe".into()), ..info };
        assert_eq!(Kernel::of(&default, None), Kernel::Gvisor);
    }

    #[test]
    fn a_runtime_that_is_told_to_have_no_network_has_none() {
        let runtime = |arguments: &[&str]| Runtime {
            path: Some("runsc".into()),
            runtime_args: Some(arguments.iter().map(|argument| (*argument).to_owned()).collect()),
            ..Runtime::default()
        };
        let runtimes =
            [("with", runtime(&["--host-uds=all"])), ("without", runtime(&["--host-uds=all", "-network=none"]))];
        let info = SystemInfo {
            runtimes: Some(runtimes.map(|(name, runtime)| (name.to_owned(), runtime)).into()),
            default_runtime: Some("without".into()),
            ..SystemInfo::default()
        };
        assert!(has_network(&info, Some("with")) && has_network(&info, Some("unknown")));
        assert!(!has_network(&info, Some("without")) && !has_network(&info, None));
    }

    #[test]
    fn there_is_room_for_gvisors_own_threads_and_still_a_limit() {
        assert_eq!(Kernel::Host.host_threads(50), 50);
        assert_eq!(Kernel::Gvisor.host_threads(50), 50 * GVISOR_THREADS_EACH + GVISOR_OWN_THREADS);
        assert_eq!(Kernel::Gvisor.host_threads(u64::MAX), u64::MAX);
    }
}

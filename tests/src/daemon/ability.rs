//! The abilities that differ between runtimes. The stories are the same on all; a story that needs more than a runtime has
//! is skipped or asks for less, and says so. docs/concepts/runtimes.md tells users the same.

use std::sync::LazyLock;

use super::runtime::engine;

/// The kind of sandboxes in this run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ground {
    Local,
    /// Containers that use the host's kernel.
    Containers,
    /// Containers of Podman: they lack what Docker's lack, and a little more.
    Podman,
    /// Containers with gVisor as their kernel.
    Gvisor,
}

static GROUND: LazyLock<Ground> = LazyLock::new(|| match engine() {
    None => Ground::Local,
    Some(engine) if engine.is_gvisor() => Ground::Gvisor,
    Some(engine) if engine.is_podman() => Ground::Podman,
    Some(_) => Ground::Containers,
});

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ability {
    /// `cove image import` works.
    ImportedImages,
    /// Sandboxes can show the host's own system.
    HostImage,
    /// `disabled_protections`, which the controls of the probe use, works.
    ProtectionsOff,
    /// The daemon can run without root.
    OrdinaryUsers,
    /// Each sandbox has its own range of user ids.
    OwnUserIds,
    /// The runner is a process that the host sees, with its own memory.
    RunnerOnHost,
    /// A reply reports `oom_killed`.
    OomTold,
    /// The sandbox can read the limit of its memory in its cgroup.
    MemoryLimitSeen,
    /// `/proc/1` and the runner's other entries in `/proc` are closed to commands.
    InitHidden,
    /// A denied system call can be answered with any error number.
    ErrorNumbers,
    /// `/proc/self/status` has `NoNewPrivs` and `CapAmb`.
    WholeStatus,
    /// A stream reports `awaiting_input`.
    WaitingSeen,
    /// A terminal shows control-C as `^C`.
    KeysShown,
    /// The daemon itself removes a sandbox, within one second.
    OwnRemoval,
    /// A paused sandbox uses no CPU time at all.
    StillAccounts,
    /// A session survives a command that wants more memory than it may have.
    LimitSurvived,
    /// A file lock in a workspace is visible to all sessions that use the workspace.
    SharedLocks,
    /// A container that the kernel killed can be removed at once.
    CrashHeardOf,
    /// By default, an engine ends its containers when it ends.
    EndsWithEngine,
    /// Programs reach the network without a proxy.
    EveryDial,
    /// A registry on loopback needs no certificate, and a pull reports its progress.
    OpenRegistry,
}

use Ability::{
    CrashHeardOf, EndsWithEngine, ErrorNumbers, EveryDial, HostImage, ImportedImages, InitHidden, KeysShown,
    LimitSurvived, MemoryLimitSeen, OomTold, OpenRegistry, OrdinaryUsers, OwnRemoval, OwnUserIds, ProtectionsOff,
    RunnerOnHost, SharedLocks, StillAccounts, WaitingSeen, WholeStatus,
};

/// Every ability that some runtime lacks, and why. All runtimes have the other abilities.
const LACKING: [(Ability, Ground, &str); 27] = [
    (HostImage, Ground::Containers, "a container shows its image"),
    (HostImage, Ground::Gvisor, "a container shows its image"),
    (ImportedImages, Ground::Containers, "images are the engine's"),
    (ImportedImages, Ground::Gvisor, "images are the engine's"),
    (ProtectionsOff, Ground::Containers, "no protection can be turned off there"),
    (ProtectionsOff, Ground::Gvisor, "no protection can be turned off there"),
    (OrdinaryUsers, Ground::Containers, "whoever may use the engine is root"),
    (OrdinaryUsers, Ground::Gvisor, "whoever may use the engine is root"),
    (OwnUserIds, Ground::Containers, "containers share the engine's"),
    (OwnUserIds, Ground::Gvisor, "containers share the engine's"),
    (RunnerOnHost, Ground::Gvisor, "the host sees gVisor, which holds the whole sandbox"),
    (OomTold, Ground::Gvisor, "the host's kernel kills a part of gVisor, which tells nobody why a process ended"),
    (MemoryLimitSeen, Ground::Gvisor, "its cgroups do not show the limit that the host enforces"),
    (InitHidden, Ground::Gvisor, "its /proc shows the runner's variables and maps to everybody inside"),
    (ErrorNumbers, Ground::Gvisor, "it answers whatever a filter denies with EPERM"),
    (WholeStatus, Ground::Gvisor, "its /proc/self/status has neither NoNewPrivs nor CapAmb"),
    (WaitingSeen, Ground::Gvisor, "its /proc does not tell what a process waits for"),
    (KeysShown, Ground::Gvisor, "its terminals echo the byte itself"),
    (OwnRemoval, Ground::Containers, "an engine removes containers in its own time"),
    (OwnRemoval, Ground::Gvisor, "an engine removes containers in its own time"),
    (
        StillAccounts,
        Ground::Gvisor,
        "its own threads go on, some hundredths of a cpu, while the processes inside stand still",
    ),
    (LimitSurvived, Ground::Gvisor, "the limit holds gVisor too, and the host's kernel may kill gVisor itself"),
    (SharedLocks, Ground::Gvisor, "its locks, and the place at which it appends to a file, are each sandbox's own"),
    (CrashHeardOf, Ground::Gvisor, "the engine may learn only half a minute later that gVisor was killed"),
    (EveryDial, Ground::Gvisor, "the daemon cannot enter its network, so programs need the proxy"),
    (EndsWithEngine, Ground::Podman, "its containers go on without its service, always"),
    (OpenRegistry, Ground::Podman, "it wants a certificate of a registry on loopback too"),
];

impl Ability {
    fn why_lacking(self) -> Option<&'static str> {
        let is_here = |ground: Ground| ground == *GROUND || (*GROUND == Ground::Podman && ground == Ground::Containers);
        LACKING.iter().find(|(ability, ground, _)| *ability == self && is_here(*ground)).map(|(_, _, why)| *why)
    }

    /// Whether the runtime has the ability, for a part of a story. If not, it prints the skip.
    pub fn is_there(self, story: &str) -> bool {
        !lacks(story, self)
    }
}

/// Whether to skip a story because the runtime lacks the ability. Prints the skip.
pub fn lacks(story: &str, ability: Ability) -> bool {
    let why = ability.why_lacking();
    if let Some(why) = why {
        let ground = match *GROUND {
            Ground::Gvisor => "docker with gVisor",
            Ground::Podman => "podman",
            Ground::Containers | Ground::Local => "docker",
        };
        crate::skipped(story, &format!("on {ground}: {why}"));
    }
    why.is_some()
}

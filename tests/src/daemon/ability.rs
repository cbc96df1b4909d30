//! What holds on one runtime and not on another. The stories are the same on all; where one of them asks for more than a runtime
//! has, it is left out or asks for less, and says so. docs/concepts/runtimes.md tells users the same.

use std::sync::LazyLock;

use super::runtime::engine;

/// What makes the sandboxes of this run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ground {
    Local,
    /// Containers that use the host's kernel.
    Containers,
    /// Containers of Podman: they lack what Docker's do, and a little more.
    Podman,
    /// Containers with gVisor for a kernel.
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
    /// `cove image import`.
    ImportedImages,
    /// `disabled_protections`, the controls of the probe.
    ProtectionsOff,
    /// A daemon that is not root.
    OrdinaryUsers,
    /// A range of user ids for each sandbox.
    OwnUserIds,
    /// The runner is a process that the host sees, with its own memory.
    RunnerOnHost,
    /// `oom_killed` of a reply.
    OomTold,
    /// The sandbox can read the limit of its memory in its cgroup.
    MemoryLimitSeen,
    /// `/proc/1`, and what else is the runner's in `/proc`, is closed to commands.
    InitHidden,
    /// What is denied can be answered with any error.
    ErrorNumbers,
    /// `NoNewPrivs` and `CapAmb` in `/proc/self/status`.
    WholeStatus,
    /// `awaiting_input` of a stream.
    WaitingSeen,
    /// A terminal shows control-C as `^C`.
    KeysShown,
    /// A sandbox is removed by the daemon itself, within its second.
    OwnRemoval,
    /// A sandbox that is paused uses no cpu time at all.
    StillAccounts,
    /// A session outlives a command that wants more memory than it may have.
    LimitSurvived,
    /// A lock on a file of a workspace holds for all sessions that have it.
    SharedLocks,
    /// What the kernel has killed can be removed at once.
    CrashHeardOf,
    /// An engine takes its containers along when it ends, where it is not told otherwise.
    EndsWithEngine,
    /// A registry on loopback needs no certificate, and a pull tells how far it is.
    OpenRegistry,
}

use Ability::{
    CrashHeardOf, EndsWithEngine, ErrorNumbers, ImportedImages, InitHidden, KeysShown, LimitSurvived, MemoryLimitSeen,
    OomTold, OpenRegistry, OrdinaryUsers, OwnRemoval, OwnUserIds, ProtectionsOff, RunnerOnHost, SharedLocks,
    StillAccounts, WaitingSeen, WholeStatus,
};

/// Everything that some runtime has not got, and why. What is not listed here holds on all.
const LACKING: [(Ability, Ground, &str); 24] = [
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
    (EndsWithEngine, Ground::Podman, "its containers go on without its service, always"),
    (OpenRegistry, Ground::Podman, "it wants a certificate of a registry on loopback too"),
];

impl Ability {
    fn why_lacking(self) -> Option<&'static str> {
        let is_here = |ground: Ground| ground == *GROUND || (*GROUND == Ground::Podman && ground == Ground::Containers);
        LACKING.iter().find(|(ability, ground, _)| *ability == self && is_here(*ground)).map(|(_, _, why)| *why)
    }

    /// Whether it is there, for a story that has other things to tell as well; said aloud where it is not.
    pub fn is_there(self, story: &str) -> bool {
        !lacks(story, self)
    }
}

/// Whether a story is to be left out since the runtime lacks what it is about; that is said aloud.
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

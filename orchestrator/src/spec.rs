//! The specification of a session: one complete and checked value that the session, the pools, the store and the runtimes
//! share.
//!
//! The store saves all of it as JSON. So a new field needs a serde default, because rows of an older daemon do not have it.
//! Secrets must not be in it: variables may be secrets, and travel beside the spec as [`Variables`].

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use shared_protocol::api::{InjectionSpec, NetworkSpec, Profile, ResourcesView, SessionUser};
use shared_protocol::{KeyName, RuntimeName, SessionName, WorkspaceId};

use crate::owner::{NetworkMaximum, WorkspaceName};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SessionSpec {
    /// The key that the session belongs to. Rows from before there were several keys belong to the first one.
    #[serde(default = "KeyName::first", skip_serializing_if = "KeyName::is_first")]
    pub owner: KeyName,
    /// A name that no other session of the owner has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<SessionName>,
    pub image: String,
    pub runtime: RuntimeName,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<WorkspaceId>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    pub resources: ResourcesView,
    /// What the session was created with. A client can change it later.
    pub network: NetworkSpec,
    /// What limits the network, by the key that chose it last. Rows of older versions have the daemon's maximum.
    #[serde(default, skip_serializing_if = "NetworkMaximum::is_daemons")]
    pub network_maximum: NetworkMaximum,
    /// The headers that the daemon adds, without their values. `None`: the sandbox was made without a certificate authority for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inject: Option<Vec<InjectionSpec>>,
    pub writable_root: bool,
    #[serde(default, skip_serializing_if = "SessionUser::is_default")]
    pub user: SessionUser,
    /// Without duplicates, in the order of [`Profile::ALL`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub profiles: Vec<Profile>,
    /// How long the session lives without use: the shorter of TTL and idle time.
    #[serde(rename = "lifetime_seconds", with = "seconds")]
    pub lifetime: Duration,
    /// How long the session may be idle before it is paused. `None`: it is never paused for being idle.
    #[serde(
        rename = "idle_pause_seconds",
        with = "optional_seconds",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub idle_pause: Option<Duration>,
    /// Which links to the session's ports were taken back.
    #[serde(default, skip_serializing_if = "LinkGenerations::is_first")]
    pub links: LinkGenerations,
}

impl SessionSpec {
    /// The spec of a session of the first key that asks only for an image and its resources.
    pub fn plain(image: impl Into<String>, runtime: RuntimeName, resources: ResourcesView, lifetime: Duration) -> Self {
        Self {
            owner: KeyName::first(),
            name: None,
            image: image.into(),
            runtime,
            workspace: None,
            labels: BTreeMap::new(),
            resources,
            network: NetworkSpec::default(),
            network_maximum: NetworkMaximum::default(),
            inject: None,
            writable_root: false,
            user: SessionUser::Default,
            profiles: Vec::new(),
            lifetime,
            idle_pause: None,
            links: LinkGenerations::default(),
        }
    }

    /// The workspace that the session asks for. It is one of the session's owner.
    pub fn workspace_name(&self) -> Option<WorkspaceName> {
        let id = self.workspace.clone()?;
        Some(WorkspaceName { owner: self.owner.clone(), id })
    }

    pub fn uses(&self, workspace: &WorkspaceName) -> bool {
        self.owner == workspace.owner && self.workspace.as_ref() == Some(&workspace.id)
    }

    /// Whether a sandbox that was made from this spec can become the session that `asked` describes: everything that is
    /// fixed when a sandbox is made must be equal. Both a create that looks for a pooled sandbox and a pool that takes back
    /// the sandboxes of an earlier daemon use this one decision.
    pub fn fits(&self, asked: &Self, workspaces: LateWorkspaces) -> bool {
        // The pattern names every field, so a new field does not compile until somebody decides about it here.
        let Self {
            image,
            runtime,
            resources,
            writable_root,
            user,
            profiles,
            workspace,
            inject,
            // The claim sets these fields.
            owner: _,
            name: _,
            network: _,
            network_maximum: _,
            labels: _,
            lifetime: _,
            idle_pause: _,
            links: _,
        } = asked;
        self.image == *image
            && self.runtime == *runtime
            && self.resources == *resources
            && self.writable_root == *writable_root
            && self.user == *user
            && self.profiles == *profiles
            // A sandbox gets its certificate authority when it is made.
            && self.inject.is_some() == inject.is_some()
            && (self.workspace == *workspace || workspaces == LateWorkspaces::Mountable)
    }
}

/// The most ports of one session whose links are counted apart.
const MAX_LINKED_PORTS: usize = 256;

/// The generations of links to ports of one session. A link is good as long as its port has the generation in which it was made.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkGenerations {
    /// Added to the generation of every port.
    all: u64,
    /// The ports whose links were taken back apart from that, and how often. A list, because the store's document is flattened, and
    /// there serde reads no numbers as keys.
    ports: Vec<(u16, u64)>,
}

impl LinkGenerations {
    pub fn is_first(&self) -> bool {
        *self == Self::default()
    }

    pub fn of(&self, port: u16) -> u64 {
        let own = self.ports.iter().find(|(known, _)| *known == port).map_or(0, |(_, generation)| *generation);
        self.all.saturating_add(own)
    }

    /// Takes back all links to a port. If too many ports are counted apart, all links of the session are taken back.
    pub fn take_back(&mut self, port: u16) {
        if let Some((_, generation)) = self.ports.iter_mut().find(|(known, _)| *known == port) {
            *generation = generation.saturating_add(1);
        } else if self.ports.len() < MAX_LINKED_PORTS {
            self.ports.push((port, 1));
        } else {
            let highest = self.ports.drain(..).map(|(_, generation)| generation).max().unwrap_or(0);
            self.all = self.all.saturating_add(highest).saturating_add(1);
        }
    }
}

/// Whether a runtime can mount a workspace in a sandbox that already runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LateWorkspaces {
    Mountable,
    AtStartOnly,
}

/// Where the files of a session are, and so what `disk_mb` takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskPlace {
    /// On the host's disk.
    Disk,
    /// In the memory of the session.
    Memory,
}

/// The variables of every shell and run of a session. They may be secrets: they are sent into the sandbox, never stored, not
/// kept once the sandbox has them, and not shown in logs.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Variables(pub BTreeMap<String, String>);

impl Variables {
    /// The names, as the runner takes them.
    pub fn names(&self) -> String {
        self.0.keys().map(String::as_str).collect::<Vec<_>>().join(",")
    }
}

impl std::fmt::Debug for Variables {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Variables({} of them)", self.0.len())
    }
}

mod seconds {
    use super::Duration;
    use serde::{Deserialize as _, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(value: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(value.as_secs())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        u64::deserialize(deserializer).map(Duration::from_secs)
    }
}

mod optional_seconds {
    use super::Duration;
    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};

    #[expect(clippy::ref_option, reason = "serde calls it with a reference to the field")]
    pub fn serialize<S: Serializer>(value: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
        value.map(|duration| duration.as_secs()).serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<u64>::deserialize(deserializer)?.map(Duration::from_secs))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESOURCES: ResourcesView = ResourcesView { cpus: 0.5, memory_mb: 64, pids: 32, disk_mb: 16 };

    fn plain() -> SessionSpec {
        SessionSpec::plain("python", RuntimeName::local(), RESOURCES, Duration::from_secs(60))
    }

    #[test]
    fn what_a_claim_can_still_set_fits_and_what_is_fixed_in_a_sandbox_does_not() {
        let later = SessionSpec {
            owner: KeyName::new("alice").unwrap(),
            labels: BTreeMap::from([("a".to_owned(), "b".to_owned())]),
            lifetime: Duration::from_secs(5),
            idle_pause: Some(Duration::from_secs(2)),
            network: NetworkSpec::preset(NetworkSpec::FULL),
            ..plain()
        };
        let in_workspace = SessionSpec { workspace: Some(WorkspaceId::new("w").unwrap()), ..plain() };
        for workspaces in [LateWorkspaces::Mountable, LateWorkspaces::AtStartOnly] {
            assert!(plain().fits(&later, workspaces));
            let fits = plain().fits(&in_workspace, workspaces);
            assert_eq!(fits, workspaces == LateWorkspaces::Mountable);
            for other in [
                SessionSpec { image: "node".into(), ..plain() },
                SessionSpec { runtime: RuntimeName::new("docker").unwrap(), ..plain() },
                SessionSpec { writable_root: true, ..plain() },
                SessionSpec { user: SessionUser::Root, ..plain() },
                SessionSpec { inject: Some(Vec::new()), ..plain() },
                SessionSpec { profiles: vec![Profile::Ptrace], ..plain() },
                SessionSpec { resources: ResourcesView { pids: 99, ..RESOURCES }, ..plain() },
            ] {
                assert!(!plain().fits(&other, workspaces), "{other:?}");
            }
        }
    }

    #[test]
    fn a_port_never_has_a_generation_of_links_again() {
        let (mut links, ports) = (LinkGenerations::default(), 1..=2 * u16::try_from(MAX_LINKED_PORTS).unwrap());
        assert!(links.is_first());
        for port in ports.clone().chain(ports) {
            let before = links.clone();
            links.take_back(port);
            assert!(links.of(port) > before.of(port));
            assert!([1, 2, 700].iter().all(|other| links.of(*other) >= before.of(*other)));
            assert!(links.ports.len() <= MAX_LINKED_PORTS);
        }
        let mut few = LinkGenerations::default();
        few.take_back(80);
        assert_eq!((few.of(80), few.of(81)), (1, 0));
    }

    #[test]
    fn variables_do_not_show() {
        let secret = Variables(BTreeMap::from([("TOKEN".to_owned(), "hunter2".to_owned())]));
        assert_eq!(format!("{secret:?}"), "Variables(1 of them)");
    }
}

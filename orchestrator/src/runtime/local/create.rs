//! How a sandbox is made: what is refused before the first effect, the plan, and the steps from its record to its first process.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use shared_protocol::api::SessionUser;
use shared_protocol::runner::SandboxState;
use shared_protocol::{SANDBOX_USER, SessionId};
use tracing::warn;

use super::accounts::Accounts;
use super::host::Users;
use super::images::{ImageRoot, KeptImage};
use super::layout::{self, Layout, WorkspaceSource, WritableRoot};
use super::plan::{DeviceNodes, DiskPlan, DiskSource, LaunchPlan, RootPlan, Step, UserNamespace};
use super::proc_files::THREADS_VARIABLE;
use super::sandbox_dir::{ProcessRecord, SandboxRecord};
use super::snapshots::SnapshotDir;
use super::users::SandboxUsers;
use super::{GIVING_WORKSPACE, LocalRuntime, MAKING_DIRECTORY, cgroup, failed, first_process, ids, settled};
use crate::failpoint;
use crate::runtime::policy::{self, FILES_ARGUMENTS, SCRATCH, STATE};
use crate::runtime::syscalls::Debugging;
use crate::runtime::{Origin, Purpose, RuntimeError, Sandbox, SandboxSpec, WayOut, WorkspaceMount, files, netns};
use crate::spec::SessionSpec;
use crate::sys::{oom_score, process};

/// What exists of a sandbox before its first process.
struct Prepared {
    /// The accounts of a session whose commands are root.
    accounts: Option<Accounts>,
    image: Option<ImageRoot>,
    placement: cgroup::Placement,
    disk: Option<DiskSource>,
    record: SandboxRecord,
    /// What its shells start with, unless the disk is empty.
    state: Option<Box<SandboxState>>,
}

/// What a sandbox is made from: its image, what its disk inherits, and what its shells start with.
struct Source {
    image: Option<ImageRoot>,
    inherited: u64,
    state: Option<Box<SandboxState>>,
    /// How many threads the programs of the session before were told to use, if the daemon told them.
    threads: Option<usize>,
}

impl LocalRuntime {
    /// Refuses a session that this host cannot make from the image.
    fn refuse_unsupported(&self, spec: &SessionSpec, image: Option<&ImageRoot>) -> Result<(), RuntimeError> {
        let refuse = |why: String| Err(RuntimeError::Unsupported(why));
        if spec.writable_root && self.host.users != Users::Root {
            return refuse("a writable root needs a daemon that runs as root".into());
        }
        if spec.writable_root && image.is_none() && !self.host.writable {
            return refuse(format!(
                "image {:?} is this host's own system, over which this host cannot lay a layer: that needs Linux 5.19 or newer, \
                 and the host's programs on ext4, xfs or btrfs",
                spec.image
            ));
        }
        if spec.writable_root && !self.host.idmap {
            return refuse(
                "a writable root needs a data directory on a file system with idmapped mounts: ext4, xfs or btrfs"
                    .into(),
            );
        }
        if spec.user == SessionUser::Root && matches!(self.host.users, Users::Own { .. }) {
            return refuse(
                "user \"root\" needs a second user id beside yours: ask an administrator for a range of at least 65536 ids in /etc/subuid \
                 and /etc/subgid, and for newuidmap and newgidmap (package uidmap), and start the daemon again; or run the daemon as root"
                    .into(),
            );
        }
        if spec.user == SessionUser::Root && self.host.users == Users::Root && !self.host.idmap {
            return refuse(
                "user \"root\" needs a data directory on a file system with idmapped mounts: ext4, xfs or btrfs".into(),
            );
        }
        // A tmpfs counts as memory. A disk that is larger than the memory could never be filled.
        if self.disks.are_in_memory() && spec.resources.disk_mb > spec.resources.memory_mb {
            return refuse(format!(
                "disk_mb ({}) is more than memory_mb ({}): sandboxes of this daemon keep their files in memory, as cove doctor explains",
                spec.resources.disk_mb, spec.resources.memory_mb
            ));
        }
        Ok(())
    }

    fn plan(
        &self,
        spec: &SandboxSpec,
        image: Option<ImageRoot>,
        block: u32,
        Prepared { accounts, placement, disk, state, record, .. }: &Prepared,
    ) -> LaunchPlan {
        let directory = self.directory(&spec.id);
        let named = image.as_ref().and_then(|image| image.settings.user);
        let users = SandboxUsers::of(&self.host, spec.session.user, named, block, spec.workspace.as_ref());
        let owners = users.owners;
        let workspace = spec.workspace.as_ref().map(|workspace| match workspace.clone() {
            WorkspaceMount::Directory(path) => WorkspaceSource::Directory { path, idmap: users.workspace.clone() },
            WorkspaceMount::Subvolume { device, subvolume } => {
                WorkspaceSource::Subvolume { device, subvolume, idmap: users.workspace.clone().unwrap_or_default() }
            }
        });
        let device_nodes = match users.plan.how {
            UserNamespace::Last if self.protections.own_inodes => DeviceNodes::Own,
            _ => DeviceNodes::Host,
        };
        let resources = &spec.session.resources;
        let processors = placement.limits_cpu.then(|| self.host.proc_files.processors(resources));
        let mut own_limits = Vec::new();
        if let Some(count) = processors {
            own_limits.extend(self.host.proc_files.processor_steps(count, owners.host));
        }
        if !placement.visible.is_empty() {
            own_limits.extend(self.host.proc_files.memory_steps());
        }
        let layout = Layout {
            owners,
            hostname: spec.id.as_str(),
            device_nodes,
            workspace,
            cgroups: &placement.visible,
            authority: spec.authority.as_deref(),
            covers_stores: !spec.session.writable_root,
            scratch_bytes: policy::scratch_bytes(resources.memory_mb),
            state_bytes: policy::state_bytes(resources.memory_mb),
            own_limits,
            // The files of root belong to the user of commands there.
            writable_root: spec
                .session
                .writable_root
                .then(|| WritableRoot { owner: owners.user, idmap: users.writable_root.clone() }),
            root: accounts.as_ref(),
        };
        let start_dir = image.as_ref().and_then(|image| start_dir(image, spec));
        let mut environment = image.as_ref().map(|image| image.settings.variables.clone()).unwrap_or_default();
        let (root, steps) = match (spec.purpose, image) {
            (Purpose::WorkspaceFiles, _) => (RootPlan::Empty, layout.workspace_files()),
            (Purpose::Session, None) => {
                let root = match &layout.writable_root {
                    Some(WritableRoot { owner, .. }) => RootPlan::Disk { owner: *owner },
                    None => RootPlan::Empty,
                };
                (root, layout.host(&self.host.shown, &self.etc_names))
            }
            (Purpose::Session, Some(ImageRoot { tree, .. })) if spec.session.writable_root => {
                (RootPlan::Overlay { tree, idmap: users.writable_root.clone() }, layout.image())
            }
            (Purpose::Session, Some(ImageRoot { tree, .. })) => {
                let idmap = users.image.clone();
                (RootPlan::Image { tree, idmap, view: self.host.shown.images.view() }, layout.image())
            }
        };
        let is_complete = !spec.awaits_workspace && !spec.session.writable_root;
        let writable_places = is_complete.then(|| layout::writable_places(&steps));
        let (user, group) = (users.commands.uid.to_string(), users.commands.gid.to_string());
        let socket_fd = process::SOCKET_FD.to_string();
        let open_files = policy::open_files(resources.pids).to_string();
        let entrances = placement.entrances.commands.len().to_string();
        if let Some(count) = record.threads {
            environment.insert(THREADS_VARIABLE.to_owned(), count.to_string());
        }
        // The image's variables are below the session's own. Login files override neither: they would undo a PATH.
        environment.extend(spec.env.0.clone());
        let names = environment.keys().map(String::as_str).collect::<Vec<_>>().join(",");
        let start: Vec<&str> = start_dir.iter().flat_map(|path| ["--start-dir", path]).collect();
        let namespace_fd = users
            .plan
            .commands
            .as_ref()
            .map(|_| first_process::root_namespace_fd(placement.entrances.commands.len()).to_string());
        let namespace: Vec<&str> = namespace_fd.iter().flat_map(|number| ["--root-namespace-fd", number]).collect();
        let arguments = [
            ["--socket-fd", &socket_fd],
            ["--commands-cgroup-fds", &entrances],
            ["--proc-files", if steps.contains(&Step::Serve) { "1" } else { "0" }],
            ["--open-files", &open_files],
            ["--scratch", SCRATCH],
            ["--state", STATE],
            ["--session-variables", &names],
            ["--await-restore", if state.is_some() { "true" } else { "false" }],
            ["--uid", &user],
            ["--gid", &group],
        ];
        let files_arguments: &[&str] = match spec.purpose {
            Purpose::Session => &[],
            Purpose::WorkspaceFiles => &FILES_ARGUMENTS,
        };
        LaunchPlan {
            hostname: spec.id.to_string(),
            mount_point: directory.mount_point(),
            root,
            disk: disk.clone().map(|source| DiskPlan { source, idmap: ids::disk_map(block) }),
            host_owner: owners.host,
            steps,
            users: users.plan,
            cgroups: placement.entrances.clone(),
            limits: layout::limits(resources, !placement.entrances.is_empty(), disk.is_some()),
            writable_places,
            debugging: Debugging::of(&spec.session.profiles),
            runner: self.runner.clone(),
            arguments: arguments
                .as_flattened()
                .iter()
                .chain(&start)
                .chain(&namespace)
                .chain(files_arguments)
                .map(|word| (*word).to_owned())
                .collect(),
            environment,
            socket: directory.socket(),
            log: directory.log(),
            protections: self.protections,
            oom_score_adj: policy::sandbox_oom_score_adj(oom_score::own()),
        }
    }

    /// How many threads programs are told to use, unless their image, their client or a snapshot says it.
    fn threads(&self, spec: &SandboxSpec, image: Option<&ImageRoot>, prepared: &Prepared) -> Option<usize> {
        let is_said = image.is_some_and(|image| image.settings.variables.contains_key(THREADS_VARIABLE))
            || spec.env.0.contains_key(THREADS_VARIABLE)
            || prepared.state.is_some() && prepared.record.threads.is_none();
        let is_ours = spec.purpose == Purpose::Session && prepared.placement.limits_cpu && !is_said;
        is_ours.then(|| self.host.proc_files.processors(&spec.session.resources))
    }

    pub(super) async fn start(&self, spec: &SandboxSpec, block: u32) -> Result<Sandbox, RuntimeError> {
        let directory = self.directory(&spec.id);
        let mut prepared = self.prepare(spec, block).await?;
        let image = prepared.image.take();
        // The caller has checked this, but the image may have changed since.
        self.refuse_unsupported(&spec.session, image.as_ref())?;
        let start_dir = image.as_ref().and_then(|image| start_dir(image, spec));
        let threads = self.threads(spec, image.as_ref(), &prepared);
        let newer_variables = match (prepared.record.threads, threads) {
            (Some(old), Some(new)) if old != new => [(THREADS_VARIABLE.to_owned(), new.to_string())].into(),
            _ => BTreeMap::new(),
        };
        prepared.record.threads = threads;
        let plan = self.plan(spec, image, block, &prepared);
        let launched = self.launchers.launch(&plan).await?;
        failpoint::at("local.create.launched").map_err(|e| failed("launching the sandbox", e))?;
        let process = ProcessRecord::of(launched.pid).map_err(|e| failed("reading the sandbox's start time", e))?;
        let record = SandboxRecord { process: Some(process), ..prepared.record };
        let writing = self.disk.run_for(spec.id.as_str(), move || directory.write(&record));
        let (written, network) = tokio::join!(writing, self.open_network(&spec.id, spec.purpose, launched.process()));
        settled(written).map_err(|e| failed("recording the sandbox's process", e))?;
        failpoint::at("local.create.recorded").map_err(|e| failed("recording the sandbox's process", e))?;
        let (pid, pidfd) = launched.keep().await?;
        failpoint::at("local.create.kept").map_err(|e| failed("releasing the launcher", e))?;
        let state = prepared.state;
        Ok(Sandbox { start_dir, state, newer_variables, ..self.watch(&spec.id, pid, Arc::new(pidfd), network) })
    }

    /// Opens the way out of a sandbox. Without one, programs inside reach nothing.
    pub(super) async fn open_network(
        &self,
        id: &SessionId,
        purpose: Purpose,
        process: io::Result<OwnedFd>,
    ) -> Option<WayOut> {
        // Without this protection, a sandbox has the network of the host, which must stay as it is.
        if purpose != Purpose::Session || !self.protections.network {
            return None;
        }
        let opened = match process {
            Ok(process) if self.host.users == Users::Root => netns::open_by_thread(process).await,
            Ok(process) => netns::open_by_process(process).await,
            Err(error) => Err(error),
        };
        opened
            .inspect_err(|error| warn!(session_id = %id, %error, "the sandbox has no way to the network"))
            .map(WayOut::Sockets)
            .ok()
    }

    /// The root file system of a session's image, if this runtime can make that session.
    pub(super) async fn checked_image(&self, spec: &SessionSpec, origin: &Origin) -> Result<(), RuntimeError> {
        let (images, disks, name) = (self.images.clone(), self.disks.clone(), spec.image.clone());
        let (snapshots, origin, bytes) = (self.snapshots.clone(), origin.clone(), spec.resources.disk_mb << 20);
        let look = move || {
            failpoint::at("local.image").map_err(|error| failed("looking for the image", error))?;
            disks.check_room()?;
            match origin {
                Origin::Empty | Origin::Stopped => images.resolve(&name),
                Origin::Snapshot(id) => {
                    disks.check_lasting()?;
                    let record = SnapshotDir::new(&snapshots, &id).read()?;
                    disks.check_size(bytes, record.bytes)?;
                    images.reopen(record.image.as_ref(), &name)
                }
            }
        };
        let resolved = self.disk.run(look).await;
        let image = resolved.map_err(|e| failed("looking for the image", e.into()))??;
        self.refuse_unsupported(spec, image.as_ref())
    }

    /// Makes everything that exists on the host before a sandbox's first process: first its record, then its disk, its cgroup and
    /// the owner of its workspace. It also finds the image, in the same call to the disk threads.
    async fn prepare(&self, spec: &SandboxSpec, block: u32) -> Result<Prepared, RuntimeError> {
        let (directory, cgroups, id) = (self.directory(&spec.id), self.cgroups.clone(), spec.id.to_string());
        let (disks, snapshots, origin) = (self.disks.clone(), self.snapshots.clone(), spec.origin.clone());
        let (images, session, purpose) = (self.images.clone(), spec.session.clone(), spec.purpose);
        // With an idmapped mount each sandbox sees its own user as the owner. Without one, all sandboxes share that user.
        let owner = if self.host.idmap { SANDBOX_USER } else { ids::SHARED_USER };
        let workspace = spec.workspace.clone().filter(|_| self.host.users == Users::Root);
        let work = move || {
            let accounts = (session.user == SessionUser::Root).then(|| {
                let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
                Accounts::of_root(&read("/etc/passwd"), &read("/etc/group"))
            });
            let Source { image, inherited, state, threads } = match (purpose, &origin) {
                (Purpose::WorkspaceFiles, _) => Source { image: None, inherited: 0, state: None, threads: None },
                (Purpose::Session, Origin::Empty) => {
                    // A pool makes sandboxes without a check before each.
                    disks.check_room()?;
                    Source { image: images.resolve(&session.image)?, inherited: 0, state: None, threads: None }
                }
                (Purpose::Session, Origin::Snapshot(snapshot)) => {
                    disks.check_room()?;
                    let found = SnapshotDir::new(&snapshots, snapshot);
                    let (record, state) = (found.read()?, found.read_state()?);
                    let image = images.reopen(record.image.as_ref(), &session.image)?;
                    Source { image, inherited: record.bytes, state: Some(Box::new(state)), threads: record.threads }
                }
                (Purpose::Session, Origin::Stopped) => {
                    disks.check_room()?;
                    let record = directory.read().map_err(|e| failed("reading the stopped session's record", e))?;
                    let state = directory.read_state().map_err(|e| failed("reading the state of its shells", e))?;
                    let image = images.reopen(record.image.as_ref(), &session.image)?;
                    Source { image, inherited: record.inherited, state: Some(Box::new(state)), threads: record.threads }
                }
            };
            let kept = (purpose == Purpose::Session).then(|| KeptImage::of(image.as_ref()));
            let record = SandboxRecord { block, process: None, inherited, image: kept, threads, is_stopped: false };
            let made = if origin == Origin::Stopped { directory.make_again(&record) } else { directory.make(&record) };
            made.map_err(|e| failed(MAKING_DIRECTORY, e))?;
            failpoint::at("local.create.directory").map_err(|e| failed(MAKING_DIRECTORY, e))?;
            if let Some(image) = &image {
                images.begin_use(image, &directory.0)?;
            }
            let bytes = session.resources.disk_mb << 20;
            let disk = match (purpose, &origin) {
                (Purpose::WorkspaceFiles, _) => None,
                (Purpose::Session, Origin::Empty) => disks.make(&id, bytes)?,
                (Purpose::Session, Origin::Snapshot(snapshot)) => {
                    Some(disks.make_from(snapshot.as_str(), &id, bytes, inherited)?)
                }
                (Purpose::Session, Origin::Stopped) => Some(disks.reuse(&id, bytes, inherited)?),
            };
            failpoint::at("local.create.disk").map_err(|e| failed("making the sandbox's disk", e))?;
            let placement = cgroups.create(&id, &session.resources).map_err(|e| failed("making the cgroup", e))?;
            failpoint::at("local.create.cgroup").map_err(|e| failed("making the cgroup", e))?;
            if let Some(WorkspaceMount::Directory(path)) = workspace {
                files::give(&path, owner).map_err(|e| failed(GIVING_WORKSPACE, e))?;
            }
            Ok(Prepared { accounts, image, placement, disk, record, state })
        };
        self.disk.run_for(spec.id.as_str(), work).await.map_err(|e| failed(MAKING_DIRECTORY, e.into()))?
    }
}

/// The directory in which the shells of a sandbox begin, if the image names one. A session with a workspace of its own begins there.
fn start_dir(image: &ImageRoot, spec: &SandboxSpec) -> Option<String> {
    image.settings.directory.clone().filter(|_| spec.workspace.is_none())
}

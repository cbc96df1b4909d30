//! How a sandbox is made: what is refused before the first effect, the plan, and the steps from its record to its first process.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use shared_protocol::{SANDBOX_USER, SessionId};
use tracing::warn;

use super::host::Users;
use super::layout::{self, Layout, Owners, WorkspaceSource};
use super::plan::{DeviceNodes, LaunchPlan, Owner, RootPlan, UserNamespace, UserPlan};
use super::sandbox_dir::{ProcessRecord, SandboxRecord};
use super::{GIVING_WORKSPACE, LocalRuntime, MAKING_DIRECTORY, cgroup, failed, ids, launch, settled};
use crate::failpoint;
use crate::runtime::policy::{self, FILES_ARGUMENTS, SCRATCH, STATE};
use crate::runtime::syscalls::Debugging;
use crate::runtime::{Purpose, RuntimeError, Sandbox, SandboxSockets, SandboxSpec, files, netns};
use crate::spec::SessionSpec;
use crate::sys::{oom_score, process};

impl LocalRuntime {
    /// Refuses a session that this host cannot make from the image.
    fn refuse_unsupported(&self, spec: &SessionSpec, image: Option<&Path>) -> Result<(), RuntimeError> {
        let refuse = |why: String| Err(RuntimeError::Unsupported(why));
        if spec.writable_root && image.is_none() {
            return refuse(format!(
                "image {:?} is this host's own system, which is always read-only; import an image with `cove image import` \
                 for a writable root, or write below /workspace, /tmp and $HOME",
                spec.image
            ));
        }
        if spec.writable_root && self.host.users != Users::Root {
            return refuse("a writable root needs a daemon that runs as root".into());
        }
        if spec.writable_root && !self.host.idmap {
            return refuse(
                "a writable root needs a data directory on a file system with idmapped mounts: ext4, xfs or btrfs"
                    .into(),
            );
        }
        // The disk is a tmpfs, which counts as memory. A disk that is larger than the memory could never be filled.
        if spec.resources.disk_mb > spec.resources.memory_mb {
            return refuse(format!(
                "disk_mb ({}) is more than memory_mb ({}): sandboxes of the local runtime keep their files in memory",
                spec.resources.disk_mb, spec.resources.memory_mb
            ));
        }
        Ok(())
    }

    fn plan(
        &self,
        spec: &SandboxSpec,
        image: Option<PathBuf>,
        block: u32,
        placement: &cgroup::Placement,
    ) -> LaunchPlan {
        let directory = self.directory(&spec.id);
        let users = self.users(block, spec.workspace.is_some());
        let workspace = spec.workspace.as_ref().map(|workspace| WorkspaceSource {
            path: workspace.path.clone(),
            idmap: self.host.idmap.then(|| ids::same_inside(block)),
        });
        let owners = match users.how {
            UserNamespace::Last => {
                let user = if self.host.idmap || spec.workspace.is_none() {
                    ids::block_base(block) + SANDBOX_USER
                } else {
                    ids::SHARED_USER
                };
                Owners::outside(ids::block_base(block), user)
            }
            UserNamespace::FirstSelf => Owners::inside(SANDBOX_USER, false),
            UserNamespace::FirstSubordinate => Owners::inside(SANDBOX_USER, true),
        };
        let device_nodes = match users.how {
            UserNamespace::Last if self.protections.own_inodes => DeviceNodes::Own,
            _ => DeviceNodes::Host,
        };
        let resources = &spec.session.resources;
        let layout = Layout {
            owners,
            hostname: spec.id.as_str(),
            device_nodes,
            workspace,
            cgroups: &placement.visible,
            scratch_bytes: policy::scratch_bytes(resources.memory_mb),
            state_bytes: policy::state_bytes(resources.memory_mb),
        };
        let (root, steps) = match (spec.purpose, image) {
            (Purpose::WorkspaceFiles, _) => (RootPlan::Empty, layout.workspace_files()),
            (Purpose::Session, None) => (RootPlan::Empty, layout.host(&self.host.shown, &self.etc_names)),
            (Purpose::Session, Some(path)) if spec.session.writable_root => {
                let idmap = self.host.idmap.then(|| ids::root_is_user(block));
                (RootPlan::Overlay { path, idmap }, layout.image())
            }
            (Purpose::Session, Some(path)) => {
                let idmap = self.host.idmap.then(|| ids::same_inside(block));
                (RootPlan::Image { path, idmap, view: self.host.shown.images.view() }, layout.image())
            }
        };
        let is_complete = !spec.awaits_workspace && !spec.session.writable_root;
        let writable_places = is_complete.then(|| layout::writable_places(&steps));
        let user = SANDBOX_USER.to_string();
        let socket_fd = process::SOCKET_FD.to_string();
        let open_files = policy::open_files(resources.pids).to_string();
        let entrances = placement.entrances.commands.len().to_string();
        let names = spec.env.names();
        let arguments = [
            ["--socket-fd", &socket_fd],
            ["--commands-cgroup-fds", &entrances],
            ["--open-files", &open_files],
            ["--scratch", SCRATCH],
            ["--state", STATE],
            ["--session-variables", &names],
            ["--uid", &user],
            ["--gid", &user],
        ];
        let files_arguments: &[&str] = match spec.purpose {
            Purpose::Session => &[],
            Purpose::WorkspaceFiles => &FILES_ARGUMENTS,
        };
        LaunchPlan {
            hostname: spec.id.to_string(),
            mount_point: directory.mount_point(),
            root,
            host_owner: owners.host,
            steps,
            users,
            cgroups: placement.entrances.clone(),
            limits: layout::limits(resources, !placement.entrances.is_empty()),
            writable_places,
            debugging: Debugging::of(&spec.session.profiles),
            runner: self.runner.clone(),
            arguments: arguments.as_flattened().iter().chain(files_arguments).map(|word| (*word).to_owned()).collect(),
            environment: spec.env.0.clone(),
            socket: directory.socket(),
            log: directory.log(),
            protections: self.protections,
            oom_score_adj: policy::sandbox_oom_score_adj(oom_score::own()),
        }
    }

    fn users(&self, block: u32, has_workspace: bool) -> UserPlan {
        let root = Owner { uid: 0, gid: 0 };
        match &self.host.users {
            Users::Root => {
                let map = if self.host.idmap || !has_workspace {
                    ids::block_map(block)
                } else {
                    ids::block_map_with_shared_user(block)
                };
                UserPlan { how: UserNamespace::Last, uids: map.clone(), gids: map, runner: root }
            }
            Users::Own { uid, gid } => UserPlan {
                how: UserNamespace::FirstSelf,
                uids: ids::self_map(*uid),
                gids: ids::self_map(*gid),
                runner: Owner { uid: SANDBOX_USER, gid: SANDBOX_USER },
            },
            Users::Subordinate { uid, gid, uids, gids } => UserPlan {
                how: UserNamespace::FirstSubordinate,
                uids: ids::subordinate_map(*uid, uids.0, uids.1),
                gids: ids::subordinate_map(*gid, gids.0, gids.1),
                runner: root,
            },
        }
    }

    pub(super) async fn start(&self, spec: &SandboxSpec, block: u32) -> Result<Sandbox, RuntimeError> {
        let directory = self.directory(&spec.id);
        let (image, placement) = self.prepare(spec, block).await?;
        // The caller has checked this, but the image may have changed since.
        self.refuse_unsupported(&spec.session, image.as_deref())?;
        let plan = self.plan(spec, image, block, &placement);
        let launched = launch::launch(&plan).await?;
        failpoint::at("local.create.launched").map_err(|e| failed("launching the sandbox", e))?;
        let process = ProcessRecord::of(launched.pid).map_err(|e| failed("reading the sandbox's start time", e))?;
        let record = SandboxRecord { block, process: Some(process) };
        let writing = self.disk.run_for(spec.id.as_str(), move || directory.write(&record));
        let (written, network) = tokio::join!(writing, self.open_network(&spec.id, spec.purpose, launched.process()));
        settled(written).map_err(|e| failed("recording the sandbox's process", e))?;
        failpoint::at("local.create.recorded").map_err(|e| failed("recording the sandbox's process", e))?;
        let (pid, pidfd) = launched.keep().await?;
        failpoint::at("local.create.kept").map_err(|e| failed("releasing the launcher", e))?;
        Ok(self.watch(&spec.id, pid, Arc::new(pidfd), network))
    }

    /// Opens the way out of a sandbox. Without one, programs inside reach nothing.
    pub(super) async fn open_network(
        &self,
        id: &SessionId,
        purpose: Purpose,
        process: io::Result<OwnedFd>,
    ) -> Option<SandboxSockets> {
        // Without this protection, a sandbox has the network of the host, which must stay as it is.
        if purpose != Purpose::Session || !self.protections.network {
            return None;
        }
        let opened = match process {
            Ok(process) if self.host.users == Users::Root => netns::open_by_thread(process).await,
            Ok(process) => netns::open_by_process(process).await,
            Err(error) => Err(error),
        };
        opened.inspect_err(|error| warn!(session_id = %id, %error, "the sandbox has no way to the network")).ok()
    }

    /// The root file system of a session's image, if this runtime can make that session.
    pub(super) async fn checked_image(&self, spec: &SessionSpec) -> Result<Option<PathBuf>, RuntimeError> {
        let (images, name) = (self.images.clone(), spec.image.clone());
        let look = move || {
            failpoint::at("local.image").map_err(|error| failed("looking for the image", error))?;
            images.resolve(&name)
        };
        let resolved = self.disk.run(look).await;
        let image = resolved.map_err(|e| failed("looking for the image", e.into()))??;
        self.refuse_unsupported(spec, image.as_deref())?;
        Ok(image)
    }

    /// Makes everything that exists on the host before a sandbox's first process: first its record, then its cgroup and the
    /// owner of its workspace. It also finds the image, in the same call to the disk threads.
    async fn prepare(
        &self,
        spec: &SandboxSpec,
        block: u32,
    ) -> Result<(Option<PathBuf>, cgroup::Placement), RuntimeError> {
        let (directory, cgroups, id) = (self.directory(&spec.id), self.cgroups.clone(), spec.id.to_string());
        let (images, session, purpose) = (self.images.clone(), spec.session.clone(), spec.purpose);
        // With an idmapped mount each sandbox sees its own user as the owner. Without one, all sandboxes share that user.
        let owner = if self.host.idmap { SANDBOX_USER } else { ids::SHARED_USER };
        let workspace = spec.workspace.clone().filter(|_| self.host.users == Users::Root);
        let work = move || {
            let image = match purpose {
                Purpose::Session => images.resolve(&session.image)?,
                Purpose::WorkspaceFiles => None,
            };
            directory.make(&SandboxRecord { block, process: None }).map_err(|e| failed(MAKING_DIRECTORY, e))?;
            failpoint::at("local.create.directory").map_err(|e| failed(MAKING_DIRECTORY, e))?;
            let placement = cgroups.create(&id, &session.resources).map_err(|e| failed("making the cgroup", e))?;
            failpoint::at("local.create.cgroup").map_err(|e| failed("making the cgroup", e))?;
            if let Some(workspace) = workspace {
                files::give(&workspace.path, owner).map_err(|e| failed(GIVING_WORKSPACE, e))?;
            }
            Ok((image, placement))
        };
        self.disk.run_for(spec.id.as_str(), work).await.map_err(|e| failed(MAKING_DIRECTORY, e.into()))?
    }
}

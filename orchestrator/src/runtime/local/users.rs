//! Who is who in one sandbox: the ids of the runner and of the commands, and whose the files of images and workspaces are. Pure.
//!
//! ```text
//!  user     commands are          the runner is      a file of root on disk is
//!  default  uid 1000, or the      uid 0              root's, or the user's in a writable root
//!           image's USER
//!  root     uid 0, in a user      uid 0 of the       root's
//!           namespace of theirs   namespace above
//! ```
//!
//! In a root session, the workspace's files belong to root, and to the user of commands in every other session with that workspace.

use shared_protocol::SANDBOX_USER;
use shared_protocol::api::SessionUser;

use super::host::{Host, Users};
use super::ids::{self, IdRange};
use super::layout::Owners;
use super::plan::{Owner, UserNamespace, UserPlan};
use crate::image_store::ImageUser;
use crate::runtime::WorkspaceMount;

pub struct SandboxUsers {
    pub plan: UserPlan,
    pub owners: Owners,
    /// The user and group of commands, as the runner knows them.
    pub commands: ImageUser,
    /// The mapping of an image that is shown read-only. `None` if the host has no idmapped mounts.
    pub image: Option<Vec<IdRange>>,
    /// The mapping of an image, or of directories of the host, under a layer that the sandbox can change.
    pub writable_root: Option<Vec<IdRange>>,
    /// The mapping of a workspace. A workspace on a disk always has one.
    pub workspace: Option<Vec<IdRange>>,
}

const ROOT: Owner = Owner { uid: 0, gid: 0 };

/// The user of commands where nobody names another one.
const ORDINARY: ImageUser = ImageUser { uid: SANDBOX_USER, gid: SANDBOX_USER };

impl SandboxUsers {
    /// Decides for a sandbox with this block of ids. Whether the host can make a root session was checked before.
    pub fn of(
        host: &Host,
        user: SessionUser,
        image: Option<ImageUser>,
        block: u32,
        workspace: Option<&WorkspaceMount>,
    ) -> Self {
        let is_on_disk = matches!(workspace, Some(WorkspaceMount::Subvolume { .. }));
        let shares_user = matches!(workspace, Some(WorkspaceMount::Directory(_)));
        let mapped = |map: Vec<IdRange>| host.idmap.then_some(map);
        let ordinary_user = user_of_image(host, user, image).unwrap_or(ORDINARY);
        let (plan, owners) = match user {
            SessionUser::Default => ordinary(host, ordinary_user, block, shares_user),
            SessionUser::Root => root(host, block),
        };
        let (writable_root, workspace) = match user {
            SessionUser::Default => (ids::swapped(block, 0, ordinary_user.uid), workspace_map(block, ordinary_user)),
            SessionUser::Root => (ids::same_inside(block), ids::root_is_user(block)),
        };
        let root = ImageUser { uid: ids::COMMANDS_ROOT, gid: ids::COMMANDS_ROOT };
        Self {
            commands: if plan.commands.is_some() { root } else { ordinary_user },
            plan,
            owners,
            image: mapped(ids::same_inside(block)),
            writable_root: mapped(writable_root),
            workspace: (host.idmap || is_on_disk).then_some(workspace),
        }
    }
}

/// The user that an image names, if commands run as that one: not in a session of root, and not where a sandbox has no ids to give.
pub fn user_of_image(host: &Host, user: SessionUser, image: Option<ImageUser>) -> Option<ImageUser> {
    image.filter(|_| user == SessionUser::Default && host.users == Users::Root && host.idmap)
}

/// The mapping of a workspace. On disk it belongs to the same user whatever image a session has.
pub fn workspace_map(block: u32, user: ImageUser) -> Vec<IdRange> {
    ids::swapped(block, SANDBOX_USER, user.uid)
}

/// Who has the files of root in a session whose root can be changed, if that is not root.
pub fn owner_of_root(host: &Host, user: SessionUser, image: Option<ImageUser>) -> Option<u32> {
    match user {
        SessionUser::Default => Some(user_of_image(host, user, image).unwrap_or(ORDINARY).uid),
        SessionUser::Root => None,
    }
}

fn ordinary(host: &Host, user: ImageUser, block: u32, has_workspace: bool) -> (UserPlan, Owners) {
    let plan = |how, uids, gids, runner| UserPlan { how, uids, gids, runner, commands: None };
    match &host.users {
        Users::Root if host.idmap || !has_workspace => {
            let (map, base) = (ids::block_map(block), ids::block_base(block));
            let user = Owner { uid: base + user.uid, gid: base + user.gid };
            (plan(UserNamespace::Last, map.clone(), map, ROOT), Owners::outside(base, user))
        }
        Users::Root => {
            let map = ids::block_map_with_shared_user(block);
            let user = Owner { uid: ids::SHARED_USER, gid: ids::SHARED_USER };
            let owners = Owners::outside(ids::block_base(block), user);
            (plan(UserNamespace::Last, map.clone(), map, ROOT), owners)
        }
        Users::Own { uid, gid } => {
            let user = Owner { uid: SANDBOX_USER, gid: SANDBOX_USER };
            let plan = plan(UserNamespace::FirstSelf, ids::self_map(*uid), ids::self_map(*gid), user);
            (plan, Owners::inside(SANDBOX_USER, false))
        }
        Users::Subordinate { uid, gid, uids, gids } => {
            let (uids, gids) = (ids::subordinate_map(*uid, uids.0, uids.1), ids::subordinate_map(*gid, gids.0, gids.1));
            (plan(UserNamespace::FirstSubordinate, uids, gids, ROOT), Owners::inside(SANDBOX_USER, true))
        }
    }
}

fn root(host: &Host, block: u32) -> (UserPlan, Owners) {
    let plan = |how, uids: Vec<IdRange>, gids| {
        let commands = Some(ids::commands_map(&uids));
        UserPlan { how, uids, gids, runner: ROOT, commands }
    };
    match &host.users {
        Users::Root => {
            let (map, base) = (ids::block_map_of_root(block), ids::block_base(block));
            (plan(UserNamespace::Last, map.clone(), map), Owners::of_root(base, base + ids::RUNNER_BESIDE_ROOT))
        }
        Users::Subordinate { uid, gid, uids, gids } => {
            // One map is written for users and groups of the commands, so both have as many.
            let count = uids.1.min(gids.1);
            let of = |own, first| ids::subordinate_map_of_root(own, first, count);
            let plan = plan(UserNamespace::FirstSubordinate, of(*uid, uids.0), of(*gid, gids.0));
            (plan, Owners::of_root(ids::COMMANDS_ROOT, 0))
        }
        // There is one user inside. The check refuses a root session.
        Users::Own { .. } => ordinary(host, ORDINARY, block, false),
    }
}

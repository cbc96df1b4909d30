use shared_protocol::WorkspaceId;

use super::*;
use std::time::Duration;

fn dirs() -> (tempfile::TempDir, WorkspaceDirs) {
    let folder = tempfile::tempdir().unwrap();
    let dirs = WorkspaceDirs::open(folder.path().join("workspaces")).unwrap();
    (folder, dirs)
}

fn name(id: &str) -> WorkspaceName {
    of(KeyName::first(), id)
}

fn of(owner: KeyName, id: &str) -> WorkspaceName {
    WorkspaceName { owner, id: WorkspaceId::new(id).unwrap() }
}

fn user(id: &str) -> User {
    User::Session(SessionId::new(id).unwrap())
}

#[tokio::test]
async fn a_workspace_in_use_is_not_deleted_and_one_being_deleted_is_not_held() {
    let (_folder, dirs) = dirs();
    let id = name("w");
    let first = dirs.hold(&id, user("a")).unwrap();
    let second = dirs.hold(&id, user("b")).unwrap();
    first.prepare(Reach::Paths).await.unwrap();
    assert_eq!(dirs.begin_delete(&id).unwrap_err(), [user("a"), user("b")]);
    drop(first);
    assert_eq!(dirs.begin_delete(&id).unwrap_err(), [user("b")]);
    drop(second);
    let deletion = dirs.begin_delete(&id).unwrap();
    assert!(dirs.begin_delete(&id).is_err(), "two delete at once");
    assert_eq!(dirs.hold(&id, user("c")).unwrap_err(), WorkspaceError::BeingDeleted(id.id.clone()));
    dirs.discard(deletion).await.unwrap();
    assert!(!dirs.exists(&id).await.unwrap());
    dirs.hold(&id, user("c")).unwrap().prepare(Reach::Paths).await.unwrap();
    assert!(dirs.exists(&id).await.unwrap());
}

#[tokio::test]
async fn a_sandbox_of_the_daemons_own_makes_no_workspace() {
    let (_folder, dirs) = dirs();
    let id = name("w");
    let own = User::WorkspaceSandbox(SessionId::new("a").unwrap());
    let prepared = dirs.hold(&id, own).unwrap().prepare(Reach::Paths).await;
    assert_eq!(prepared, Err(WorkspaceError::NotFound(id.id.clone())));
    assert!(!dirs.exists(&id).await.unwrap());
}

#[tokio::test]
async fn many_who_make_one_workspace_at_once_all_find_it_made() {
    let (_folder, dirs) = dirs();
    let id = name("w");
    let makes = (0..50).map(|n| {
        let hold = dirs.hold(&id, user(&format!("s{n}"))).unwrap();
        async move { hold.prepare(Reach::Paths).await }
    });
    assert!(futures_util::future::join_all(makes).await.into_iter().all(|made| made.is_ok()));
    assert!(dirs.begin_delete(&id).is_ok(), "nobody holds it any more");
}

#[tokio::test]
async fn a_workspace_is_not_deleted_under_work_that_nobody_waits_for_any_more() {
    let (_folder, dirs) = dirs();
    let id = name("w");
    let (release, stuck) = std::sync::mpsc::channel::<()>();
    let hold = dirs.hold(&id, user("a")).unwrap();
    let mut work = Box::pin(hold.work(move |_| {
        let _ = stuck.recv();
        Ok(())
    }));
    assert!(futures_util::poll!(work.as_mut()).is_pending());
    drop(work);
    drop(hold);
    assert_eq!(dirs.begin_delete(&id).unwrap_err(), [user("a")]);
    release.send(()).unwrap();
    // The work whose caller stopped waiting ends, and its hold with it.
    let freed = async {
        while dirs.begin_delete(&id).is_err() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), freed).await.expect("the workspace can be deleted");
}

#[tokio::test]
async fn only_we_can_enter_and_the_trash_is_no_workspace() {
    let (_folder, dirs) = dirs();
    let mode = std::fs::metadata(&dirs.0.root).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    dirs.hold(&name("w"), user("a")).unwrap().prepare(Reach::Paths).await.unwrap();
    std::fs::write(dirs.0.root.join("file"), "").unwrap();
    std::os::unix::fs::symlink("/", dirs.0.root.join("link")).unwrap();
    let names: Vec<String> =
        dirs.list(None).await.unwrap().into_iter().map(|found| found.name.id.to_string()).collect();
    assert_eq!(names, ["w"]);
}

#[tokio::test]
async fn owners_have_names_of_their_own_and_the_first_one_has_what_was_there_before() {
    let (folder, dirs) = dirs();
    // This is how a daemon without owners left it.
    std::fs::create_dir(folder.path().join("workspaces/old")).unwrap();
    let alice = || KeyName::new("alice").unwrap();
    assert!(dirs.exists(&name("old")).await.unwrap() && !dirs.exists(&of(alice(), "old")).await.unwrap());
    for name in [name("w"), of(alice(), "w"), of(alice(), "old")] {
        dirs.hold(&name, user("a")).unwrap().prepare(Reach::Paths).await.unwrap();
    }
    let listed = async |owner: Option<KeyName>| {
        let found = dirs.list(owner.as_ref()).await.unwrap().into_iter();
        found.map(|found| format!("{}:{}", found.name.owner, found.name.id)).collect::<Vec<_>>()
    };
    assert_eq!(listed(Some(alice())).await, ["alice:old", "alice:w"]);
    assert_eq!(listed(Some(KeyName::first())).await, ["default:old", "default:w"]);
    assert_eq!(listed(None).await, ["alice:old", "alice:w", "default:old", "default:w"]);
    assert_eq!(listed(Some(KeyName::new("bob").unwrap())).await, [""; 0]);
    let held = dirs.hold(&of(alice(), "w"), user("b")).unwrap();
    dirs.discard(dirs.begin_delete(&name("w")).expect("only alice's is held")).await.unwrap();
    drop(held);
    assert!(dirs.exists(&of(alice(), "w")).await.unwrap() && !dirs.exists(&name("w")).await.unwrap());
}

#[test]
fn a_new_workspace_is_where_it_can_be_limited_and_a_directory_if_that_is_one_such_place() {
    use WorkspaceKind::{Directory, Disk};
    let config = WorkspacesConfig::default();
    let auto = |has_quotas, has_disks| kind_of_new(&config, has_quotas, has_disks);
    assert_eq!([auto(true, true), auto(false, true), auto(false, false)], [Directory, Disk, Directory]);
    let unlimited = WorkspacesConfig { max_mb: 0, ..config };
    assert_eq!(kind_of_new(&unlimited, false, true), Directory);
    for (storage, kind) in [(WorkspaceStorage::Directory, Directory), (WorkspaceStorage::Disk, Disk)] {
        assert_eq!(kind_of_new(&WorkspacesConfig { storage, ..config }, true, true), kind);
    }
}

#[tokio::test]
async fn a_workspace_on_disks_that_this_daemon_lacks_is_known_and_never_replaced() {
    let (folder, dirs) = dirs();
    let records = folder.path().join("workspaces/.disks/default");
    std::fs::create_dir_all(&records).unwrap();
    std::fs::write(records.join("w"), "made\n").unwrap();
    let dirs = dirs.with_config(&WorkspacesConfig::default(), None).unwrap();
    let id = name("w");
    assert!(dirs.exists(&id).await.unwrap());
    let refused = dirs.hold(&id, user("a")).unwrap().prepare(Reach::Paths).await.unwrap_err();
    assert!(matches!(refused, WorkspaceError::Unreachable(_)), "{refused}");
    assert!(!folder.path().join("workspaces/w").exists());
    let listed = dirs.list(None).await.unwrap();
    assert_eq!((listed.len(), listed[0].kind, listed[0].size_bytes), (1, WorkspaceKind::Disk, None));
    let kept = dirs.discard(dirs.begin_delete(&id).unwrap()).await.unwrap_err();
    assert!(matches!(kept, WorkspaceError::Unreachable(_)), "{kept}");
    let disk = WorkspacesConfig { storage: WorkspaceStorage::Disk, ..WorkspacesConfig::default() };
    assert!(dirs.with_config(&disk, None).unwrap_err().to_string().contains("local.disk"));
}

#[tokio::test]
async fn an_owner_has_at_most_as_many_workspaces_as_it_may() {
    let (_folder, dirs) = dirs();
    let config = WorkspacesConfig { max_per_owner: 1, ..WorkspacesConfig::default() };
    let dirs = dirs.with_config(&config, None).unwrap();
    for _ in 0..2 {
        dirs.hold(&name("w"), user("a")).unwrap().prepare(Reach::Paths).await.unwrap();
    }
    let refused = dirs.hold(&name("other"), user("a")).unwrap().prepare(Reach::Paths).await.unwrap_err();
    assert!(matches!(refused, WorkspaceError::Full(_)), "{refused}");
    let alice = of(KeyName::new("alice").unwrap(), "w");
    dirs.hold(&alice, user("a")).unwrap().prepare(Reach::Paths).await.unwrap();
}

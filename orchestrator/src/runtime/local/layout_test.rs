use super::super::ids;
use super::super::shown::OverlaySupport;
use super::*;

fn layout(workspace: Option<WorkspaceSource>) -> Vec<Step> {
    layout_with(workspace, None)
}

fn layout_with(workspace: Option<WorkspaceSource>, writable_root: Option<WritableRoot>) -> Vec<Step> {
    let cgroups = [(PathBuf::from("/sys/fs/cgroup/cove/x"), String::new())];
    let layout = Layout {
        owners: Owners::outside(0x7000_0000, Owner { uid: 0x7000_03e8, gid: 0x7000_03e8 }),
        hostname: "x",
        device_nodes: DeviceNodes::Own,
        workspace,
        cgroups: &cgroups,
        authority: None,
        covers_stores: true,
        scratch_bytes: 1 << 20,
        state_bytes: 1 << 20,
        own_limits: Vec::new(),
        writable_root,
        root: None,
    };
    let directory = |path: &str| ShownDirectory { path: path.into(), overlay: OverlaySupport::Possible };
    let shown = ShownFiles {
        links: vec![("bin".into(), "usr/bin".into())],
        directories: vec![directory("/usr"), directory("/nix/store")],
        submounts: vec![directory("/usr/local"), directory("/etc/ssl/certs"), directory("/etc/secret")],
        mounted_files: vec!["/etc/resolv.conf".into(), "/usr/lib/libcuda.so".into()],
        etc: OverlaySupport::Possible,
        images: OverlaySupport::Possible,
    };
    layout.host(&shown, &etc::names(&[]))
}

#[test]
fn of_the_host_only_a_workspace_can_be_written_to() {
    let workspace = WorkspaceSource::Directory { path: "/data/workspaces/w".into(), idmap: None };
    for step in layout(Some(workspace)) {
        if let Step::Bind { source, writable: true, .. } = step {
            assert_eq!(source, Path::new("/data/workspaces/w"));
        }
    }
}

#[test]
fn files_can_be_changed_where_something_of_the_sandboxs_own_is_mounted() {
    let workspace = WorkspaceSource::Directory { path: "/data/workspaces/w".into(), idmap: None };
    let mut places = writable_places(&layout(Some(workspace)));
    places.sort();
    let own = [
        "/dev",
        "/dev/shm",
        "/home/sandbox",
        "/proc",
        "/run",
        "/run/cove",
        "/run/cove/state",
        "/tmp",
        "/var/tmp",
        "/workspace",
    ];
    assert_eq!(places, own);
}

#[test]
fn a_root_that_may_be_changed_shows_directories_through_layers_and_shares_nothing_else_with_the_host() {
    let owner = Owner { uid: 7, gid: 7 };
    let writable = WritableRoot { owner, idmap: Some(ids::root_is_user(3)) };
    let steps = layout_with(None, Some(writable));
    assert!(!steps.iter().any(|step| matches!(step, Step::Show { .. } | Step::ShowNames { .. })), "{steps:?}");
    let is_layer = |wanted: &str| {
        steps.iter().any(|step| matches!(step, Step::Overlay { path, idmap: Some(_), .. } if path == wanted))
    };
    assert!(is_layer("/usr") && is_layer("/usr/local") && is_layer("/nix/store"));
    let names: Vec<_> = steps
        .iter()
        .filter_map(|step| match step {
            Step::Overlay { name, .. } => Some(name),
            _ => None,
        })
        .collect();
    let mut different = names.clone();
    different.sort();
    different.dedup();
    assert_eq!(different.len(), names.len(), "each layer has a place of its own");
    assert!(
        steps.iter().any(|step| matches!(step, Step::CopyNames { path, owner: of, .. } if path == ETC && *of == owner))
    );
}

#[test]
fn nothing_private_of_the_host_is_a_source() {
    let writable = WritableRoot { owner: Owner { uid: 7, gid: 7 }, idmap: None };
    let sources: Vec<PathBuf> = layout(None)
        .into_iter()
        .chain(layout_with(None, Some(writable)))
        .filter_map(|step| match step {
            Step::Bind { source, .. }
            | Step::Show { source, .. }
            | Step::ShowNames { source, .. }
            | Step::Overlay { source, .. }
            | Step::CopyNames { source, .. } => Some(source),
            _ => None,
        })
        .collect();
    for private in ["/root", "/home", "/run", "/var/run", "/tmp", "/srv", "/proc", "/sys/kernel"] {
        assert!(sources.iter().all(|source| !source.starts_with(private)), "{private} is shown");
    }
    assert!(!sources.contains(&PathBuf::from("/")));
}

#[test]
fn a_sandbox_for_the_files_of_a_workspace_has_the_workspace_and_nothing_of_the_host() {
    let workspace = WorkspaceSource::Directory { path: "/data/workspaces/w".into(), idmap: None };
    let owners = Owners::outside(0x7000_0000, Owner { uid: 0x7000_03e8, gid: 0x7000_03e8 });
    let cgroups = [(PathBuf::from("/sys/fs/cgroup/cove/x"), String::new())];
    let layout = Layout {
        owners,
        hostname: "box",
        device_nodes: DeviceNodes::Own,
        workspace: Some(workspace),
        cgroups: &cgroups,
        authority: None,
        covers_stores: true,
        scratch_bytes: 1 << 20,
        state_bytes: 1 << 20,
        own_limits: Vec::new(),
        writable_root: None,
        root: None,
    };
    let binds: Vec<(PathBuf, String)> = layout
        .workspace_files()
        .into_iter()
        .filter_map(|step| match step {
            Step::Bind { source, path, .. } => Some((source, path)),
            _ => None,
        })
        .collect();
    assert_eq!(binds, [(PathBuf::from("/data/workspaces/w"), FILES_WORKSPACE.to_owned())]);
}

#[test]
fn what_the_host_has_mounted_in_etc_is_shown_only_below_a_name_that_is_shown() {
    let steps = layout(None);
    let is_shown = |wanted: &str| {
        steps.iter().any(|step| matches!(step, Step::Show { path, .. } | Step::Bind { path, .. } if path == wanted))
    };
    assert!(is_shown("/usr/local") && is_shown("/etc/ssl/certs") && is_shown("/usr/lib/libcuda.so"));
    assert!(!is_shown("/etc/secret") && !is_shown("/etc/resolv.conf"));
}

#[test]
fn masks_come_after_proc_is_mounted() {
    let steps = layout(None);
    let proc = steps.iter().position(|step| matches!(step, Step::Proc { .. })).unwrap();
    let first_mask =
        steps.iter().position(|step| matches!(step, Step::Mask { path } if path.starts_with("/proc"))).unwrap();
    assert!(proc < first_mask);
}

#[test]
fn root_gets_accounts_a_home_and_where_packages_come_from_and_only_in_a_root_that_it_can_change() {
    let accounts = Accounts::of_root("_apt:x:42:65534::/nonexistent:/usr/sbin/nologin\n", "");
    let owner = Owner { uid: 0x7000_0000, gid: 0x7000_0000 };
    let steps = |writable_root: Option<WritableRoot>| {
        let layout = Layout {
            owners: Owners::of_root(0x7000_0000, 0x7000_ffff),
            hostname: "x",
            device_nodes: DeviceNodes::Own,
            workspace: None,
            cgroups: &[],
            authority: None,
            covers_stores: true,
            scratch_bytes: 1 << 20,
            state_bytes: 1 << 20,
            own_limits: Vec::new(),
            writable_root,
            root: Some(&accounts),
        };
        let dpkg = ShownDirectory { path: DPKG.into(), overlay: OverlaySupport::Possible };
        layout.host(&ShownFiles { directories: vec![dpkg], ..ShownFiles::default() }, &etc::names(&[]))
    };
    let writable = steps(Some(WritableRoot { owner, idmap: None }));
    let read_only = steps(None);
    for steps in [&writable, &read_only] {
        let is_passwd = |step: &Step| matches!(step, Step::File { path, content, .. } if path == "/etc/passwd" && content.contains("_apt"));
        assert!(steps.iter().any(is_passwd));
        let runners = |step: &Step| matches!(step, Step::Tmpfs { owner, .. } if owner.uid == 0x7000_ffff);
        assert_eq!(steps.iter().filter(|step| runners(step)).count(), 2, "the runner keeps its two directories");
    }
    let has_home =
        |steps: &[Step]| steps.iter().any(|step| matches!(step, Step::Disk { path, .. } if path == ROOT_HOME));
    assert!(has_home(&read_only) && !has_home(&writable));
    let sources = |steps: &[Step]| {
        let is_copy = |step: &Step| matches!(step, Step::CopyNames { names, .. } if names.iter().any(|name| name == "apt/sources.list"));
        steps.iter().any(is_copy)
    };
    assert!(sources(&writable) && !sources(&read_only));
    let lists = |step: &Step| matches!(step, Step::Directory { path, owner: of, .. } if path == "/var/lib/apt/lists/partial" && *of == owner);
    assert!(writable.iter().any(lists));
}

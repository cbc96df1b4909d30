//! A property test with a hundred thousand specs: none of them gets a container that breaks an invariant.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use shared_protocol::api::{NetworkSpec, Profile, ResourcesView};
use shared_protocol::{RuntimeName, SessionId};

use super::super::dialect::{Podman, filter_file};
use super::*;
use crate::config::Pull;
use crate::runtime::local::TotalLimits;
use crate::runtime::policy::TRUST_STORES;
use crate::runtime::{Origin, Purpose, WorkspaceMount};
use crate::spec::{SessionSpec, Variables};

const CASES: u32 = 100_000;
const LIFETIME: Duration = Duration::from_secs(60);
const TOTAL: TotalLimits = TotalLimits { memory_bytes: 1 << 30, pids: 1000, cpu_weight_percent: 25 };
/// The least memory of a session.
const MIN_MEMORY_MB: u64 = 32;

#[derive(Debug, Clone)]
struct Asked {
    spec: SandboxSpec,
    config: DockerConfig,
    image: ImageFacts,
    host: HostSide,
}

fn podman() -> Dialect {
    Dialect::Podman(Podman {
        filters: "/data".into(),
        hosts: "/data/etc/hosts".into(),
        user_processes: 4096,
        has_cgroup_namespaces: true,
    })
}

fn words() -> impl Strategy<Value = String> {
    prop::sample::select(vec![
        "base",
        "host",
        "container:x",
        "privileged",
        "/var/run/docker.sock",
        "--privileged",
        "ALL",
        "SYS_ADMIN",
        "a:b,c=d",
        "",
        "unconfined",
        "seccomp=unconfined",
        "/",
        "/run",
        "/run/cove/private",
        "/data",
        "../..",
        "x\ny",
    ])
    .prop_map(str::to_owned)
}

/// Mostly directories of the daemon, so that most specs are accepted.
fn sources() -> impl Strategy<Value = PathBuf> {
    let bad = ["/", "/var", "/var/run", "/var/run/docker.sock", "/data/../var", "relative", "/data/./w/"];
    prop_oneof![9 => Just("/data/w"), 1 => prop::sample::select(bad.to_vec())].prop_map(PathBuf::from)
}

fn spec() -> impl Strategy<Value = SandboxSpec> {
    let resources = (0.01f64..1e6, 0u64..=1 << 31, 0u64..=1 << 23, 0u64..=1 << 31)
        .prop_map(|(cpus, memory_mb, pids, disk_mb)| ResourcesView { cpus, memory_mb, pids, disk_mb });
    let env = prop::collection::btree_map("[A-Z_]{1,8}", words(), 0..3);
    let purpose = prop::sample::select(vec![Purpose::Session, Purpose::WorkspaceFiles]);
    let profiles = prop::collection::vec(prop::sample::select(vec![Profile::Ptrace, Profile::Debug]), 0..3);
    (words(), resources, any::<bool>(), any::<bool>(), prop::option::of(sources()), env, purpose, profiles).prop_map(
        |(image, resources, is_full, writable_root, workspace, env, purpose, profiles)| SandboxSpec {
            id: SessionId::new("7183cb80-d6c").unwrap(),
            authority: None,
            origin: Origin::Empty,
            session: Arc::new(SessionSpec {
                network: NetworkSpec::preset(if is_full { NetworkSpec::FULL } else { NetworkSpec::NONE }),
                writable_root,
                profiles,
                ..SessionSpec::plain(image, RuntimeName::docker(), resources, LIFETIME)
            }),
            workspace: workspace.map(WorkspaceMount::Directory),
            awaits_workspace: false,
            env: Variables(env),
            purpose,
        },
    )
}

fn asked() -> impl Strategy<Value = Asked> {
    let config = (any::<bool>(), prop::option::of(prop::sample::select(vec!["runc", "runsc"]))).prop_map(
        |(root_quota, oci_runtime)| DockerConfig {
            data_dir: "/data".into(),
            socket: "/var/run/docker.sock".into(),
            oci_runtime: oci_runtime.map(str::to_owned),
            images: BTreeMap::new(),
            default_image: "base".into(),
            network: Some("bridge".into()),
            pull: Pull::default(),
            root_quota,
            reserve_mb: None,
            total: TOTAL,
        },
    );
    let image =
        (any::<bool>(), prop::collection::btree_set(words(), 0..3)).prop_map(|(has_runner, volumes)| ImageFacts {
            id: "sha256:0".into(),
            has_runner,
            volumes: volumes.into_iter().filter(|path| path.starts_with('/')).collect(),
        });
    let kernel = prop::sample::select(vec![Kernel::Host, Kernel::Gvisor]);
    let covered = prop::collection::btree_set(prop::sample::select(TRUST_STORES.map(str::to_owned).to_vec()), 0..3);
    let trust = prop::option::of((sources(), covered)).prop_map(|trust| {
        trust.map(|(directory, covered)| Trust { directory, covered: covered.into_iter().collect() })
    });
    (spec(), config, image, sources(), kernel, trust).prop_map(|(spec, config, image, run_dir, kernel, trust)| Asked {
        spec,
        config,
        image,
        host: HostSide {
            instance: "cove-0".into(),
            run_dir,
            runner: "/data/runner-0/runner".into(),
            socket_owner: None,
            kernel,
            dialect: Dialect::Docker,
            cgroup_parent: "/cove-0-containers".into(),
            proxy_port: None,
            trust,
            kept_variables: None,
        },
    })
}

/// The size in the options of a tmpfs.
fn size_of(options: &str) -> Option<u64> {
    options.split(',').find_map(|option| option.strip_prefix("size=")?.parse().ok())
}

/// The names of the invariants that a body breaks.
fn broken(asked: &Asked, body: &ContainerCreateBody) -> Vec<String> {
    invariants(asked, body).into_iter().filter(|(_, holds)| !holds).map(|(name, _)| name).collect()
}

/// Every invariant by name, and whether it holds.
fn invariants(asked: &Asked, body: &ContainerCreateBody) -> Vec<(String, bool)> {
    let mut all = Vec::new();
    let mut check = |name: &str, holds: bool| all.push((name.to_owned(), holds));
    let host = body.host_config.clone().unwrap();
    let is_docker = asked.host.dialect == Dialect::Docker;
    let is_some_above_zero = |value: Option<i64>| value.is_some_and(|value| value > 0);
    check("not privileged", host.privileged == Some(false));
    for (name, mode) in [("pid", &host.pid_mode), ("uts", &host.uts_mode), ("user", &host.userns_mode)] {
        check(&format!("own {name} namespace"), mode.as_deref() == Some(""));
    }
    check("own ipc namespace", host.ipc_mode.as_deref() == Some("private"));
    check("own cgroup namespace", host.cgroupns_mode == Some(HostConfigCgroupnsModeEnum::PRIVATE));
    let network = if !asked.spec.session.network.is_full() { "none" } else { "bridge" };
    check("own network", host.network_mode.as_deref() == Some(network));
    check("no published port", host.publish_all_ports == Some(false) && host.port_bindings.is_none());
    check("all capabilities dropped", host.cap_drop == Some(vec!["ALL".into()]));
    let needed: BTreeSet<&str> = RUNNER_CAPABILITIES.iter().map(|(name, _)| *name).collect();
    let given = host.cap_add.clone().unwrap();
    check("no other capability", given.iter().all(|name| needed.contains(name.as_str())));
    let options = host.security_opt.clone().unwrap();
    check("no new privileges", options.iter().any(|option| option == "no-new-privileges:true"));
    let debugging = Debugging::of(&asked.spec.session.profiles);
    let (filter, options_count) = match &asked.host.dialect {
        Dialect::Docker => (format!("seccomp={}", seccomp_profile(asked.host.kernel, debugging)), 2),
        Dialect::Podman(_) => (format!("seccomp=/data/{}", filter_file(debugging)), 3),
    };
    check("our own filter", options.contains(&filter) && options.len() == options_count);
    check("read-only root unless asked", host.readonly_rootfs == Some(true) || asked.spec.session.writable_root);
    let is_sized = host.storage_opt.as_ref().is_some_and(|options| options.contains_key("size"));
    check("a limited root", host.readonly_rootfs == Some(true) || is_sized || !asked.config.root_quota);
    check("limited memory", is_some_above_zero(host.memory) && host.memory == host.memory_swap);
    check("limited cpu", is_some_above_zero(host.nano_cpus));
    check("limited processes", is_some_above_zero(host.pids_limit));
    check("limited shared memory", is_some_above_zero(host.shm_size));
    // Podman cannot limit the number of files.
    let sizes: &[&str] = if is_docker { &["size=", "nr_inodes="] } else { &["size="] };
    let has_sizes =
        |options: &String| sizes.iter().all(|word| options.contains(word) && !options.contains(&format!("{word}0")));
    check("limited tmpfs", host.tmpfs.as_ref().unwrap().values().all(has_sizes));
    let content: u64 = host.tmpfs.as_ref().unwrap().values().filter_map(|options| size_of(options)).sum();
    let memory_mb = asked.spec.session.resources.memory_mb;
    // Twelve MiB are less than the memory that is kept for programs, which the small directories of the root are taken from.
    check("disks that leave memory", memory_mb < MIN_MEMORY_MB || content + (12 << 20) <= memory_mb << 20);
    check("one parent for all", host.cgroup_parent.as_deref() == Some("/cove-0-containers"));
    if !is_docker {
        // Otherwise the image's content of that path would fill the disk of the commands.
        check("empty tmpfs", host.tmpfs.as_ref().unwrap().values().all(|options| options.contains("notmpcopyup")));
        // Podman's own default may be more than it is allowed to set.
        let nproc = host.ulimits.iter().flatten().find(|limit| limit.name.as_deref() == Some("nproc"));
        check("a limit in the place of Podman's own", nproc.is_some_and(|limit| is_some_above_zero(limit.hard)));
    }
    let arguments = body.cmd.clone().unwrap();
    let given: Vec<&str> = arguments
        .iter()
        .skip_while(|word| *word != "--own")
        .nth(1)
        .map_or_else(Vec::new, |list| list.split(':').collect());
    let is_his = |path: &str, options: &str| given.contains(&path) || options.contains("uid=1000,gid=1000");
    check(
        "a home of his own",
        USERS_OWN
            .iter()
            .all(|path| host.tmpfs.as_ref().unwrap().get(*path).is_none_or(|options| is_his(path, options))),
    );
    // The runner must not change the owner of a mounted workspace.
    check(
        "nothing else of his own",
        given.iter().all(|path| host.tmpfs.as_ref().unwrap().contains_key(*path) && USERS_OWN.contains(path)),
    );
    check(
        "no setuid on tmpfs",
        host.tmpfs.as_ref().unwrap().values().all(|o| o.contains("nosuid") && o.contains("nodev")),
    );
    check(
        "volumes are covered",
        asked.image.volumes.iter().all(|path| {
            host.tmpfs.as_ref().unwrap().contains_key(path) || (path == WORKSPACE && asked.spec.workspace.is_some())
        }),
    );
    let log = host.log_config.clone().unwrap().config.unwrap();
    check("limited log", log.contains_key("max-size") && log["max-file"] == "1");
    let limits = host.ulimits.clone().unwrap();
    check(
        "limited files",
        limits.iter().any(|limit| limit.name.as_deref() == Some("nofile") && is_some_above_zero(limit.hard)),
    );
    let masked: Vec<&str> = if is_docker {
        host.masked_paths.iter().flatten().map(String::as_str).collect()
    } else {
        options.iter().filter_map(|option| option.strip_prefix("mask=")).flat_map(|list| list.split(':')).collect()
    };
    check("masked paths", MASKED.iter().chain(&MASKED_SYS).all(|path| masked.contains(path)));
    // The container that the engine made is compared with this list.
    check(
        "masked paths to compare",
        host.masked_paths.as_ref().is_some_and(|paths| paths.len() == MASKED.len() + MASKED_SYS.len()),
    );
    check("read-only paths", host.readonly_paths.as_ref().is_some_and(|paths| paths.len() == READ_ONLY.len()));
    check("no device", host.devices == Some(Vec::new()) && host.device_requests == Some(Vec::new()));
    check("no binds beside mounts", host.binds.is_none() && host.volumes_from.is_none() && body.volumes.is_none());
    if !is_docker {
        // Podman's own file would contain the host's entries.
        let is_ours = |mount: &Mount| mount.target.as_deref() == Some("/etc/hosts") && mount.read_only == Some(true);
        check("names of its own", host.mounts.iter().flatten().any(is_ours));
    }
    let workspace = match asked.spec.purpose {
        Purpose::Session => WORKSPACE,
        Purpose::WorkspaceFiles => FILES_WORKSPACE,
    };
    for mount in host.mounts.unwrap() {
        let (source, target) = (PathBuf::from(mount.source.unwrap()), mount.target.unwrap());
        check("no way to the engine", !asked.config.socket.starts_with(&source) && source.is_absolute());
        let is_file = !is_docker && target == "/etc/hosts" && source == Path::new("/data/etc/hosts");
        let is_trust = target == TRUST || TRUST_STORES.contains(&target.as_str());
        check("only our places", target.starts_with(PRIVATE) || target == workspace || is_file || is_trust);
        check("authorities that stay", !is_trust || mount.read_only == Some(true));
        check("only a bind", mount.typ == Some(MountType::BIND));
        check("a runner that stays", target != RUNNER || mount.read_only == Some(true));
    }
    check("no restart", host.restart_policy.is_some_and(|policy| policy.name == Some(RestartPolicyNameEnum::NO)));
    check("no other init", host.init == Some(false));
    let labels = body.labels.clone().unwrap();
    check("labelled as ours", labels[DATA_DIR_LABEL] == "cove-0" && labels[SESSION_LABEL] == "7183cb80-d6c");
    check(
        "the runner is first",
        matches!(body.entrypoint.as_deref(), Some([one]) if one == OWN_RUNNER || one == RUNNER),
    );
    all
}

#[test]
fn no_spec_yields_a_container_that_breaks_an_invariant() {
    let mut runner = TestRunner::new(ProptestConfig { cases: CASES, ..ProptestConfig::default() });
    // The numbers of accepted bodies, for Docker and for Podman.
    let bodies = [std::cell::Cell::new(0), std::cell::Cell::new(0)];
    let outcome = runner.run(&asked(), |mut asked| {
        for (dialect, count) in [Dialect::Docker, podman()].into_iter().zip(&bodies) {
            asked.host.dialect = dialect;
            if let Ok(body) = container(&asked.spec, &asked.config, &asked.image, &asked.host) {
                count.set(count.get() + 1);
                let broken = broken(&asked, &body);
                prop_assert!(broken.is_empty(), "{broken:?}");
            }
        }
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
    // Without this check, a function that refuses everything would pass too.
    for count in bodies {
        assert!(count.get() > CASES / 2, "only {} of {CASES} came to a body", count.get());
    }
}

fn plain(dialect: Dialect) -> Asked {
    Asked {
        spec: SandboxSpec {
            id: SessionId::new("7183cb80-d6c").unwrap(),
            authority: None,
            origin: Origin::Empty,
            session: Arc::new(SessionSpec::plain(
                "base",
                RuntimeName::docker(),
                ResourcesView { cpus: 0.5, memory_mb: 200, pids: 50, disk_mb: 30 },
                LIFETIME,
            )),
            workspace: None,
            awaits_workspace: false,
            env: Variables::default(),
            purpose: Purpose::Session,
        },
        config: DockerConfig {
            data_dir: "/data".into(),
            socket: "/var/run/docker.sock".into(),
            oci_runtime: None,
            images: BTreeMap::new(),
            default_image: "base".into(),
            network: Some("bridge".into()),
            pull: Pull::default(),
            root_quota: true,
            reserve_mb: None,
            total: TOTAL,
        },
        image: ImageFacts { id: "sha256:0".into(), has_runner: false, volumes: BTreeSet::new() },
        host: HostSide {
            instance: "cove-0".into(),
            run_dir: "/data/run".into(),
            runner: "/data/r/runner".into(),
            socket_owner: Some(1000),
            kernel: Kernel::Host,
            dialect,
            cgroup_parent: "/cove-0-containers".into(),
            proxy_port: None,
            trust: None,
            kept_variables: None,
        },
    }
}

/// Each invariant can fail: for each there is a body without that protection.
#[test]
fn a_body_without_a_protection_is_noticed() {
    every_spoil_is_noticed(Dialect::Docker, &docker_spoils());
    every_spoil_is_noticed(podman(), &podman_spoils());
}

type Spoil = fn(&mut HostConfig);

fn docker_spoils() -> Vec<Spoil> {
    vec![
        |host| host.masked_paths = Some(Vec::new()),
        |host| host.security_opt = Some(vec![format!("seccomp={}", SECCOMP[0])]),
        |host| drop(host.tmpfs.as_mut().unwrap().insert("/x".into(), "rw,nosuid,nodev,size=1".into())),
        |host| {
            drop(host.tmpfs.as_mut().unwrap().insert(WORKSPACE.into(), "rw,nosuid,nodev,size=1,nr_inodes=1".into()));
        },
    ]
}

fn podman_spoils() -> Vec<Spoil> {
    vec![
        |host| host.security_opt.as_mut().unwrap().retain(|option| !option.starts_with("mask=")),
        |host| host.security_opt.as_mut().unwrap()[2] = "mask=/proc/kcore".into(),
        |host| host.security_opt.as_mut().unwrap()[2] = "unmask=ALL".into(),
        |host| host.security_opt.as_mut().unwrap()[1] = "seccomp=/data/another.json".into(),
        |host| drop(host.security_opt.as_mut().unwrap().remove(0)),
        |host| drop(host.tmpfs.as_mut().unwrap().insert("/x".into(), "rw,nosuid,nodev,size=1".into())),
        |host| drop(host.ulimits.as_mut().unwrap().pop()),
        |host| drop(host.mounts.as_mut().unwrap().pop()),
        |host| host.mounts.as_mut().unwrap().last_mut().unwrap().read_only = Some(false),
        |host| host.mounts.as_mut().unwrap().last_mut().unwrap().source = Some("/etc/hosts".into()),
        |host| drop(host.tmpfs.as_mut().unwrap().remove(WORKSPACE)),
    ]
}

fn every_spoil_is_noticed(dialect: Dialect, own: &[Spoil]) {
    let mut asked = plain(dialect);
    asked.image.volumes.insert("/volume".into());
    asked.host.trust = Some(Trust { directory: "/data/trust".into(), covered: vec![TRUST_STORES[0].into()] });
    let good = container(&asked.spec, &asked.config, &asked.image, &asked.host).unwrap();
    assert_eq!(broken(&asked, &good), Vec::<String>::new());
    let spoils: [Spoil; 39] = [
        |host| host.privileged = Some(true),
        |host| host.pid_mode = Some("host".into()),
        |host| host.uts_mode = Some("host".into()),
        |host| host.userns_mode = Some("host".into()),
        |host| host.ipc_mode = Some("host".into()),
        |host| host.network_mode = Some("host".into()),
        |host| host.cgroupns_mode = Some(HostConfigCgroupnsModeEnum::HOST),
        |host| host.publish_all_ports = Some(true),
        |host| host.cap_drop = None,
        |host| host.cap_add.as_mut().unwrap().push("SYS_ADMIN".into()),
        |host| host.readonly_rootfs = Some(false),
        |host| host.memory = None,
        |host| host.memory_swap = Some(-1),
        |host| host.pids_limit = Some(0),
        |host| host.nano_cpus = None,
        |host| host.shm_size = None,
        |host| host.ulimits = Some(Vec::new()),
        |host| host.masked_paths = None,
        |host| host.readonly_paths = Some(Vec::new()),
        |host| host.security_opt = Some(vec!["seccomp=unconfined".into()]),
        |host| host.security_opt.as_mut().unwrap().push("apparmor=unconfined".into()),
        |host| host.mounts.as_mut().unwrap()[0].source = Some("/var/run/docker.sock".into()),
        |host| host.mounts.as_mut().unwrap()[0].source = Some("/var/run".into()),
        |host| host.mounts.as_mut().unwrap()[0].source = Some("/".into()),
        |host| host.mounts.as_mut().unwrap()[0].target = Some("/etc".into()),
        |host| host.mounts.as_mut().unwrap()[0].typ = Some(MountType::VOLUME),
        |host| host.mounts.as_mut().unwrap()[1].read_only = Some(false),
        |host| {
            let mut mounts = host.mounts.iter_mut().flatten();
            mounts.find(|mount| mount.target.as_deref() == Some(TRUST)).unwrap().read_only = Some(false);
        },
        |host| host.binds = Some(vec!["/:/host".into()]),
        |host| host.volumes_from = Some(vec!["other".into()]),
        |host| host.devices = None,
        |host| drop(host.tmpfs.as_mut().unwrap().insert("/x".into(), "rw,nosuid,nodev".into())),
        |host| drop(host.tmpfs.as_mut().unwrap().insert("/x".into(), "rw,size=1,nr_inodes=1".into())),
        |host| drop(host.tmpfs.as_mut().unwrap().remove("/volume")),
        |host| {
            host.log_config =
                Some(HostConfigLogConfig { typ: None, config: Some(HashMap::from([("max-file".into(), "1".into())])) })
        },
        |host| host.restart_policy = None,
        |host| host.init = Some(true),
        |host| host.cgroup_parent = Some(String::new()),
        |host| {
            let all = "rw,nosuid,nodev,size=209715200,nr_inodes=1,uid=1000,gid=1000,notmpcopyup";
            drop(host.tmpfs.as_mut().unwrap().insert("/tmp".into(), all.into()));
        },
    ];
    let mut noticed = BTreeSet::new();
    for (n, spoil) in spoils.iter().chain(own).enumerate() {
        let mut bad = good.clone();
        spoil(bad.host_config.as_mut().unwrap());
        let broken = broken(&asked, &bad);
        assert!(!broken.is_empty(), "spoil {n} is not noticed");
        noticed.extend(broken);
    }
    let others: [fn(&mut ContainerCreateBody); 4] = [
        |body| drop(body.labels.as_mut().unwrap().insert(DATA_DIR_LABEL.into(), "another".into())),
        |body| body.entrypoint = Some(vec!["/bin/sh".into()]),
        |body| body.cmd = Some(vec!["--own".into(), "/tmp".into()]),
        |body| body.cmd = Some(vec!["--own".into(), "/etc".into()]),
    ];
    for spoil in others {
        let mut bad = good.clone();
        spoil(&mut bad);
        noticed.extend(broken(&asked, &bad));
    }
    let all: BTreeSet<String> = invariants(&asked, &good).into_iter().map(|(name, _)| name).collect();
    assert_eq!(all, noticed, "an invariant has no control");
}

#[test]
fn a_workspace_takes_the_place_of_the_tmpfs() {
    for dialect in [Dialect::Docker, podman()] {
        let mut asked = plain(dialect);
        asked.spec.workspace = Some(WorkspaceMount::Directory("/data/workspaces/w".into()));
        let body = container(&asked.spec, &asked.config, &asked.image, &asked.host).unwrap();
        // The owner is set on disk, and the runner must not change it.
        assert!(!body.cmd.unwrap().iter().any(|word| word.contains(WORKSPACE)));
        let host = body.host_config.unwrap();
        assert!(!host.tmpfs.unwrap().contains_key(WORKSPACE));
        assert!(host.mounts.unwrap().iter().any(|mount| mount.target.as_deref() == Some(WORKSPACE)));
    }
}

#[test]
fn the_files_of_a_workspace_are_served_below_a_root_that_has_nothing_else() {
    for dialect in [Dialect::Docker, podman()] {
        let mut asked = plain(dialect);
        asked.spec.workspace = Some(WorkspaceMount::Directory("/data/workspaces/w".into()));
        asked.spec.purpose = Purpose::WorkspaceFiles;
        let body = container(&asked.spec, &asked.config, &asked.image, &asked.host).unwrap();
        assert!(body.cmd.unwrap().ends_with(&FILES_ARGUMENTS.map(str::to_owned)));
        let host = body.host_config.unwrap();
        assert!(host.tmpfs.unwrap().contains_key(FILES_ROOT));
        let targets: Vec<String> = host.mounts.unwrap().into_iter().filter_map(|mount| mount.target).collect();
        assert!(targets.contains(&FILES_WORKSPACE.to_owned()) && !targets.contains(&WORKSPACE.to_owned()));
    }
}

#[test]
fn a_limit_of_nothing_is_refused_since_it_would_be_none() {
    let mut asked = plain(Dialect::Docker);
    Arc::make_mut(&mut asked.spec.session).resources.pids = 0;
    assert!(container(&asked.spec, &asked.config, &asked.image, &asked.host).is_err());
}

#[test]
fn a_container_from_a_kept_disk_waits_for_it_and_has_no_variable_of_its_image_that_it_did_not_ask_for() {
    let mut asked = plain(Dialect::Docker);
    let env = |asked: &Asked| {
        let made = container(&asked.spec, &asked.config, &asked.image, &asked.host).unwrap();
        let record = record(&asked.spec, &asked.image, &made);
        (made.env.unwrap(), record)
    };
    let (before, record) = env(&asked);
    assert!(!before.iter().any(|variable| variable.contains("AWAIT_RESTORE")));
    assert_eq!(record.directories, ["/home/sandbox", "/tmp", "/var/tmp", "/workspace"], "/dev/shm is not kept");
    assert_eq!(record.variables.len(), before.len());
    asked.spec.env = Variables([("NEW".to_owned(), "1".to_owned())].into());
    asked.host.kept_variables = Some(["OLD", "NEW", "COVE_RUNNER_STATE"].map(str::to_owned).to_vec());
    let (after, _) = env(&asked);
    let added: Vec<&String> = after.iter().filter(|variable| !before.contains(variable)).collect();
    let expected = ["NEW=1", "COVE_RUNNER_SESSION_VARIABLES=NEW", "COVE_RUNNER_AWAIT_RESTORE=true", "OLD"];
    assert!(expected.iter().all(|one| added.iter().any(|other| other == one)) && added.len() == 4, "{added:?}");
    asked.spec.workspace = Some(WorkspaceMount::Directory("/data/w".into()));
    asked.image.volumes = ["/data".to_owned(), "/a:b".to_owned()].into();
    assert_eq!(env(&asked).1.directories, ["/data", "/home/sandbox", "/tmp", "/var/tmp"]);
}

//! A container that matches its request passes, and every part that differs is named.

use std::collections::HashMap;

use bollard::models::{
    HealthConfig, HostConfigCgroupnsModeEnum, HostConfigLogConfig, Mount, MountType, ResourcesUlimits,
};

use super::super::kernel::Kernel;
use super::super::seccomp;
use super::*;
use crate::runtime::syscalls::Debugging;

const ID: &str = "0c07af8a280d";

fn asked() -> ContainerCreateBody {
    let limit = |name: &str, value| ResourcesUlimits { name: Some(name.into()), soft: Some(value), hard: Some(value) };
    let host = HostConfig {
        memory: Some(200),
        memory_swap: Some(200),
        oom_score_adj: Some(0),
        nano_cpus: Some(500_000_000),
        pids_limit: Some(50),
        ulimits: Some(vec![limit("nofile", 16), limit("core", 0)]),
        log_config: Some(HostConfigLogConfig {
            typ: Some("json-file".into()),
            config: Some(HashMap::from([("max-size".into(), "256k".into())])),
        }),
        readonly_rootfs: Some(true),
        tmpfs: Some(HashMap::from([("/tmp".into(), "rw,exec,nosuid,nodev,size=5,mode=1777,notmpcopyup".into())])),
        mounts: Some(vec![Mount {
            target: Some("/run/cove/private/runner".into()),
            source: Some("/data/runner".into()),
            typ: Some(MountType::BIND),
            read_only: Some(true),
            ..Mount::default()
        }]),
        masked_paths: Some(vec!["/proc/kallsyms".into()]),
        readonly_paths: Some(vec!["/proc/sys".into()]),
        privileged: Some(false),
        cap_drop: Some(vec!["ALL".into()]),
        cap_add: Some(vec!["KILL".into(), "CHOWN".into()]),
        cgroupns_mode: Some(HostConfigCgroupnsModeEnum::PRIVATE),
        network_mode: Some("none".into()),
        sysctls: Some(HashMap::from([("net.ipv4.ping_group_range".into(), "0 65535".into())])),
        publish_all_ports: Some(false),
        auto_remove: Some(false),
        runtime: Some("runc".into()),
        ..HostConfig::default()
    };
    ContainerCreateBody {
        hostname: Some("one".into()),
        user: Some("0:0".into()),
        entrypoint: Some(vec!["/usr/local/bin/runner".into()]),
        cmd: Some(vec!["--uid".into(), "1000".into()]),
        healthcheck: Some(HealthConfig { test: Some(vec!["NONE".into()]), ..HealthConfig::default() }),
        host_config: Some(host),
        ..ContainerCreateBody::default()
    }
}

/// The container as Podman 4.3 prepares it, with Podman's own additions.
fn made() -> Prepared {
    let system = |place: &str, kind: &str| json!({ "destination": place, "type": kind, "source": kind, "options": ["nosuid", "ro"] });
    let mut filter = seccomp::profile(Kernel::Host, Debugging::Children);
    // Podman leaves out values that are 0.
    for rule in filter["syscalls"].as_array_mut().unwrap() {
        for argument in rule["args"].as_array_mut().into_iter().flatten() {
            argument.as_object_mut().unwrap().retain(|_, value| *value != 0);
        }
    }
    let spec = json!({
        "process": {
            "user": { "uid": 0, "gid": 0, "additionalGids": [0] },
            "args": ["/usr/local/bin/runner", "--uid", "1000"],
            "capabilities": {
                "bounding": ["CAP_CHOWN", "CAP_KILL"],
                "effective": ["CAP_CHOWN", "CAP_KILL"],
                "permitted": ["CAP_CHOWN", "CAP_KILL"],
            },
            "rlimits": [
                { "type": "RLIMIT_NOFILE", "hard": 16, "soft": 16 },
                { "type": "RLIMIT_CORE", "hard": 0, "soft": 0 },
            ],
            "noNewPrivileges": true,
            "oomScoreAdj": 0,
        },
        "root": { "path": "/x/merged", "readonly": true },
        "hostname": "one",
        "mounts": [
            system("/proc", "proc"),
            system("/sys", "sysfs"),
            system("/dev", "tmpfs"),
            system("/dev/pts", "devpts"),
            system("/dev/mqueue", "mqueue"),
            system("/sys/fs/cgroup", "cgroup"),
            { "destination": "/tmp", "type": "tmpfs", "source": "tmpfs",
              "options": ["rw", "exec", "nosuid", "nodev", "size=5", "mode=1777", "rprivate"] },
            { "destination": "/etc/hostname", "type": "bind", "source": format!("/x/{ID}/userdata/hostname"), "options": ["bind"] },
            { "destination": "/run/cove/private/runner", "type": "bind", "source": "/data/runner",
              "options": ["rprivate", "ro", "rbind"] },
        ],
        "linux": {
            "sysctl": { "net.ipv4.ping_group_range": "0 65535" },
            "resources": {
                "devices": [{ "allow": false, "access": "rwm" }],
                "memory": { "limit": 200, "swap": 200 },
                "cpu": { "quota": 50_000, "period": 100_000 },
                "pids": { "limit": 50 },
            },
            "namespaces": [
                { "type": "pid" }, { "type": "network" }, { "type": "ipc" }, { "type": "uts" }, { "type": "mount" },
                { "type": "cgroup" },
            ],
            "maskedPaths": ["/proc/kcore", "/proc/kallsyms"],
            "readonlyPaths": ["/proc/sys", "/proc/bus"],
            "seccomp": filter,
        },
    });
    let inspected = json!({
        "Id": ID,
        "Pod": "",
        "OCIRuntime": "/usr/bin/runc",
        "Config": { "Healthcheck": { "Test": ["NONE"] } },
        "NetworkSettings": { "Networks": { "mine": {} } },
        "HostConfig": {
            "NetworkMode": "none",
            "RestartPolicy": { "Name": "no" },
            "AutoRemove": false,
            "Privileged": false,
            "PublishAllPorts": false,
            "PortBindings": {},
            "LogConfig": { "Type": "json-file", "Config": null, "Size": "256kB" },
        },
    });
    Prepared { inspected, spec }
}

fn podman(has_cgroup_namespaces: bool) -> Podman {
    Podman { filters: "/data".into(), hosts: "/data/hosts".into(), user_processes: 7, has_cgroup_namespaces }
}

fn found(asked: &ContainerCreateBody, made: &Prepared) -> Vec<String> {
    differences(asked, &seccomp::profile(Kernel::Host, Debugging::Children), &podman(true), made)
}

#[test]
fn what_was_asked_for_is_what_it_says_in_its_own_words() {
    assert_eq!(found(&asked(), &made()), Vec::<String>::new());
}

#[test]
fn whatever_is_not_as_asked_is_named() {
    // Each entry has a place in the configuration, the wrong value to put there, and a part of the expected message.
    let spoils = [
        ("/process/args", json!(["/catatonit", "--", "/usr/local/bin/runner"]), "process.args"),
        ("/process/user/uid", json!(1000), "process.user"),
        ("/process/user/gid", json!(1), "process.user"),
        ("/process/noNewPrivileges", json!(false), "noNewPrivileges"),
        ("/process/noNewPrivileges", Value::Null, "noNewPrivileges"),
        ("/process/oomScoreAdj", json!(-1000), "oomScoreAdj"),
        ("/process/capabilities/bounding", json!(["CAP_CHOWN", "CAP_KILL", "CAP_SYS_ADMIN"]), "bounding"),
        ("/process/capabilities/effective", json!(["CAP_SYS_ADMIN"]), "effective"),
        ("/process/capabilities/permitted", json!(["CAP_KILL"]), "permitted"),
        ("/process/rlimits", json!([]), "rlimits"),
        ("/process/rlimits/0/hard", json!(1 << 20), "rlimits"),
        ("/root/readonly", json!(false), "root.readonly"),
        ("/root/readonly", Value::Null, "root.readonly"),
        ("/hostname", json!("host"), "hostname"),
        ("/mounts/0/type", json!("bind"), "mount at /proc"),
        ("/mounts/0/destination", json!("/host"), "mount at /host"),
        ("/mounts/1/options", json!(["rw"]), "mount at /sys"),
        ("/mounts/5/options", json!(["rw"]), "mount at /sys/fs/cgroup"),
        ("/mounts/6/options/5", json!("mode=0777"), "mount at /tmp"),
        ("/mounts/6/options/4", json!("size=50"), "mount at /tmp"),
        ("/mounts/6/options/2", json!("suid"), "mount at /tmp"),
        ("/mounts/6/options/6", json!("tmpcopyup"), "mount at /tmp"),
        ("/mounts/6/type", json!("bind"), "mount at /tmp"),
        ("/mounts/6/destination", json!("/elsewhere"), "mount at /elsewhere"),
        ("/mounts/6/destination", json!("/tmp/x"), "no mount at /tmp"),
        ("/mounts/7/source", json!("/etc/shadow"), "mount at /etc/hostname"),
        ("/mounts/7/destination", json!("/etc/hosts"), "mount at /etc/hosts"),
        ("/mounts/8/source", json!("/data/another"), "private/runner"),
        ("/mounts/8/options/1", json!("rw"), "private/runner"),
        ("/mounts/8/options/0", json!("rshared"), "private/runner"),
        ("/mounts/8/options/2", json!("suid"), "private/runner"),
        ("/linux/sysctl", Value::Null, "sysctl"),
        ("/linux/resources/devices", json!([]), "resources.devices"),
        ("/linux/resources/devices/0/allow", json!(true), "resources.devices"),
        ("/linux/devices", json!([{ "path": "/dev/kmsg" }]), "linux.devices"),
        ("/linux/resources/memory/limit", Value::Null, "memory.limit"),
        ("/linux/resources/memory/swap", json!(-1), "memory.swap"),
        ("/linux/resources/memory/disableOOMKiller", json!(true), "disableOOMKiller"),
        ("/linux/resources/cpu/quota", json!(-1), "cpu.quota"),
        ("/linux/resources/cpu", Value::Null, "cpu.quota"),
        ("/linux/resources/cpu/quota", json!(50_002), "cpu.quota"),
        ("/linux/resources/pids/limit", json!(2048), "pids.limit"),
        ("/linux/namespaces/0/type", json!("time"), "no pid namespace"),
        ("/linux/namespaces/1/type", json!("time"), "no network namespace"),
        ("/linux/namespaces/1/path", json!("/proc/1/ns/net"), "no network namespace"),
        ("/linux/namespaces/2/path", json!("/proc/1/ns/ipc"), "no ipc namespace"),
        ("/linux/namespaces/3/type", json!("time"), "no uts namespace"),
        ("/linux/namespaces/4/path", json!("/proc/1/ns/mnt"), "no mount namespace"),
        ("/linux/namespaces/5/type", json!("time"), "no cgroup namespace"),
        ("/linux/maskedPaths", json!(["/proc/kcore"]), "/proc/kallsyms is not masked"),
        ("/linux/readonlyPaths", Value::Null, "/proc/sys is not read-only"),
        ("/linux/seccomp", Value::Null, "filter"),
        ("/linux/seccomp/defaultAction", json!("SCMP_ACT_ALLOW"), "filter"),
        ("/linux/seccomp/defaultErrnoRet", json!(1), "filter"),
        ("/linux/seccomp/architectures", json!([]), "filter"),
        ("/linux/seccomp/syscalls/1/action", json!("SCMP_ACT_ALLOW"), "filter"),
        ("/linux/seccomp/syscalls/0/names/0", json!("mount"), "filter"),
        ("/linux/seccomp/syscalls/4/args", Value::Null, "filter"),
        ("/linux/seccomp/syscalls/4/args/0/value", json!(1), "filter"),
    ];
    for (place, instead, expected) in spoils {
        let mut made = made();
        put(&mut made.spec, place, &instead);
        let found = found(&asked(), &made);
        assert!(found.iter().any(|one| one.contains(expected)), "{place} {instead}: {found:?}");
    }
    for set in ["inheritable", "ambient"] {
        let mut made = made();
        made.spec["process"]["capabilities"][set] = json!(["CAP_NET_RAW"]);
        assert!(found(&asked(), &made)[0].contains(set));
    }
    let mut made = made();
    let another =
        json!({ "destination": "/tmp", "type": "bind", "source": "/", "options": ["rprivate", "rbind", "rw"] });
    made.spec["mounts"].as_array_mut().unwrap().push(another);
    assert!(found(&asked(), &made)[0].contains("mount at /tmp"), "a second mount in one place");
}

#[test]
fn what_the_engine_itself_would_do_with_it_is_looked_at_too() {
    let spoils = [
        ("/Pod", json!("x"), "Pod"),
        ("/OCIRuntime", json!("crun"), "OCI runtime"),
        ("/Id", json!(""), "mount at /etc/hostname"),
        ("/Config/Healthcheck/Test", json!(["CMD", "x"]), "Healthcheck"),
        ("/HostConfig/NetworkMode", json!("host"), "network"),
        ("/HostConfig/NetworkMode", json!("bridge"), "network"),
        ("/HostConfig/RestartPolicy/Name", json!("always"), "RestartPolicy"),
        ("/HostConfig/AutoRemove", json!(true), "AutoRemove"),
        ("/HostConfig/Privileged", json!(true), "Privileged"),
        ("/HostConfig/PublishAllPorts", json!(true), "PublishAllPorts"),
        ("/HostConfig/PortBindings", json!({ "80/tcp": [] }), "PortBindings"),
        ("/HostConfig/LogConfig/Size", json!("0B"), "LogConfig"),
    ];
    for (place, instead, expected) in spoils {
        let mut made = made();
        put(&mut made.inspected, place, &instead);
        let found = found(&asked(), &made);
        assert!(found.len() == 1 && found[0].contains(expected), "{place} {instead}: {found:?}");
    }
}

#[test]
fn a_network_is_the_one_that_was_asked_for() {
    let with = |name: &str| {
        let mut asked = asked();
        asked.host_config.as_mut().unwrap().network_mode = Some(name.into());
        let mut made = made();
        made.inspected["HostConfig"]["NetworkMode"] = json!("bridge");
        made.spec["linux"]["namespaces"][1]["path"] = json!("/run/netns/netns-x");
        found(&asked, &made)
    };
    assert_eq!([with("bridge"), with("mine")], [Vec::<String>::new(), Vec::new()]);
    assert!(with("another")[0].contains("network") && !with("none").is_empty());
}

#[test]
fn without_cgroup_namespaces_only_that_one_may_be_missing() {
    let mut made = made();
    made.spec["linux"]["namespaces"].as_array_mut().unwrap().truncate(5);
    let judged = |podman: &Podman, made: &Prepared| {
        differences(&asked(), &seccomp::profile(Kernel::Host, Debugging::Children), podman, made)
    };
    assert_eq!(judged(&podman(false), &made), Vec::<String>::new());
    assert!(judged(&podman(true), &made)[0].contains("cgroup"));
    made.spec["linux"]["namespaces"].as_array_mut().unwrap().truncate(4);
    assert!(judged(&podman(false), &made)[0].contains("mount"));
}

#[test]
fn a_field_that_nothing_looks_at_is_a_difference() {
    let mut asked = asked();
    asked.host_config.as_mut().unwrap().cpuset_cpus = Some("0".into());
    assert_eq!(found(&asked, &made()), ["HostConfig.CpusetCpus cannot be checked with Podman"]);
}

/// Sets the value at a JSON pointer, and creates missing parts of it.
fn put(into: &mut Value, place: &str, value: &Value) {
    let (parent, name) = place.rsplit_once('/').unwrap();
    match into.pointer_mut(parent).unwrap() {
        Value::Array(list) => list[name.parse::<usize>().unwrap()] = value.clone(),
        table => table[name] = value.clone(),
    }
}

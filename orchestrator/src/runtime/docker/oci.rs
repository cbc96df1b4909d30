//! Compares the configuration of Podman's OCI runtime with the request to Podman. If anything differs, the container is not
//! used.
//!
//! It refuses what it does not know: a mount that the request does not have, a namespace with a path, and a field of the
//! request that this file does not check, so that a new field cannot go unchecked.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use bollard::models::{ContainerCreateBody, HostConfig};
use serde_json::{Value, json};

use super::dialect::Podman;
use super::podman::Prepared;

/// The fields of the request that are checked below.
const LOOKED_AT: [&str; 37] = [
    "AutoRemove",
    "CapAdd",
    "CapDrop",
    // The engine chooses the cgroup; the limits hold in any cgroup.
    "Cgroup",
    "CgroupParent",
    "CgroupnsMode",
    "DeviceCgroupRules",
    "DeviceRequests",
    "Devices",
    "Init",
    "IpcMode",
    "LogConfig",
    "MaskedPaths",
    "Memory",
    // It is always 0, which asks for nothing.
    "MemoryReservation",
    "MemorySwap",
    "Mounts",
    "NanoCpus",
    "NetworkMode",
    "OomKillDisable",
    "OomScoreAdj",
    "PidMode",
    "PidsLimit",
    "Privileged",
    "PublishAllPorts",
    "ReadonlyPaths",
    "ReadonlyRootfs",
    "RestartPolicy",
    "Runtime",
    "SecurityOpt",
    // `/dev/shm` is one of the tmpfs.
    "ShmSize",
    // The engine refuses it if its storage has no quotas.
    "StorageOpt",
    "Sysctls",
    "Tmpfs",
    "UTSMode",
    "Ulimits",
    // The engine decides whether there is a user namespace.
    "UsernsMode",
];

/// The mounts that every container has: path and type.
const FILE_SYSTEMS: [(&str, &str); 6] = [
    ("/proc", "proc"),
    ("/sys", "sysfs"),
    ("/dev", "tmpfs"),
    ("/dev/pts", "devpts"),
    ("/dev/mqueue", "mqueue"),
    ("/sys/fs/cgroup", "cgroup"),
];
const READ_ONLY_FILE_SYSTEMS: [&str; 2] = ["/sys", "/sys/fs/cgroup"];
/// Small files that the engine writes for a container in the container's own directory. It writes the last two for an image that
/// lacks them.
const ENGINES_FILES: [&str; 5] =
    ["/etc/hostname", "/etc/resolv.conf", "/run/.containerenv", "/etc/passwd", "/etc/group"];
/// The propagation options of a mount that only its container sees.
const PRIVATE: [&str; 2] = ["private", "rprivate"];

/// How much the cpu limit may differ, because it is rounded to periods.
const CPU_TOLERANCE_NANOS: u128 = 10_000;

/// The differences, each with its place in the configuration.
pub fn differences(asked: &ContainerCreateBody, filter: &Value, podman: &Podman, made: &Prepared) -> Vec<String> {
    let host = asked.host_config.clone().unwrap_or_default();
    let mut checker = Checker { differences: Vec::new() };
    checker.unknown_fields(&host);
    checker.process(asked, &host, &made.spec["process"]);
    checker.mounts(&host, made);
    checker.namespaces(&host, podman, made);
    checker.limits(&host, &made.spec);
    checker.same("hostname", &made.spec["hostname"], &json!(asked.hostname));
    checker.same("root.readonly", &truth(&made.spec["root"]["readonly"]), &json!(host.readonly_rootfs));
    checker.paths(&host, &made.spec["linux"]);
    checker.check("the system call filter", rules(&made.spec["linux"]["seccomp"]) == rules(filter));
    checker.settings(&host, &made.inspected);
    checker.differences
}

struct Checker {
    differences: Vec<String>,
}

impl Checker {
    fn check(&mut self, what: &str, holds: bool) {
        if !holds {
            self.differences.push(format!("{what} is not what was asked for"));
        }
    }

    fn same(&mut self, what: &str, found: &Value, wanted: &Value) {
        if found != wanted {
            self.differences.push(format!("{what} is {found}, not {wanted}"));
        }
    }

    fn unknown_fields(&mut self, host: &HostConfig) {
        let fields = serde_json::to_value(host).unwrap_or_default();
        for (name, value) in fields.as_object().into_iter().flatten() {
            let is_known = value.is_null() || LOOKED_AT.contains(&name.as_str());
            if !is_known {
                self.differences.push(format!("HostConfig.{name} cannot be checked with Podman"));
            }
        }
    }

    fn process(&mut self, asked: &ContainerCreateBody, host: &HostConfig, process: &Value) {
        let words = [asked.entrypoint.clone().unwrap_or_default(), asked.cmd.clone().unwrap_or_default()].concat();
        self.same("process.args", &process["args"], &json!(words));
        let id = |name: &str| process["user"][name].as_u64().unwrap_or(0);
        let user = format!("{}:{}", id("uid"), id("gid"));
        self.same("process.user", &json!(user), &json!(asked.user));
        self.same("process.terminal", &truth(&process["terminal"]), &json!(false));
        self.same("process.noNewPrivileges", &process["noNewPrivileges"], &json!(true));
        self.same("process.oomScoreAdj", &count(&process["oomScoreAdj"]), &json!(host.oom_score_adj));
        let asked: BTreeSet<String> =
            host.cap_add.iter().flatten().map(|name| format!("CAP_{}", name.trim_start_matches("CAP_"))).collect();
        for set in ["bounding", "effective", "permitted"] {
            let found = texts(&process["capabilities"][set]);
            self.same(&format!("process.capabilities.{set}"), &json!(found), &json!(asked));
        }
        for set in ["inheritable", "ambient"] {
            self.check(&format!("process.capabilities.{set}"), texts(&process["capabilities"][set]).is_subset(&asked));
        }
    }

    fn mounts(&mut self, host: &HostConfig, made: &Prepared) {
        let empty = Vec::new();
        let found = made.spec["mounts"].as_array().unwrap_or(&empty);
        let mut missing: BTreeSet<&str> = FILE_SYSTEMS.iter().map(|(place, _)| *place).collect();
        missing.remove("/dev/mqueue");
        let tmpfs: BTreeMap<&str, &str> =
            host.tmpfs.iter().flatten().map(|(place, options)| (place.as_str(), options.as_str())).collect();
        missing.extend(tmpfs.keys());
        let binds: BTreeMap<&str, &bollard::models::Mount> =
            host.mounts.iter().flatten().filter_map(|mount| Some((mount.target.as_deref()?, mount))).collect();
        missing.extend(binds.keys());
        let container = made.inspected["Id"].as_str().filter(|id| !id.is_empty());
        for mount in found {
            let place = mount["destination"].as_str().unwrap_or("?");
            let kind = mount["type"].as_str().unwrap_or("?");
            let options = texts(&mount["options"]);
            let source = mount["source"].as_str().unwrap_or("");
            let is_as_asked = if let Some(wanted) = tmpfs.get(place) {
                kind == "tmpfs" && is_tmpfs(wanted, &options)
            } else if let Some(wanted) = binds.get(place) {
                kind == "bind" && Some(source) == wanted.source.as_deref() && is_bind(wanted.read_only, &options)
            } else if ENGINES_FILES.contains(&place) {
                kind == "bind" && container.is_some_and(|id| Path::new(source).iter().any(|part| part == id))
            } else {
                let is_known = FILE_SYSTEMS.iter().any(|(known, kinds)| *known == place && kind.starts_with(kinds));
                is_known && (options.contains("ro") || !READ_ONLY_FILE_SYSTEMS.contains(&place))
            };
            if !is_as_asked {
                self.differences.push(format!("the mount at {place} is {mount}"));
            }
            missing.remove(place);
        }
        for place in missing {
            self.differences.push(format!("there is no mount at {place}"));
        }
    }

    fn namespaces(&mut self, host: &HostConfig, podman: &Podman, made: &Prepared) {
        let empty = Vec::new();
        let found = made.spec["linux"]["namespaces"].as_array().unwrap_or(&empty);
        let wanted = host.network_mode.as_deref().unwrap_or("none");
        for name in ["pid", "network", "ipc", "uts", "mount", "cgroup"] {
            let own = found.iter().find(|one| one["type"] == name);
            // The engine creates a network namespace with a path before the container exists.
            let has_path = own.is_some_and(|one| one["path"].as_str().is_some_and(|path| !path.is_empty()));
            let may_lack = name == "cgroup" && !podman.has_cgroup_namespaces;
            let may_have_path = name == "network" && wanted != "none";
            if (own.is_none() && !may_lack) || (has_path && !may_have_path) {
                self.differences.push(format!("there is no {name} namespace of its own"));
            }
        }
        let mode = &made.inspected["HostConfig"]["NetworkMode"];
        let networks = &made.inspected["NetworkSettings"]["Networks"];
        let is_wanted = match wanted {
            "none" => mode == "none",
            // The engine's default network has a special name.
            "bridge" => mode == "bridge",
            named => mode == "bridge" && networks.get(named).is_some(),
        };
        if !is_wanted {
            self.differences.push(format!("the network is {mode}, not {wanted:?}"));
        }
    }

    fn limits(&mut self, host: &HostConfig, spec: &Value) {
        let resources = &spec["linux"]["resources"];
        self.same("memory.limit", &resources["memory"]["limit"], &json!(host.memory));
        self.same("memory.swap", &resources["memory"]["swap"], &json!(host.memory_swap));
        self.same("memory.disableOOMKiller", &truth(&resources["memory"]["disableOOMKiller"]), &json!(false));
        self.same("pids.limit", &resources["pids"]["limit"], &json!(host.pids_limit));
        let part = |name: &str| resources["cpu"][name].as_u64().map(u128::from).filter(|count| *count > 0);
        let nanos = part("quota").zip(part("period")).map(|(quota, period)| quota * 1_000_000_000 / period);
        let wanted = host.nano_cpus.and_then(|nanos| u128::try_from(nanos).ok()).unwrap_or(0);
        let is_near = nanos.is_some_and(|nanos| nanos.abs_diff(wanted) <= CPU_TOLERANCE_NANOS);
        self.check("cpu.quota", is_near);
        let limit = |name: String, soft: Value, hard: Value| format!("{name} {soft} {hard}");
        let wanted: BTreeSet<String> = host
            .ulimits
            .iter()
            .flatten()
            .map(|one| {
                let name = format!("RLIMIT_{}", one.name.as_deref().unwrap_or("").to_uppercase());
                limit(name, json!(one.soft), json!(one.hard))
            })
            .collect();
        let found = spec["process"]["rlimits"].as_array().into_iter().flatten();
        let found: BTreeSet<String> = found
            .map(|one| limit(one["type"].as_str().unwrap_or("?").to_owned(), count(&one["soft"]), count(&one["hard"])))
            .collect();
        self.same("process.rlimits", &json!(found), &json!(wanted));
        let rules = resources["devices"].as_array().cloned().unwrap_or_default();
        let denies_all = rules.first().is_some_and(|rule| rule["allow"] == false && rule.get("type").is_none());
        self.check("resources.devices", denies_all && !rules.iter().any(|rule| rule["allow"] == true));
        let devices = spec["linux"]["devices"].as_array().is_some_and(|devices| !devices.is_empty());
        self.check("linux.devices", !devices);
        for (name, wanted) in host.sysctls.iter().flatten() {
            self.same(&format!("sysctl {name}"), &spec["linux"]["sysctl"][name], &json!(wanted));
        }
    }

    /// Checks masked and read-only paths. There may be more than were asked for.
    fn paths(&mut self, host: &HostConfig, linux: &Value) {
        let (masked, read_only) = (texts(&linux["maskedPaths"]), texts(&linux["readonlyPaths"]));
        for path in host.masked_paths.iter().flatten().filter(|path| !masked.contains(*path)) {
            self.differences.push(format!("{path} is not masked"));
        }
        for path in host.readonly_paths.iter().flatten().filter(|path| !read_only.contains(*path)) {
            self.differences.push(format!("{path} is not read-only"));
        }
    }

    /// Checks what Podman does itself and does not leave to its OCI runtime.
    fn settings(&mut self, host: &HostConfig, inspected: &Value) {
        let made = &inspected["HostConfig"];
        self.same("Privileged", &truth(&made["Privileged"]), &json!(host.privileged));
        self.same("AutoRemove", &truth(&made["AutoRemove"]), &json!(host.auto_remove));
        self.same("PublishAllPorts", &truth(&made["PublishAllPorts"]), &json!(host.publish_all_ports));
        let ports = made["PortBindings"].as_object().is_some_and(|ports| !ports.is_empty());
        self.check("PortBindings", !ports);
        let restart = made["RestartPolicy"]["Name"].as_str().unwrap_or("");
        self.check("RestartPolicy", restart.is_empty() || restart == "no");
        let pod = inspected["Pod"].as_str().unwrap_or("");
        self.check("Pod", pod.is_empty());
        let health = &inspected["Config"]["Healthcheck"]["Test"];
        self.check("Healthcheck", health.is_null() || *health == json!(["NONE"]));
        let log = host.log_config.as_ref().and_then(|log| log.config.as_ref()?.get("max-size").cloned());
        // Podman writes `256kB` for `256k`.
        self.same("LogConfig.Size", &made["LogConfig"]["Size"], &json!(log.map(|size| format!("{size}B"))));
        if let Some(wanted) = &host.runtime {
            let found = inspected["OCIRuntime"].as_str().unwrap_or("");
            let is_same = found == wanted || Path::new(found).file_name().is_some_and(|name| name == wanted.as_str());
            if !is_same {
                self.differences.push(format!("the OCI runtime is {found:?}, not {wanted:?}"));
            }
        }
    }
}

fn texts(list: &Value) -> BTreeSet<String> {
    list.as_array().into_iter().flatten().filter_map(|text| text.as_str().map(str::to_owned)).collect()
}

/// The value, or false if it is missing.
fn truth(value: &Value) -> Value {
    if value.is_null() { json!(false) } else { value.clone() }
}

/// The value, or 0 if it is missing.
fn count(value: &Value) -> Value {
    if value.is_null() { json!(0) } else { value.clone() }
}

fn is_tmpfs(wanted: &str, found: &BTreeSet<String>) -> bool {
    // `notmpcopyup` is an instruction to Podman, which it does not pass on.
    let wanted: BTreeSet<String> = wanted.split(',').filter(|word| *word != "notmpcopyup").map(str::to_owned).collect();
    let found: BTreeSet<String> = found.iter().filter(|word| !PRIVATE.contains(&word.as_str())).cloned().collect();
    wanted == found
}

fn is_bind(read_only: Option<bool>, found: &BTreeSet<String>) -> bool {
    let harmless = ["bind", "rbind", "rw", "ro", "nosuid", "nodev", "noexec"];
    let is_private = PRIVATE.iter().any(|word| found.contains(*word));
    found.contains("ro") == (read_only == Some(true))
        && is_private
        && found.iter().all(|word| harmless.contains(&word.as_str()) || PRIVATE.contains(&word.as_str()))
}

/// A system call filter as a set with one entry for each call: engines sort and split rules, and leave out what is 0.
fn rules(filter: &Value) -> BTreeSet<String> {
    let mut all = BTreeSet::from([
        format!("default {} {}", filter["defaultAction"], filter["defaultErrnoRet"]),
        format!("architectures {}", json!(texts(&filter["architectures"]))),
    ]);
    for rule in filter["syscalls"].as_array().into_iter().flatten() {
        let arguments: Vec<String> = rule["args"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|one| {
                let number = |name: &str| count(&one[name]);
                format!("{} {} {} {}", number("index"), number("value"), number("valueTwo"), one["op"])
            })
            .collect();
        for name in texts(&rule["names"]) {
            all.insert(format!("{name} {} {} {arguments:?}", rule["action"], rule["errnoRet"]));
        }
    }
    all
}

#[cfg(test)]
#[path = "oci_test.rs"]
mod tests;

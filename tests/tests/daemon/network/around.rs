//! Ways around a policy, each refused, and each with a control: the same program where it is allowed.
//!
//! A program has reached something if a server of the story saw its token, or if it prints REACHED. The programs are Python, with
//! the functions of `client.py`; in them `@good@` and its like stand for addresses, and `@token@` for a word that is new each time.

mod proxy;
mod table;

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};

use e2e::daemon::{Ability, Daemon, DaemonBuilder, Session, Upstream, lacks};
use e2e::{LONG_DEADLINE, skipped, wait_until};
use serde_json::{Value, json};

use super::{CLIENT, World, allow, decisions, give_client, names, prints, put, runs};
use table::{Control, Policy, Way, ways};

/// The fewest ways that count as a battery.
const LEAST_WAYS: usize = 60;

struct Battery {
    daemon: Daemon,
    upstream: Upstream,
    /// Tries to get around its policy.
    attacker: Session,
    /// Has another policy for each control.
    control: Session,
    /// Listens on an own address of the host.
    host_port: u16,
    abstract_name: String,
    tokens: u32,
}

impl Battery {
    async fn start(story: &str, change: impl FnOnce(DaemonBuilder) -> DaemonBuilder) -> Option<Self> {
        let World { mut daemon, upstream } = World::start_with(story, change).await?;
        daemon.set_hosts(&all_names(&upstream));
        let attacker = daemon.create(json!({ "network": "none" })).await;
        let control = daemon.create(json!({ "network": "none" })).await;
        give_client(&attacker).await;
        give_client(&control).await;
        std::fs::write(daemon.directory().join("client.py"), CLIENT).expect("our own directory");
        let host_port = serve_host(upstream.host());
        let abstract_name = format!("cove-e2e-{}-{host_port}", std::process::id());
        serve_abstract(&abstract_name);
        Some(Self { daemon, upstream, attacker, control, host_port, abstract_name, tokens: 0 })
    }

    /// Fills the places in a text. `@token@` gets a new word.
    fn fill(&mut self, text: &str) -> (String, String) {
        self.tokens += 1;
        let token = format!("token{:05}", self.tokens);
        let filled = text
            .replace("@token@", &token)
            .replace("@good@", &self.upstream.good().to_string())
            .replace("@evil@", &self.upstream.evil().to_string())
            .replace("@other@", &self.upstream.other().to_string())
            .replace("@host@", &self.upstream.host().to_string())
            .replace("@host_port@", &self.host_port.to_string())
            .replace("@daemon_port@", &self.daemon.api().address.port().to_string())
            .replace("@abstract@", &self.abstract_name)
            .replace("@data_dir@", &self.daemon.data_dir().to_string_lossy());
        (filled, token)
    }

    fn policy(&mut self, policy: Policy) -> Value {
        match policy {
            Policy::Preset(name) => json!(name),
            Policy::Allow(rules) => {
                let rules: Vec<String> = rules.iter().map(|rule| self.fill(rule).0).collect();
                json!({ "allow": rules })
            }
            Policy::Private(host, port) => {
                let port: u16 = self.fill(port).0.parse().expect("a port");
                json!({ "allow": [{ "host": host, "ports": [port], "private": true }] })
            }
            Policy::Deny(rules) => {
                let rules: Vec<String> = rules.iter().map(|rule| self.fill(rule).0).collect();
                json!({ "allow": ["*"], "deny": rules })
            }
        }
    }

    /// Whether a program in a sandbox reaches something under this policy, and what it said.
    async fn reaches(&mut self, is_control: bool, code: &str, policy: Policy) -> (bool, String) {
        let (session, policy) =
            (if is_control { self.control.clone() } else { self.attacker.clone() }, self.policy(policy));
        put(&session, policy).await;
        let (code, token) = self.fill(code);
        let reply = runs(&session, &code).await;
        self.judge(&token, reply["output"].as_str().unwrap_or_default(), &reply.to_string())
    }

    /// Whether the same program outside of any sandbox reaches something.
    fn reaches_outside(&mut self, code: &str) -> (bool, String) {
        let (code, token) = self.fill(code);
        let mut command = self.daemon.outside("/usr/bin/python3");
        command.env("PYTHONPATH", self.daemon.directory()).args(["-c", &format!("from client import *\n{code}")]);
        let output = command.output().expect("python");
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        self.judge(&token, &said, &said)
    }

    fn judge(&self, token: &str, output: &str, shown: &str) -> (bool, String) {
        (output.contains("REACHED") || self.upstream.saw(token), shown.to_owned())
    }

    /// What is wrong with one way, if anything is.
    async fn attempt(&mut self, way: &Way) -> Option<String> {
        let before = self.upstream.seen_at(self.upstream.evil()).len();
        let (is_reached, said) = self.reaches(false, way.code, way.policy).await;
        if is_reached {
            return Some(format!("{}: got around the policy: {said}", way.name));
        }
        let evil = self.upstream.seen_at(self.upstream.evil());
        // A deny rule for a name can only be judged when the name is said; no byte passes before that.
        if evil.len() > before && !matches!(way.policy, Policy::Deny(_)) {
            return Some(format!("{}: a connection to the forbidden server: {:?}: {said}", way.name, &evil[before..]));
        }
        let (is_reached, said) = match way.control {
            Control::Under(policy) => self.reaches(true, way.code, policy).await,
            Control::Code(code, policy) => self.reaches(true, code, policy).await,
            Control::Outside => self.reaches_outside(way.code),
            Control::OutsideCode(code) => self.reaches_outside(code),
            Control::Dialled(policy) | Control::DialledCode(_, policy) => {
                let code = if let Control::DialledCode(code, _) = way.control { code } else { way.code };
                let first = decisions(&self.control).await.len();
                let (_, said) = self.reaches(true, code, policy).await;
                let log = decisions(&self.control).await;
                let is_tried = log[first.min(log.len())..].iter().any(|one| one["verdict"] == "failed");
                (is_tried, format!("{said} {log:?}"))
            }
        };
        (!is_reached).then(|| format!("{}: the control did not get through: {said}", way.name))
    }
}

/// The names of the stories, and those that lead to places where no sandbox may go.
fn all_names(upstream: &Upstream) -> Vec<(&'static str, std::net::IpAddr)> {
    let mut all = names(upstream);
    for (name, address) in [
        ("loop.example.com", "127.0.0.1"),
        ("loop2.example.com", "127.9.9.9"),
        ("loop6.example.com", "::1"),
        ("mapped.example.com", "::ffff:127.0.0.1"),
        ("zero.example.com", "0.0.0.0"),
        ("zero6.example.com", "::"),
        ("private.example.com", "10.11.12.13"),
        ("private2.example.com", "172.16.1.1"),
        ("private3.example.com", "192.168.77.77"),
        ("shared.example.com", "100.64.1.1"),
        ("unique.example.com", "fd12:3456::1"),
        ("link.example.com", "169.254.7.7"),
        ("link6.example.com", "fe80::7"),
        ("metadata.example.com", "169.254.169.254"),
        ("metadata6.example.com", "fd00:ec2::254"),
        ("alibaba.example.com", "100.100.100.200"),
        ("multicast.example.com", "224.0.0.251"),
        ("broadcast.example.com", "255.255.255.255"),
    ] {
        all.push((name, address.parse().expect("an address")));
    }
    all.push(("own.example.com", upstream.host().into()));
    // The first name of a line is what the others are aliases of.
    all.push(("evil.example.com alias.example.com", upstream.evil().into()));
    for name in [
        "xgood.example.com",
        "tunnel.good.example.com",
        "good.example.com.evil.example.com",
        "aaaa.tunnel.evil.example.com",
    ] {
        all.push((name, upstream.evil().into()));
    }
    all
}

/// A server on the host's own address, which answers everybody. It ends with the process.
fn serve_host(address: Ipv4Addr) -> u16 {
    let listener = TcpListener::bind((address, 0)).expect("the host's own address");
    let port = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.write_all(b"the host");
            let _ = stream.read(&mut [0; 1024]);
        }
    });
    port
}

/// A server on an abstract Unix socket of the host.
fn serve_abstract(name: &str) {
    let address = SocketAddr::from_abstract_name(name).expect("a name");
    let listener = UnixListener::bind_addr(&address).expect("a new name");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.write_all(b"the host");
        }
    });
}

#[tokio::test]
async fn no_way_around_a_policy_works_and_each_works_where_it_is_allowed() {
    let Some(battery) = Battery::start("ways around a policy", |builder| builder).await else { return };
    try_all(battery).await;
}

#[tokio::test]
async fn no_way_around_a_policy_of_an_ordinary_users_daemon_works() {
    let story = "ways around a policy of an ordinary user's daemon";
    if lacks(story, Ability::OrdinaryUsers) {
        return;
    }
    let Some(battery) = Battery::start(story, |builder| builder.as_user(super::SOMEBODY)).await else { return };
    try_all(battery).await;
}

async fn try_all(mut battery: Battery) {
    let mut all = ways();
    if !Ability::EveryDial.is_there("ways around a policy by dialling without the proxy") {
        all.retain(|way| !way.is_without_proxy);
        all.extend(proxy::ways());
    } else {
        skipped("ways around a policy through a proxy", "sandboxes of this runtime have none");
    }
    assert!(all.len() >= LEAST_WAYS, "{}", all.len());
    let mut wrong = Vec::new();
    for way in &all {
        if let Some(what) = battery.attempt(way).await {
            println!("WRONG: {what}");
            wrong.push(what);
        }
    }
    println!("{} ways, {} wrong", all.len(), wrong.len());
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), all.len(), wrong.join("\n"));
    battery.daemon.stop().await;
}

/// The name has another address between the question of the program and its connection, and after that.
#[tokio::test]
async fn a_name_that_changes_its_address_leads_nowhere_new() {
    let Some(World { mut daemon, upstream }) = World::start("rebinding").await else { return };
    let port = serve_host(Ipv4Addr::LOCALHOST);
    let mut all = names(&upstream);
    all.push(("moves.example.com", upstream.good().into()));
    daemon.set_hosts(&all);
    let session =
        daemon.create(json!({ "network": allow(&["moves.example.com", &format!("moves.example.com:{port}")]) })).await;
    give_client(&session).await;
    let found = prints(&session, "print(resolve('moves.example.com')[0])").await;
    let is_dialled = Ability::EveryDial.is_there("the address of a name");
    assert_eq!(found.trim(), if is_dialled { upstream.good().to_string() } else { "moves.example.com".to_owned() });
    all.pop();
    all.push(("moves.example.com", Ipv4Addr::LOCALHOST.into()));
    daemon.set_hosts(&all);
    // The address that was checked is still the one that is dialled.
    let output = prints(&session, &format!("shown(get('{}', name='moves.example.com'))", upstream.good())).await;
    assert!(output.contains(&format!("hello from {}", upstream.good())), "{output}");
    // Nobody listens there on this port, so the daemon looks for other addresses of the name.
    for _ in 0..2 {
        let code = format!("shown(send('{}', {port}, b'x'))", upstream.good());
        assert!(!prints(&session, &code).await.contains("the host"));
    }
    // When the daemon learns the new address, the name has none that the sandbox may have.
    wait_until("the daemon asks again", LONG_DEADLINE, async || {
        let reply = runs(&session, "print(resolve('moves.example.com'))").await;
        (reply["exit_code"] != 0).then_some(())
    })
    .await;
    for host in [upstream.good().to_string(), "127.0.0.1".to_owned()] {
        let code = format!("shown(send('{host}', {port}, b'x'))");
        assert!(!prints(&session, &code).await.contains("the host"));
    }
    daemon.stop().await;
}

/// An address that the kernel takes for its own although no interface has it.
#[tokio::test]
async fn an_address_that_the_host_routes_to_itself_is_the_hosts_own() {
    let Some(World { daemon, upstream }) = World::start("a local route").await else { return };
    let route = LocalRoute::add(upstream.nobody());
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).expect("any address");
    let port = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.write_all(b"the host");
        }
    });
    let session = daemon.create(json!({ "network": "full" })).await;
    give_client(&session).await;
    let output = prints(&session, &format!("shown(send('{}', {port}, b'x'))", upstream.nobody())).await;
    assert!(!output.contains("the host"), "full reached a service of the host itself: {output}");
    drop(route);
    daemon.stop().await;
}

struct LocalRoute(Ipv4Addr);

impl LocalRoute {
    fn add(address: Ipv4Addr) -> Self {
        Self::ip("add", address);
        Self(address)
    }

    fn ip(what: &str, address: Ipv4Addr) {
        let words = ["route", what, "local", &format!("{address}/32"), "dev", "lo"];
        assert!(std::process::Command::new("ip").args(words).status().expect("ip").success());
    }
}

impl Drop for LocalRoute {
    fn drop(&mut self) {
        Self::ip("del", self.0);
    }
}

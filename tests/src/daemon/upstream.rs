//! A network that a story makes for itself: servers in a network namespace of their own, behind a pair of virtual interfaces. The
//! host has a route to them, as to any server of the internet, and a policy takes them for public.
//!
//! One thread is in that namespace and runs all servers. Dropping the value ends the thread; the namespace and both interfaces go
//! with it.

mod serve;

use std::fs::{File, OpenOptions};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::fcntl::{Flock, FlockArg};
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{Pid, gettid};
use tokio::net::{TcpListener, TcpSocket, UdpSocket};
use tokio::sync::oneshot;

use crate::wait::{DEADLINE, wait_until};
use crate::{is_root, skipped};

/// Networks of eight addresses in 198.51.100.0/24, which is reserved for documentation. The first one stays free.
const NETWORKS: std::ops::Range<u8> = 1..32;
const ADDRESSES: u8 = 8;
/// The ports on which the servers answer whatever they understand: see `serve`.
pub const WEB_PORT: u16 = 80;
const PORTS: [u16; 9] = [WEB_PORT, 443, 22, 25, 2222, 5432, 6667, 8080, 8443];
/// On these ports the server speaks first.
const GREETING_PORTS: [u16; 2] = [22, 2222];
const DNS_PORT: u16 = 53;
const UDP_PORTS: [u16; 4] = [DNS_PORT, 123, 443, 9999];
/// A story may open a thousand connections at once.
const BACKLOG: u32 = 4096;

/// One connection, or one datagram, that a server saw.
#[derive(Debug, Clone)]
pub struct Seen {
    /// The address and port that were dialled.
    pub dialled: SocketAddr,
    /// The first bytes that came.
    pub bytes: Vec<u8>,
    pub is_closed: bool,
}

#[derive(Debug, Default)]
struct Records {
    seen: Vec<Seen>,
}

/// What servers and story share.
#[derive(Debug, Clone, Default)]
struct Recorder(Arc<Mutex<Records>>);

impl Recorder {
    fn records(&self) -> MutexGuard<'_, Records> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub struct Upstream {
    number: u8,
    /// The thread that is in the namespace.
    thread_id: Pid,
    recorder: Recorder,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    /// Nobody else uses this network meanwhile, in this process or another one.
    _lock: Flock<File>,
}

impl Upstream {
    /// Starts the servers. `None` if this host cannot have them: then it prints the skip.
    pub fn start(story: &str) -> Option<Self> {
        if !is_root() {
            skipped(story, "servers in a network namespace of their own need root");
            return None;
        }
        if !Command::new("ip").arg("-V").output().is_ok_and(|output| output.status.success()) {
            skipped(story, "there is no program `ip`");
            return None;
        }
        let (number, lock) = NETWORKS.clone().find_map(|number| Some((number, lock(number)?))).expect("a free network");
        let (recorder, (stop, stopped)) = (Recorder::default(), oneshot::channel());
        let (tell, told) = mpsc::channel::<Result<Pid, String>>();
        let shared = recorder.clone();
        let work = move || run(number, &shared, &tell, stopped);
        let thread = std::thread::Builder::new().name("upstream".into()).spawn(work).expect("a thread");
        let told = told.recv_timeout(DEADLINE).expect("the servers start");
        let thread_id = told.unwrap_or_else(|why| panic!("no servers: {why}"));
        Some(Self { number, thread_id, recorder, stop: Some(stop), thread: Some(thread), _lock: lock })
    }

    /// The host's own address in this network.
    pub fn host(&self) -> Ipv4Addr {
        address(self.number, 1)
    }

    /// The address of the servers that stories allow.
    pub fn good(&self) -> Ipv4Addr {
        address(self.number, 2)
    }

    /// The address of the same servers that stories do not allow.
    pub fn evil(&self) -> Ipv4Addr {
        address(self.number, 3)
    }

    /// A third address of the same servers.
    pub fn other(&self) -> Ipv4Addr {
        address(self.number, 4)
    }

    /// An address of this network that nobody has.
    pub fn nobody(&self) -> Ipv4Addr {
        address(self.number, 5)
    }

    /// An address in the namespace on which no server listens: a story can start one of its own there, by `nsenter --net=NAMESPACE`.
    pub fn free(&self) -> Ipv4Addr {
        address(self.number, 6)
    }

    /// The namespace, as long as this value is there.
    pub fn namespace(&self) -> PathBuf {
        format!("/proc/{}/ns/net", self.thread_id).into()
    }

    /// The same over IPv6: an address that stories allow, and one that they do not.
    pub fn good6(&self) -> Ipv6Addr {
        address6(self.number, 2)
    }

    pub fn evil6(&self) -> Ipv6Addr {
        address6(self.number, 3)
    }

    /// A command that runs beside these servers, as one more of them.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", self.namespace().display())).arg(program);
        command
    }

    pub fn seen(&self) -> Vec<Seen> {
        self.recorder.records().seen.clone()
    }

    /// What came to this address.
    pub fn seen_at(&self, address: impl Into<IpAddr>) -> Vec<Seen> {
        let address = address.into();
        self.seen().into_iter().filter(|seen| seen.dialled.ip() == address).collect()
    }

    /// Whether these bytes came to any server.
    pub fn saw(&self, bytes: impl AsRef<[u8]>) -> bool {
        let bytes = bytes.as_ref();
        self.recorder.records().seen.iter().any(|seen| memchr::memmem::find(&seen.bytes, bytes).is_some())
    }

    pub fn forget(&self) {
        self.recorder.records().seen.clear();
    }

    /// Waits until these bytes came to some server.
    pub async fn until_saw(&self, bytes: impl AsRef<[u8]>) {
        let bytes = bytes.as_ref();
        let what = format!("an upstream sees {:?}", String::from_utf8_lossy(bytes));
        wait_until(&what, DEADLINE, async || self.saw(bytes).then_some(())).await;
    }

    /// How many connections to this address are open.
    pub fn open_at(&self, address: impl Into<IpAddr>) -> usize {
        self.seen_at(address).iter().filter(|seen| !seen.is_closed).count()
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        // It goes with the namespace, some time later. The next story may use the network at once.
        let _ = ip(&["link", "del", &interface(self.number)]);
    }
}

fn lock(number: u8) -> Option<Flock<File>> {
    let path = std::env::temp_dir().join(format!("cove-e2e-network-{number}.lock"));
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(path).expect("a lock file");
    Flock::lock(file, FlockArg::LockExclusiveNonblock).ok()
}

fn address(number: u8, host: u8) -> Ipv4Addr {
    Ipv4Addr::new(198, 51, 100, number * ADDRESSES + host)
}

/// In 2001:db8::/32, which is reserved for documentation too.
fn address6(number: u8, host: u8) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 0xc0e, number.into(), 0, 0, 0, host.into())
}

fn interface(number: u8) -> String {
    format!("cove-e2e{number}")
}

fn ip(arguments: &[&str]) -> Result<(), String> {
    let output = Command::new("ip").args(arguments).output().map_err(|error| error.to_string())?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("ip {arguments:?}: {}", String::from_utf8_lossy(&output.stderr))),
    }
}

/// The whole life of the thread.
fn run(number: u8, recorder: &Recorder, tell: &mpsc::Sender<Result<Pid, String>>, stopped: oneshot::Receiver<()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let set_up = async { serve_all(&enter(number)?, recorder).await.map_err(|error| error.to_string()) };
        let tasks = set_up.await;
        let is_up = tasks.is_ok();
        let _ = tell.send(tasks.as_ref().map(|()| gettid()).map_err(Clone::clone));
        if is_up {
            let _ = stopped.await;
        }
    });
    // Servers that wait end with the runtime.
    runtime.shutdown_timeout(Duration::from_secs(1));
}

/// Puts this thread into a namespace with one interface, whose other end the host has.
fn enter(number: u8) -> Result<Vec<IpAddr>, String> {
    let (outer, inner) = (interface(number), format!("{}i", interface(number)));
    // An earlier process may have been killed.
    let _ = ip(&["link", "del", &outer]);
    let host_namespace = File::open("/proc/thread-self/ns/net").map_err(|error| error.to_string())?;
    unshare(CloneFlags::CLONE_NEWNET).map_err(|error| error.to_string())?;
    let our_thread = gettid().to_string();
    let in_host = |arguments: &[&str]| {
        let outside = format!("--net=/proc/self/fd/{}", HOST_FD);
        let mut command = Command::new("nsenter");
        command.arg(outside).arg("ip").args(arguments).stdin(host_namespace.try_clone().expect("a second handle"));
        let output = command.output().map_err(|error| error.to_string())?;
        match output.status.success() {
            true => Ok(()),
            false => Err(format!("ip {arguments:?}: {}", String::from_utf8_lossy(&output.stderr))),
        }
    };
    in_host(&["link", "add", &outer, "type", "veth", "peer", "name", &inner])?;
    in_host(&["link", "set", &inner, "netns", &our_thread])?;
    in_host(&["addr", "add", &format!("{}/29", address(number, 1)), "dev", &outer])?;
    in_host(&["link", "set", &outer, "up"])?;
    let mut servers: Vec<IpAddr> = Vec::new();
    for host in 2..=4 {
        ip(&["addr", "add", &format!("{}/29", address(number, host)), "dev", &inner])?;
        servers.push(address(number, host).into());
    }
    ip(&["addr", "add", &format!("{}/29", address(number, 6)), "dev", &inner])?;
    ip(&["link", "set", "lo", "up"])?;
    ip(&["link", "set", &inner, "up"])?;
    // Some kernels have no IPv6. Without `nodad`, an address cannot be used for a second.
    let outer6 = format!("{}/64", address6(number, 1));
    if in_host(&["addr", "add", &outer6, "dev", &outer, "nodad"]).is_ok() {
        for host in 2..=3 {
            ip(&["addr", "add", &format!("{}/64", address6(number, host)), "dev", &inner, "nodad"])?;
            servers.push(address6(number, host).into());
        }
    }
    Ok(servers)
}

/// The host's namespace is standard input of the programs that work there.
const HOST_FD: u8 = 0;

async fn serve_all(addresses: &[IpAddr], recorder: &Recorder) -> std::io::Result<()> {
    for &address in addresses {
        for port in PORTS {
            let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
            socket.set_reuseaddr(true)?;
            socket.bind((address, port).into())?;
            tokio::spawn(accept(socket.listen(BACKLOG)?, recorder.clone(), GREETING_PORTS.contains(&port)));
        }
        for port in UDP_PORTS {
            tokio::spawn(receive(UdpSocket::bind((address, port)).await?, recorder.clone()));
        }
    }
    Ok(())
}

async fn accept(listener: TcpListener, recorder: Recorder, is_first_to_speak: bool) {
    while let Ok((stream, _)) = listener.accept().await {
        let Ok(dialled) = stream.local_addr() else { continue };
        let number = {
            let mut records = recorder.records();
            records.seen.push(Seen { dialled, bytes: Vec::new(), is_closed: false });
            records.seen.len() - 1
        };
        let connection = serve::Connection { stream, recorder: recorder.clone(), number };
        tokio::spawn(connection.serve(is_first_to_speak));
    }
}

/// Records datagrams, and sends them back. Questions to a name server stay without an answer.
async fn receive(socket: UdpSocket, recorder: Recorder) {
    let mut bytes = vec![0; 2048];
    while let (Ok((length, from)), Ok(dialled)) = (socket.recv_from(&mut bytes).await, socket.local_addr()) {
        recorder.records().seen.push(Seen { dialled, bytes: bytes[..length].to_vec(), is_closed: true });
        if dialled.port() != DNS_PORT {
            let _ = socket.send_to(&bytes[..length], from).await;
        }
    }
}

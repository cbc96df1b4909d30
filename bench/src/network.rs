//! Measures a connection from inside a sandbox to a server on this host, beside the same connection without a sandbox.
//!
//! One client program, in Python, runs twice: on the host, where its connections are direct, and in a session, where the daemon
//! carries them. The server is the same, and listens on an address of this host that is not loopback, which the kernel routes over
//! loopback as well.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use e2e::daemon::Daemon;
use hyper::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::client::Client;
use crate::figures::{Times, megabytes_per_second, row};
use crate::scale::Scale;

/// Prints one JSON object: the seconds for each direction, and the seconds of each connection and round trip.
const PROGRAM: &str = r#"
import json, socket, sys, time
host, port, count, samples = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
def dial(kind, number=0):
    s = socket.create_connection((host, port)); s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    s.sendall(kind + number.to_bytes(8, 'big')); return s
buffer = bytearray(1 << 20)
began = time.perf_counter(); s = dial(b'd', count); got = 0
while True:
    n = s.recv_into(buffer)
    if n == 0: break
    got += n
down = time.perf_counter() - began; s.close()
began = time.perf_counter(); s = dial(b'u'); left = count
while left > 0: left -= s.send(memoryview(buffer)[:min(left, len(buffer))])
s.shutdown(socket.SHUT_WR); sent = int.from_bytes(s.recv(8, socket.MSG_WAITALL), 'big')
up = time.perf_counter() - began; s.close()
connects, trips = [], []
for _ in range(samples):
    began = time.perf_counter(); s = dial(b'e'); s.recv(1); connects.append(time.perf_counter() - began); s.close()
s = dial(b'e'); s.recv(1)
for _ in range(samples):
    began = time.perf_counter(); s.send(b'x'); s.recv(1); trips.append(time.perf_counter() - began)
print(json.dumps({'down': down, 'up': up, 'got': got, 'sent': sent, 'connects': connects, 'trips': trips}))
"#;

/// What one run of the program measured.
struct Measured {
    down: Duration,
    up: Duration,
    connects: Times,
    trips: Times,
}

pub async fn report(scale: &Scale) -> Result<()> {
    let Some(address) = own_address() else {
        println!("\nthe network: skipped, this host has no address but loopback");
        return Ok(());
    };
    let listener = TcpListener::bind((address, 0)).await?;
    let server = listener.local_addr()?;
    let serving = tokio::spawn(serve(listener));
    let daemon = Daemon::start().await;
    let mut client = Client::connect(&daemon).await?;
    let rule = json!({ "network": { "allow": [server.to_string()] } });
    let path = client.create(&rule.to_string()).await?;
    let samples = scale.programs;

    let direct = tokio::task::spawn_blocking({
        let arguments = arguments(server, scale, samples);
        move || Command::new("python3").arg("-c").arg(PROGRAM).args(arguments).output()
    });
    let direct = direct.await?.context("python3 cannot be started")?;
    let direct = measured(&direct.stdout, scale)?;
    let argv: Vec<String> = ["python3".to_owned(), "-c".to_owned(), PROGRAM.to_owned()]
        .into_iter()
        .chain(arguments(server, scale, samples))
        .collect();
    let run = json!({ "argv": argv, "timeout_ms": null, "max_output_bytes": 16 << 20 });
    let answer = client.send(Method::POST, &format!("{path}/run"), &run.to_string()).await?;
    let answer: Value = serde_json::from_slice(&answer)?;
    ensure!(answer["exit_code"] == 0, "the program in the session failed: {answer}");
    let carried = measured(answer["stdout"].as_str().unwrap_or_default().as_bytes(), scale)?;
    serving.abort();

    println!("\n{:<44} {:>9} {:>9} {:>9}", "the network", "p50", "p99", "ratio");
    row("connect and one round trip, from a sandbox", &carried.connects, None);
    row("  directly", &direct.connects, Some(&carried.connects));
    row("one round trip, from a sandbox", &carried.trips, None);
    row("  directly", &direct.trips, Some(&carried.trips));
    for (name, with, without) in [("down", carried.down, direct.down), ("up", carried.up, direct.up)] {
        let (with, without) =
            (megabytes_per_second(scale.streamed_bytes, with), megabytes_per_second(scale.streamed_bytes, without));
        println!(
            "{} {name}: {with:.0} MB/s, directly {without:.0} MB/s, {:.0} %",
            scale.streamed(),
            100.0 * with / without
        );
    }
    println!("the daemon's peak RSS: {} KiB", e2e::procfs::status_kib(daemon.pid(), "VmHWM"));
    daemon.stop().await;
    Ok(())
}

fn arguments(server: SocketAddr, scale: &Scale, samples: usize) -> Vec<String> {
    vec![server.ip().to_string(), server.port().to_string(), scale.streamed_bytes.to_string(), samples.to_string()]
}

fn measured(output: &[u8], scale: &Scale) -> Result<Measured> {
    let text = String::from_utf8_lossy(output);
    let value: Value = serde_json::from_str(text.trim()).with_context(|| format!("the program printed {text:?}"))?;
    for count in ["got", "sent"] {
        ensure!(value[count] == scale.streamed_bytes, "{count}: {}, not {}", value[count], scale.streamed_bytes);
    }
    let seconds = |value: &Value| value.as_f64().map(Duration::from_secs_f64).context("a number");
    let times = |list: &Value| -> Result<Times> {
        let samples = list.as_array().context("a list")?.iter().map(seconds).collect::<Result<_>>()?;
        Ok(Times::of(samples))
    };
    Ok(Measured {
        down: seconds(&value["down"])?,
        up: seconds(&value["up"])?,
        connects: times(&value["connects"])?,
        trips: times(&value["trips"])?,
    })
}

/// An address of this host that is not loopback. Connecting a UDP socket finds it, and sends nothing.
fn own_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    socket.connect((Ipv4Addr::new(198, 51, 100, 1), 9)).ok()?;
    Some(socket.local_addr().ok()?.ip()).filter(|address| !address.is_loopback() && !address.is_unspecified())
}

async fn serve(listener: TcpListener) -> Result<()> {
    loop {
        let (stream, _) = listener.accept().await?;
        tokio::spawn(answer(stream));
    }
}

async fn answer(mut stream: TcpStream) -> Result<()> {
    stream.set_nodelay(true)?;
    let mut head = [0; 9];
    stream.read_exact(&mut head).await?;
    let mut buffer = vec![0; 256 << 10];
    match head[0] {
        b'd' => {
            let mut left = u64::from_be_bytes(head[1..].try_into()?);
            while left > 0 {
                let count = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
                stream.write_all(&buffer[..count]).await?;
                left -= u64::try_from(count)?;
            }
        }
        b'u' => {
            let mut total = 0_u64;
            loop {
                match stream.read(&mut buffer).await? {
                    0 => break,
                    count => total += u64::try_from(count)?,
                }
            }
            stream.write_all(&total.to_be_bytes()).await?;
        }
        b'e' => {
            stream.write_all(b"e").await?;
            loop {
                match stream.read(&mut buffer).await? {
                    0 => break,
                    count => stream.write_all(&buffer[..count]).await?,
                }
            }
        }
        kind => bail!("a client asked for {kind}"),
    }
    Ok(())
}

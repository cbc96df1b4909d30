//! What a command costs through the runner, beside what it costs without: one run, one machine, one client.
//!
//! `cargo run --release -p bench` prints times and their ratios. It is no test and asserts nothing: a time is a property of
//! the machine, and only the ratios travel.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use e2e::{Runner, ask};
use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use hyper::body::Bytes;
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use shared_protocol::runner::{Frame, parse_frame};
use tokio::net::UnixStream;

const WARM_UP: usize = 200;
const SAMPLES: usize = 5000;
/// Starting a program is slower; fewer samples say as much.
const PROGRAM_SAMPLES: usize = 1000;
const STREAMED_BYTES: u64 = 1 << 30;

/// Prints a gigabyte without a byte that JSON would escape.
const PRINT_IT: &str = "head -c 1073741824 /dev/zero | tr '\\0' x";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    println!("runner: {}", e2e::runner_binary().display());
    let runner = Runner::start().await;

    let exec = over_the_socket(&runner, "/v1/exec", r#"{"cmd":"true"}"#, SAMPLES).await.context("exec true")?;
    let bash = Bash::start()?.measure("true").context("bare bash")?;
    let program = over_the_socket(&runner, "/v1/exec", r#"{"cmd":"/bin/true"}"#, PROGRAM_SAMPLES).await?;
    let bare_program = Bash::start()?.measure("/bin/true")?;
    let run = over_the_socket(&runner, "/v1/run", r#"{"argv":["/bin/true"]}"#, PROGRAM_SAMPLES).await.context("run")?;
    let fork = fork_and_exec()?;

    println!("\n{:<44} {:>9} {:>9} {:>9}", "", "p50", "p99", "ratio");
    row("exec true, over the socket", &exec, None);
    row("  bare bash over pipes", &bash, Some(&exec));
    row("exec /bin/true, over the socket", &program, None);
    row("  bare bash over pipes", &bare_program, Some(&program));
    row("run /bin/true, over the socket", &run, None);
    row("  fork and exec of /bin/true", &fork, Some(&run));

    let streamed = stream_through_the_runner(&runner).await?;
    let piped = stream_through_a_pipe()?;
    println!("\n{:<44} {:>9}", "1 GiB of output", "MB/s");
    println!("{:<44} {:>9.0}", "through the runner, every frame read", streamed);
    println!("{:<44} {:>9.0}   {:.2}× the runner", "  through a bare pipe", piped, piped / streamed);
    println!("\nthe runner's peak RSS: {} KiB", runner.peak_rss_kib());
    Ok(())
}

struct Times {
    p50: Duration,
    p99: Duration,
}

impl Times {
    fn of(mut samples: Vec<Duration>) -> Self {
        samples.sort_unstable();
        let at = |percent: usize| samples[(samples.len() - 1) * percent / 100];
        Self { p50: at(50), p99: at(99) }
    }
}

fn row(name: &str, times: &Times, compared: Option<&Times>) {
    let micros = |d: Duration| format!("{:.0} µs", d.as_secs_f64() * 1e6);
    let ratio = compared.map(|c| format!("{:.2}×", c.p50.as_secs_f64() / times.p50.as_secs_f64())).unwrap_or_default();
    println!("{name:<44} {:>9} {:>9} {ratio:>9}", micros(times.p50), micros(times.p99));
}

/// One connection, kept open: a request, and its frames to the terminal one.
async fn over_the_socket(runner: &Runner, path: &str, body: &'static str, samples: usize) -> Result<Times> {
    let io = TokioIo::new(UnixStream::connect(runner.socket()).await?);
    let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await?;
    tokio::spawn(connection);
    let mut times = Vec::with_capacity(samples);
    for i in 0..WARM_UP + samples {
        let start = Instant::now();
        let last = ask_once(&mut sender, path, body).await?;
        let took = start.elapsed();
        ensure!(matches!(&last, Frame::Exit(outcome) if outcome.exit_code == 0), "{last:?}");
        if i >= WARM_UP {
            times.push(took);
        }
    }
    Ok(Times::of(times))
}

async fn ask_once(sender: &mut SendRequest<Full<Bytes>>, path: &str, body: &'static str) -> Result<Frame> {
    sender.ready().await?;
    let request = Request::post(path).header("host", "runner").body(Full::new(Bytes::from_static(body.as_bytes())))?;
    let answer = sender.send_request(request).await?.into_body().collect().await?.to_bytes();
    let line = answer.trim_ascii_end().rsplit(|b| *b == b'\n').next().context("an empty answer")?;
    Ok(parse_frame(line)?)
}

/// A bash that reads commands from a pipe, as simple drivers have it.
struct Bash {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Bash {
    fn start() -> Result<Self> {
        let mut bash = Command::new("bash");
        let mut child = bash.args(["--noprofile", "--norc"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let stdin = child.stdin.take().context("a pipe to bash")?;
        let stdout = BufReader::new(child.stdout.take().context("a pipe from bash")?);
        Ok(Self { child, stdin, stdout })
    }

    fn measure(mut self, command: &str) -> Result<Times> {
        let mut times = Vec::with_capacity(SAMPLES);
        let mut line = String::new();
        for i in 0..WARM_UP + SAMPLES {
            let start = Instant::now();
            self.stdin.write_all(format!("{command}; echo done\n").as_bytes())?;
            line.clear();
            self.stdout.read_line(&mut line)?;
            let took = start.elapsed();
            ensure!(line == "done\n", "bash said {line:?}");
            if i >= WARM_UP {
                times.push(took);
            }
        }
        drop(self.stdin);
        self.child.wait()?;
        Ok(Times::of(times))
    }
}

fn fork_and_exec() -> Result<Times> {
    let mut times = Vec::with_capacity(PROGRAM_SAMPLES);
    for _ in 0..PROGRAM_SAMPLES {
        let start = Instant::now();
        ensure!(Command::new("/bin/true").status()?.success());
        times.push(start.elapsed());
    }
    Ok(Times::of(times))
}

fn megabytes_per_second(bytes: u64, took: Duration) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a figure to be read by people")]
    let bytes = bytes as f64;
    bytes / 1e6 / took.as_secs_f64()
}

async fn stream_through_the_runner(runner: &Runner) -> Result<f64> {
    let start = Instant::now();
    let done = runner.exec_stream(ask(PRINT_IT)).await.counting().finish_within(Duration::from_secs(600)).await;
    ensure!(done.received == STREAMED_BYTES && done.gaps.is_empty(), "{} bytes arrived", done.received);
    Ok(megabytes_per_second(done.received, start.elapsed()))
}

fn stream_through_a_pipe() -> Result<f64> {
    let start = Instant::now();
    let mut child = Command::new("bash").args(["-c", PRINT_IT]).stdout(Stdio::piped()).spawn()?;
    let mut stdout = child.stdout.take().context("a pipe from bash")?;
    let (mut buffer, mut total) = (vec![0; 1 << 16], 0_u64);
    loop {
        match stdout.read(&mut buffer)? {
            0 => break,
            count => total += u64::try_from(count)?,
        }
    }
    child.wait()?;
    ensure!(total == STREAMED_BYTES, "{total} bytes arrived");
    Ok(megabytes_per_second(total, start.elapsed()))
}

//! What a command costs through the runner, over its socket.

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

use crate::baseline::{Bash, fork_and_exec, stream_through_a_pipe};
use crate::figures::{Times, megabytes_per_second, row};
use crate::{PRINT_IT, PROGRAM_SAMPLES, SAMPLES, STREAMED_BYTES, WARM_UP};

pub async fn report() -> Result<()> {
    println!("runner: {}", e2e::runner_binary().display());
    let runner = Runner::start().await;

    let exec = over_the_socket(&runner, "/v1/exec", r#"{"cmd":"true"}"#, SAMPLES).await.context("exec true")?;
    let bash = Bash::start()?.measure("true").context("bare bash")?;
    let program = over_the_socket(&runner, "/v1/exec", r#"{"cmd":"/bin/true"}"#, PROGRAM_SAMPLES).await?;
    let bare_program = Bash::start()?.measure("/bin/true")?;
    let run = over_the_socket(&runner, "/v1/run", r#"{"argv":["/bin/true"]}"#, PROGRAM_SAMPLES).await.context("run")?;
    let fork = fork_and_exec()?;

    println!("\n{:<44} {:>9} {:>9} {:>9}", "the runner", "p50", "p99", "ratio");
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

async fn stream_through_the_runner(runner: &Runner) -> Result<f64> {
    let start = Instant::now();
    let done = runner.exec_stream(ask(PRINT_IT)).await.counting().finish_within(Duration::from_secs(600)).await;
    ensure!(done.received == STREAMED_BYTES && done.gaps.is_empty(), "{} bytes arrived", done.received);
    Ok(megabytes_per_second(done.received, start.elapsed()))
}

//! Measures a command through the runner, over its socket.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use e2e::http::Answer;
use e2e::{Runner, ask};
use hyper::Method;
use shared_protocol::runner::{Frame, parse_frame};

use crate::baseline::{Bash, fork_and_exec, stream_through_a_pipe};
use crate::client::EXEC_TRUE;
use crate::figures::{Times, megabytes_per_second, row};
use crate::scale::Scale;

const STREAM_DEADLINE: Duration = Duration::from_secs(600);

pub async fn report(scale: &Scale) -> Result<()> {
    println!("runner: {}", e2e::runner_binary().display());
    let runner = Runner::start().await;
    let calls = Calls { runner: &runner, warm_up: scale.warm_up };

    let exec = calls.measure("/v1/exec", EXEC_TRUE, scale.execs).await.context("exec true")?;
    let bash = Bash::start()?.measure(scale, "true").context("bare bash")?;
    let program = calls.measure("/v1/exec", r#"{"cmd":"/bin/true"}"#, scale.programs).await?;
    let bare_program = Bash::start()?.measure(scale, "/bin/true")?;
    let run = calls.measure("/v1/run", r#"{"argv":["/bin/true"]}"#, scale.programs).await.context("run")?;
    let fork = fork_and_exec(scale)?;

    println!("\n{:<44} {:>9} {:>9} {:>9}", "the runner", "p50", "p99", "ratio");
    row("exec true, over the socket", &exec, None);
    row("  bare bash over pipes", &bash, Some(&exec));
    row("exec /bin/true, over the socket", &program, None);
    row("  bare bash over pipes", &bare_program, Some(&program));
    row("run /bin/true, over the socket", &run, None);
    row("  fork and exec of /bin/true", &fork, Some(&run));

    let streamed = stream_through_the_runner(scale, &runner).await?;
    let piped = stream_through_a_pipe(scale)?;
    println!("\n{:<44} {:>9}", format!("{} of output", scale.streamed()), "MB/s");
    println!("{:<44} {:>9.0}", "through the runner, every frame read", streamed);
    println!("{:<44} {:>9.0}   {:.2}× the runner", "  through a bare pipe", piped, piped / streamed);
    println!("\nthe runner's peak RSS: {} KiB", runner.peak_rss_kib());
    Ok(())
}

struct Calls<'a> {
    runner: &'a Runner,
    warm_up: usize,
}

impl Calls<'_> {
    /// The times of calls that each succeed, over one connection that is kept open.
    async fn measure(&self, path: &str, body: &'static str, count: usize) -> Result<Times> {
        let mut connection = self.runner.connect().await?;
        let mut times = Vec::with_capacity(count);
        for i in 0..self.warm_up + count {
            let start = Instant::now();
            let request = self.runner.request(Method::POST, path, body)?;
            let answer = Answer::read(connection.send(request).await?).await?;
            let last = last_frame(&answer)?;
            let took = start.elapsed();
            ensure!(matches!(&last, Frame::Exit(outcome) if outcome.exit_code == 0), "{last:?}");
            if i >= self.warm_up {
                times.push(took);
            }
        }
        Ok(Times::of(times))
    }
}

fn last_frame(answer: &Answer) -> Result<Frame> {
    let line = answer.body.trim_ascii_end().rsplit(|b| *b == b'\n').next().context("an empty answer")?;
    Ok(parse_frame(line)?)
}

/// The rate of output through the runner in MB/s, with every frame read and its offset checked.
async fn stream_through_the_runner(scale: &Scale, runner: &Runner) -> Result<f64> {
    let start = Instant::now();
    let stream = runner.exec_stream(ask(scale.print_command())).await;
    let done = stream.counting().finish_within(STREAM_DEADLINE).await;
    ensure!(done.received == scale.streamed_bytes && done.gaps.is_empty(), "{} bytes arrived", done.received);
    Ok(megabytes_per_second(done.received, start.elapsed()))
}

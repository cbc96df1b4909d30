//! The same work without Cove, for comparison.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};

use crate::figures::{Times, megabytes_per_second};
use crate::scale::Scale;

/// A bash that reads commands from a pipe, as simple drivers use it.
pub struct Bash {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Bash {
    pub fn start() -> Result<Self> {
        let mut bash = Command::new("bash");
        let mut child = bash.args(["--noprofile", "--norc"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let stdin = child.stdin.take().context("a pipe to bash")?;
        let stdout = BufReader::new(child.stdout.take().context("a pipe from bash")?);
        Ok(Self { child, stdin, stdout })
    }

    pub fn measure(mut self, scale: &Scale, command: &str) -> Result<Times> {
        let mut times = Vec::with_capacity(scale.execs);
        let mut line = String::new();
        for i in 0..scale.warm_up + scale.execs {
            let start = Instant::now();
            self.stdin.write_all(format!("{command}; echo done\n").as_bytes())?;
            line.clear();
            self.stdout.read_line(&mut line)?;
            let took = start.elapsed();
            ensure!(line == "done\n", "bash said {line:?}");
            if i >= scale.warm_up {
                times.push(took);
            }
        }
        drop(self.stdin);
        self.child.wait()?;
        Ok(Times::of(times))
    }
}

pub fn fork_and_exec(scale: &Scale) -> Result<Times> {
    let mut times = Vec::with_capacity(scale.programs);
    for _ in 0..scale.programs {
        let start = Instant::now();
        ensure!(Command::new("/bin/true").status()?.success());
        times.push(start.elapsed());
    }
    Ok(Times::of(times))
}

/// The least that a jail with a login shell costs. `None` if bubblewrap is not installed.
pub fn bubblewrap(samples: usize) -> Result<Option<Times>> {
    let mut arguments =
        "--ro-bind /usr /usr --ro-bind /etc /etc --proc /proc --dev /dev --tmpfs /tmp --unshare-all".to_owned();
    for name in ["bin", "sbin", "lib", "lib64"] {
        arguments += &format!(" --symlink usr/{name} /{name}");
    }
    let mut times = Vec::with_capacity(samples);
    for _ in 0..samples {
        let start = Instant::now();
        let jailed = Command::new("bwrap").args(arguments.split(' ')).args(["bash", "-lc", "true"]).status();
        match jailed {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            status => ensure!(status?.success(), "bwrap failed"),
        }
        times.push(start.elapsed());
    }
    Ok(Some(Times::of(times)))
}

/// The rate of a program's output through a plain pipe, in MB/s.
pub fn stream_through_a_pipe(scale: &Scale) -> Result<f64> {
    let mut bash = Command::new("bash");
    piped_rate(bash.args(["-c", &scale.print_command()]), scale)
}

/// Runs a program that prints `scale.streamed_bytes`, reads them all and returns their rate in MB/s.
pub fn piped_rate(command: &mut Command, scale: &Scale) -> Result<f64> {
    let start = Instant::now();
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let mut stdout = child.stdout.take().context("a pipe from the program")?;
    let (mut buffer, mut total) = (vec![0; 1 << 16], 0_u64);
    loop {
        match stdout.read(&mut buffer)? {
            0 => break,
            count => total += u64::try_from(count)?,
        }
    }
    ensure!(child.wait()?.success(), "the program failed");
    ensure!(total == scale.streamed_bytes, "{total} bytes arrived");
    Ok(megabytes_per_second(total, start.elapsed()))
}

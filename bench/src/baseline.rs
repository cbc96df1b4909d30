//! The same things without Cove.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};

use crate::figures::{Times, megabytes_per_second};
use crate::{PRINT_IT, PROGRAM_SAMPLES, SAMPLES, STREAMED_BYTES, WARM_UP};

/// A bash that reads commands from a pipe, as simple drivers have it.
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

    pub fn measure(mut self, command: &str) -> Result<Times> {
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

pub fn fork_and_exec() -> Result<Times> {
    let mut times = Vec::with_capacity(PROGRAM_SAMPLES);
    for _ in 0..PROGRAM_SAMPLES {
        let start = Instant::now();
        ensure!(Command::new("/bin/true").status()?.success());
        times.push(start.elapsed());
    }
    Ok(Times::of(times))
}

/// The least that a jail with a login shell costs; `None` where bubblewrap is not installed.
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

pub fn stream_through_a_pipe() -> Result<f64> {
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

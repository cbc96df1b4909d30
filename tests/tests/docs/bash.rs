//! The bash of one document: a single process, so that the variables of one block exist in the next, as in a reader's
//! terminal.

use std::fmt::Write as _;
use std::io::{PipeReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use e2e::daemon::cove_binary;

/// The longest time for all commands of one block.
const BLOCK_DEADLINE: Duration = Duration::from_secs(120);
/// The text that bash prints after a block, followed by the status of its last command.
const END: &str = "--- the block is over, status ";
/// The prompt of a shell in a sandbox.
const PROMPT: &str = "$ ";
const PIECE_BYTES: usize = 64 << 10;

pub struct Bash {
    child: Child,
    stdin: ChildStdin,
    output: Receiver<Vec<u8>>,
    directory: PathBuf,
    blocks: usize,
}

impl Bash {
    /// Starts a bash with a home, in a new working directory below it. It finds `cove` by its name and the daemon in its
    /// home.
    pub fn start(home: &Path) -> Self {
        let (directory, programs) = (home.join("work"), home.join("bin"));
        for made in [&directory, &programs] {
            std::fs::create_dir(made).expect("our own directory");
        }
        std::os::unix::fs::symlink(cove_binary(), programs.join("cove")).expect("our own directory");
        let path = std::env::var("PATH").expect("a PATH");
        let (reader, writer) = std::io::pipe().expect("a pipe");
        let mut command = Command::new("bash");
        // Variables are exported, so that they reach the bash on a terminal, which is another process.
        command.args(["--noprofile", "--norc", "-o", "allexport"]).current_dir(&directory);
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("COVE_")) {
            command.env_remove(name);
        }
        command.env("HOME", home).env("TMPDIR", home).env("PATH", format!("{}:{path}", programs.display()));
        command.env_remove("XDG_DATA_HOME").env_remove("XDG_CONFIG_HOME").env("TERM", "xterm").env("LC_ALL", "C.UTF-8");
        command.stdin(Stdio::piped()).stdout(writer.try_clone().expect("a pipe")).stderr(writer);
        let mut child = command.spawn().expect("bash can be started");
        let stdin = child.stdin.take().expect("a pipe");
        Self { child, stdin, output: pieces(reader), directory, blocks: 0 }
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Runs a block. Returns everything that the commands printed, standard error included, if the last one succeeded. With
    /// keys they run on a terminal, where each line is typed after a prompt.
    pub fn run(&mut self, script: &str, keys: &[String]) -> Result<String, String> {
        self.blocks += 1;
        let file = format!(".block-{}.sh", self.blocks);
        std::fs::write(self.directory.join(&file), script).expect("our own directory");
        let command = match keys {
            [] => format!(". ./{file} </dev/null"),
            _ => format!("script -qec 'bash --noprofile --norc ./{file}' /dev/null"),
        };
        let end = format!("printf '\\n%s%s\\n' '{END}' \"$?\"");
        self.type_in(&format!("{command}; {end}\n"));
        let deadline = Instant::now() + BLOCK_DEADLINE;
        let (mut printed, mut seen) = (Vec::new(), 0);
        for line in keys {
            seen = self.read_until(&mut printed, deadline, |text| {
                let found = text.get(seen..)?.rfind(PROMPT)?;
                text.ends_with(PROMPT).then_some(seen + found + PROMPT.len())
            })?;
            self.type_in(&format!("{line}\r"));
        }
        let at = self.read_until(&mut printed, deadline, |text| {
            let at = text.find(END)?;
            text[at..].contains('\n').then_some(at)
        })?;
        let text = String::from_utf8_lossy(&printed).into_owned();
        let status = text[at + END.len()..].lines().next().unwrap_or_default().to_owned();
        // The line break before the mark belongs to the mark.
        let printed = without_escapes(&text[..at - 1]);
        if status == "0" { Ok(printed) } else { Err(format!("its last command ended with {status}:\n{printed}")) }
    }

    fn type_in(&mut self, text: &str) {
        self.stdin.write_all(text.as_bytes()).expect("bash still reads");
    }

    /// Reads until `found` finds a match in all the output.
    fn read_until(
        &self,
        printed: &mut Vec<u8>,
        deadline: Instant,
        found: impl Fn(&str) -> Option<usize>,
    ) -> Result<usize, String> {
        loop {
            if let Some(at) = found(&String::from_utf8_lossy(printed)) {
                return Ok(at);
            }
            match self.output.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(piece) => printed.extend(piece),
                Err(cause) => {
                    let mut why = match cause {
                        RecvTimeoutError::Timeout => format!("not over after {} s", BLOCK_DEADLINE.as_secs()),
                        RecvTimeoutError::Disconnected => "it ended bash itself".to_owned(),
                    };
                    let _ = write!(why, ", having printed:\n{}", String::from_utf8_lossy(printed));
                    return Err(why);
                }
            }
        }
    }
}

impl Drop for Bash {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The output of a pipe, read by a thread so that a wait for it can have a deadline.
fn pieces(mut reader: PipeReader) -> Receiver<Vec<u8>> {
    let (send, receive) = channel();
    std::thread::spawn(move || {
        let mut buffer = vec![0; PIECE_BYTES];
        while let Ok(count @ 1..) = reader.read(&mut buffer) {
            if send.send(buffer[..count].to_vec()).is_err() {
                break;
            }
        }
    });
    receive
}

/// Text as a terminal shows it: without control sequences and carriage returns.
fn without_escapes(text: &str) -> String {
    let mut shown = String::new();
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            '\u{1b}' => {
                // `ESC [ … letter` is the only kind of sequence that a shell prints here.
                if characters.next() == Some('[') {
                    let _ = characters.find(char::is_ascii_alphabetic);
                }
            }
            '\r' => {}
            other => shown.push(other),
        }
    }
    shown
}

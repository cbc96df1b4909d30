//! Builders for requests: `ask("make").split().timeout_ms(500)`.

use shared_protocol::runner::{ExecRequest, RunRequest, StreamMode};
use shared_protocol::{ExecId, ShellName};

pub fn ask(cmd: impl Into<String>) -> ExecRequest {
    ExecRequest { cmd: cmd.into(), ..ExecRequest::default() }
}

pub fn run<const N: usize>(argv: [&str; N]) -> RunRequest {
    RunRequest { argv: argv.map(str::to_owned).to_vec(), ..RunRequest::default() }
}

pub trait Ask {
    fn split(self) -> Self;
    fn tty(self) -> Self;
    fn timeout_ms(self, timeout_ms: u64) -> Self;
    fn in_shell(self, name: &str) -> Self;
    fn with_id(self, id: &str) -> Self;
    fn stdin(self, text: &str) -> Self;
    fn cwd(self, directory: &str) -> Self;
    fn env(self, name: &str, value: &str) -> Self;
}

impl Ask for ExecRequest {
    fn split(self) -> Self {
        Self { streams: StreamMode::Split, ..self }
    }

    fn tty(self) -> Self {
        Self { streams: StreamMode::Tty, ..self }
    }

    fn timeout_ms(self, timeout_ms: u64) -> Self {
        Self { timeout_ms: Some(timeout_ms), ..self }
    }

    fn in_shell(self, name: &str) -> Self {
        Self { shell: Some(ShellName::new(name).expect("a valid name")), ..self }
    }

    fn with_id(self, id: &str) -> Self {
        Self { exec_id: Some(ExecId::new(id).expect("a valid id")), ..self }
    }

    fn stdin(self, text: &str) -> Self {
        Self { stdin: Some(text.to_owned()), ..self }
    }

    fn cwd(self, directory: &str) -> Self {
        Self { cwd: Some(directory.to_owned()), ..self }
    }

    fn env(mut self, name: &str, value: &str) -> Self {
        self.env.insert(name.to_owned(), value.to_owned());
        self
    }
}

//! A program on a real terminal of its own, without a screen: what is typed into it, and what it prints.

use std::io::{Read, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use portable_pty::{Child, CommandBuilder, MasterPty, PtySize, native_pty_system};

use crate::wait::{DEADLINE, wait_until};

/// A program that leads a session with a new terminal. Dropping it kills it and hangs the terminal up.
pub struct OnTerminal {
    /// The terminal exists as long as this does.
    _master: Box<dyn MasterPty + Send>,
    keys: Box<dyn Write + Send>,
    child: Box<dyn Child + Send + Sync>,
    printed: Arc<Mutex<Vec<u8>>>,
}

impl OnTerminal {
    pub fn start(argv: &[&str]) -> Self {
        let size = PtySize { rows: 24, cols: 80, pixel_width: 0, pixel_height: 0 };
        let pair = native_pty_system().openpty(size).expect("a PTY");
        let mut output = pair.master.try_clone_reader().expect("a second handle");
        let keys = pair.master.take_writer().expect("taken once");
        let mut command = CommandBuilder::new(argv[0]);
        command.args(&argv[1..]);
        let child = pair.slave.spawn_command(command).unwrap_or_else(|e| panic!("{argv:?}: {e}"));
        let printed = Arc::new(Mutex::new(Vec::new()));
        let shown = Arc::clone(&printed);
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = output.read(&mut buffer) {
                shown.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(&buffer[..count]);
            }
        });
        Self { _master: pair.master, keys, child, printed }
    }

    pub fn types(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).expect("the terminal takes keys");
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.printed.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
    }

    /// Waits until the program has printed this text.
    pub async fn shows(&self, text: &str) {
        wait_until(&format!("the terminal shows {text:?}"), DEADLINE, async || {
            self.text().contains(text).then_some(())
        })
        .await;
    }

    /// The program's exit code.
    pub async fn ended(&mut self, deadline: Duration) -> u32 {
        let child = &mut self.child;
        wait_until("the program on the terminal ends", deadline, async || child.try_wait().expect("our own child"))
            .await
            .exit_code()
    }
}

impl Drop for OnTerminal {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

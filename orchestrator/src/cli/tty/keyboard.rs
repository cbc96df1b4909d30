//! Reads the keys that are typed.
//!
//! A thread reads them, because a non-blocking terminal would be non-blocking for the caller's shell too. The thread ends with the
//! process, and keys that nobody has taken are lost.

use std::io::Read;
use std::os::fd::AsFd;

use bytes::Bytes;
use tokio::sync::mpsc;

const READ_BYTES: usize = 16 << 10;
/// How many reads may wait to be sent. The rest of a paste waits in the terminal.
const DEPTH: usize = 4;

pub struct Keyboard(mpsc::Receiver<Bytes>);

impl Keyboard {
    pub fn new() -> std::io::Result<Self> {
        let (sender, receiver) = mpsc::channel(DEPTH);
        std::thread::Builder::new().name("keyboard".into()).spawn(move || read(&sender))?;
        Ok(Self(receiver))
    }

    /// The next keys; `None` once the terminal has hung up.
    pub async fn next(&mut self) -> Option<Bytes> {
        self.0.recv().await
    }
}

fn read(to: &mpsc::Sender<Bytes>) {
    // Not `std::io::stdin` itself, because it buffers.
    let Ok(stdin) = std::io::stdin().as_fd().try_clone_to_owned() else { return };
    let mut stdin = std::fs::File::from(stdin);
    let mut buffer = vec![0; READ_BYTES];
    loop {
        match stdin.read(&mut buffer) {
            Ok(0) => return,
            Ok(count) => {
                if to.blocking_send(Bytes::copy_from_slice(&buffer[..count])).is_err() {
                    return;
                }
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

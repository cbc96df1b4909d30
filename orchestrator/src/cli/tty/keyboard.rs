//! What is typed, as it is typed.
//!
//! A thread of its own reads it: making a terminal non-blocking would make it so for the caller's shell too. The thread ends
//! with the process; what it has read and nobody took goes with it.

use std::io::Read;
use std::os::fd::AsFd;

use bytes::Bytes;
use tokio::sync::mpsc;

const READ_BYTES: usize = 16 << 10;
/// Reads that wait to be sent; a paste waits in the terminal beyond that.
const DEPTH: usize = 4;

pub struct Keyboard(mpsc::Receiver<Bytes>);

impl Keyboard {
    pub fn new() -> std::io::Result<Self> {
        let (sender, receiver) = mpsc::channel(DEPTH);
        std::thread::Builder::new().name("keyboard".into()).spawn(move || read(&sender))?;
        Ok(Self(receiver))
    }

    /// None once the terminal has hung up.
    pub async fn next(&mut self) -> Option<Bytes> {
        self.0.recv().await
    }
}

fn read(to: &mpsc::Sender<Bytes>) {
    // Not `std::io::stdin` itself, whose buffer would keep bytes back.
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

//! Reads all of standard input, up to a limit, for commands in a session that read something.

use std::io::{self, IsTerminal, Read};
use std::time::Duration;

use super::exit::Failure;
use super::output::say;

/// The largest input. It is sent in the request as base64, and the daemon takes requests of up to 16 MiB.
const MAX_BYTES: u64 = 8 << 20;
/// How long to wait before telling the user that standard input is still open. A pipe that never ends is easily passed on by
/// mistake.
const NOTICE_DELAY: Duration = Duration::from_secs(3);

/// Reads standard input to its end. `None` if it is a terminal or empty.
pub async fn read() -> Result<Option<Vec<u8>>, Failure> {
    if io::stdin().is_terminal() {
        return Ok(None);
    }
    let mut reading = tokio::task::spawn_blocking(|| read_bounded(io::stdin().lock()));
    let read = tokio::select! {
        read = &mut reading => read,
        () = tokio::time::sleep(NOTICE_DELAY) => {
            say("waiting for standard input to end; add </dev/null if the command needs no input");
            reading.await
        }
    };
    let bytes = read.map_err(|e| Failure::failed(e.to_string()))??;
    Ok(Some(bytes).filter(|bytes| !bytes.is_empty()))
}

fn read_bounded(from: impl Read) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let read = from.take(MAX_BYTES + 1).read_to_end(&mut bytes);
    read.map_err(|e| Failure::failed(format!("cannot read standard input: {e}")))?;
    if bytes.len() as u64 > MAX_BYTES {
        let why =
            format!("standard input is larger than {} MiB; copy it into a session with `cove cp`", MAX_BYTES >> 20);
        return Err(Failure::failed(why));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_can_be_sent_is_refused_and_not_cut() {
        let size = usize::try_from(MAX_BYTES).unwrap();
        assert_eq!(read_bounded(io::repeat(b'x').take(MAX_BYTES)).unwrap().len(), size);
        assert!(read_bounded(io::repeat(b'x')).is_err());
    }
}

//! Standard input as one piece of bounded size, for commands that read something.

use std::io::{self, IsTerminal, Read};
use std::time::Duration;

use super::exit::Failure;
use super::output::say;

/// It travels in the request, which the daemon bounds at 16 MiB: base64 makes four bytes of three.
const MAX_BYTES: u64 = 8 << 20;
/// After which it is worth saying that we wait: a pipe that nobody closes is easily passed on by mistake.
const QUIET: Duration = Duration::from_secs(3);

/// All of it, up to its end. None where it is a terminal or empty.
pub async fn read() -> Result<Option<Vec<u8>>, Failure> {
    if io::stdin().is_terminal() {
        return Ok(None);
    }
    let mut reading = tokio::task::spawn_blocking(|| read_bounded(io::stdin().lock()));
    let read = tokio::select! {
        read = &mut reading => read,
        () = tokio::time::sleep(QUIET) => {
            say("waiting for the end of standard input; where there is none to pass on, use </dev/null");
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

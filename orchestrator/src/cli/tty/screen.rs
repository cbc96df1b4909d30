//! Restores the caller's screen when a full-screen program did not end by itself.

use std::time::Duration;

use tokio::io::AsyncWriteExt;

/// The longest wait for a terminal that takes no output.
const RESTORE_TIMEOUT: Duration = Duration::from_secs(1);
const ENTER: &[u8] = b"\x1b[?1049h";
const LEAVE: &[u8] = b"\x1b[?1049l";
/// Harmless where nothing was changed: cursor visible, plain text, normal keys, no mouse reports, no bracketed paste.
const PLAIN: &str = "\x1b[?25h\x1b[0m\x1b[?1l\x1b>\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?2004l";
const BACK_TO_MAIN: &str = "\x1b[?1049l";

#[derive(Default)]
pub struct Screen {
    /// The last bytes that were printed, because an escape sequence may be split.
    tail: Vec<u8>,
    /// Whether the alternate screen is shown. To leave it when it is not shown would move the cursor.
    alternate: bool,
}

impl Screen {
    pub fn printed(&mut self, bytes: &[u8]) {
        let keep = ENTER.len() - 1;
        self.tail.extend_from_slice(&bytes[..bytes.len().min(keep)]);
        self.look_at_tail();
        self.look(bytes);
        self.tail.extend_from_slice(&bytes[bytes.len().min(keep)..]);
        let excess = self.tail.len().saturating_sub(keep);
        self.tail.drain(..excess);
    }

    fn look_at_tail(&mut self) {
        let tail = std::mem::take(&mut self.tail);
        self.look(&tail);
        self.tail = tail;
    }

    fn look(&mut self, bytes: &[u8]) {
        let last = |sequence: &[u8]| bytes.windows(sequence.len()).rposition(|window| window == sequence);
        match (last(ENTER), last(LEAVE)) {
            (None, None) => {}
            (entered, left) => self.alternate = entered > left,
        }
    }

    pub fn is_alternate(&self) -> bool {
        self.alternate
    }

    /// The escape sequences that restore the screen, and a new line for the next message.
    fn restore_sequence(&self) -> String {
        let back = if self.alternate { BACK_TO_MAIN } else { "" };
        format!("{back}{PLAIN}\r\n")
    }

    pub async fn restore(&self) {
        let mut stdout = tokio::io::stdout();
        let write = async {
            stdout.write_all(self.restore_sequence().as_bytes()).await?;
            stdout.flush().await
        };
        let _ = tokio::time::timeout(RESTORE_TIMEOUT, write).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alternate_after(text: &[u8], size: usize) -> bool {
        let mut screen = Screen::default();
        for piece in text.chunks(size) {
            screen.printed(piece);
        }
        screen.alternate
    }

    #[test]
    fn the_alternate_screen_is_noticed_however_the_output_is_cut() {
        for size in 1..30 {
            assert!(alternate_after(b"ls\r\n\x1b[?1049hvim", size), "{size}");
            assert!(!alternate_after(b"\x1b[?1049hvim\x1b[?1049l$ ", size), "{size}");
            assert!(alternate_after(b"\x1b[?1049h\x1b[?1049l\x1b[?1049h", size), "{size}");
        }
    }

    #[test]
    fn the_main_screen_is_not_left_where_it_was_never_entered() {
        let mut screen = Screen::default();
        screen.printed(b"hello");
        assert!(!screen.restore_sequence().contains(BACK_TO_MAIN));
    }
}

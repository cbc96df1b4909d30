//! Encodes answers as bytes: the events of a stream (`events`, `stream`), files as bodies (`file`) and files as JSON
//! documents (`document`), and what happens meanwhile (`progress`).

mod document;
mod events;
mod file;
mod progress;
mod stream;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

pub use document::file_document;
pub use events::Format;
pub use file::{archive_body, file_body, file_head};
pub use progress::{Told, progress};
pub use stream::{KEEP_ALIVE, stream};

pub fn base64(bytes: Vec<u8>) -> String {
    STANDARD.encode(bytes)
}

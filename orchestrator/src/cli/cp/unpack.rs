//! Unpacks a tar stream from a sandbox into a local directory. The stream is a stranger's: `tar_unpack` says what it refuses.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use tar_unpack::Options;

/// The mode of directories that have no entry of their own. The user's umask applies.
const DIRECTORY_MODE: u32 = 0o777;

/// Makes the directory if it does not exist, and unpacks the whole stream into it. The caller named the directory, so a link
/// there is followed.
pub fn unpack(mut stream: impl Read, directory: &Path) -> io::Result<()> {
    match std::fs::create_dir(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let destination = File::open(directory)?.into();
    let options = Options { directory_mode: DIRECTORY_MODE };
    let on_step = &mut || Ok(());
    tar_unpack::unpack(&mut stream, destination, options, on_step).map(drop).map_err(io::Error::other)
}

#[cfg(test)]
#[path = "unpack_test.rs"]
mod tests;

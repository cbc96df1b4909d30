//! The local side of a copy. Threads that may block read and write files and directories.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tokio::task::{JoinHandle, spawn_blocking};

use super::super::exit::Failure;
use super::super::private::random_hex;
use super::super::progress::{Progress, Visibility};
use super::pipe::{self, PieceReader};
use super::{pack, unpack};
use crate::client::{Body, Download};

/// A thread that reads local files. It returns the names of files that it skipped.
type Reading = JoinHandle<Result<Vec<String>, Failure>>;

/// A request body with the content of a file or of standard input.
pub fn reading(mut from: impl Read + Send + 'static, progress: Progress) -> (Reading, Body) {
    let (mut writer, body) = pipe::body(progress);
    let reading = spawn_blocking(move || {
        let result = pipe::copy(&mut from, &mut writer);
        finish(writer, result).map(|()| Vec::new())
    });
    (reading, body)
}

/// A request body with the content of a directory, as a tar stream.
pub fn packing(directory: PathBuf, progress: Progress) -> (Reading, Body) {
    let (mut writer, body) = pipe::body(progress);
    let packing = spawn_blocking(move || match pack::pack(&directory, &mut writer) {
        Ok(packed) => {
            finish(writer, Ok(()))?;
            Ok(packed.skipped.iter().map(|path| path.display().to_string()).collect())
        }
        Err(error) => finish(writer, Err(error)).map(|()| Vec::new()),
    });
    (packing, body)
}

/// Ends a body. If the other side stopped reading, its answer says why, so that is no error here.
fn finish(writer: pipe::PieceWriter, result: io::Result<()>) -> Result<(), Failure> {
    match writer.finish(result) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure::failed(error.to_string())),
        _ => Ok(()),
    }
}

/// A request body with what comes out of another session.
pub fn relay(mut download: Download, mut progress: Progress) -> Body {
    let (feeder, mut reader) = pipe::reader();
    let (mut writer, body) = pipe::body(Progress::new(Visibility::Hidden, None));
    tokio::spawn(async move { feeder.feed(&mut download, &mut progress).await });
    spawn_blocking(move || {
        let result = pipe::copy(&mut reader, &mut writer);
        writer.finish(result)
    });
    body
}

/// Writes a file. It replaces an existing one only when it is complete. A device or a FIFO is written to directly.
pub async fn write_file(download: Download, to: &Path, mode: u32, progress: Progress) -> Result<(), Failure> {
    // Links are followed, as `cp` does.
    let to = fs::canonicalize(to).unwrap_or_else(|_| to.to_owned());
    let failed = |e: io::Error| Failure::failed(format!("{}: {e}", to.display()));
    if fs::metadata(&to).is_ok_and(|there| !there.is_file()) {
        let file = File::options().write(true).open(&to).map_err(failed)?;
        return receive(download, progress, move |reader| copy(reader, file)).await?.map_err(failed);
    }
    let temporary = Temporary::beside(&to)?;
    let file = File::options().write(true).create_new(true).mode(0o600).open(&temporary.0).map_err(failed)?;
    let filled = receive(download, progress, move |reader| {
        file.set_permissions(fs::Permissions::from_mode(mode))?;
        copy(reader, file)
    });
    filled.await?.map_err(failed)?;
    fs::rename(&temporary.0, &to).map_err(failed)
}

/// Unpacks a directory.
pub async fn write_directory(download: Download, to: PathBuf, progress: Progress) -> Result<(), Failure> {
    let shown = to.display().to_string();
    let unpacked = receive(download, progress, move |reader| unpack::unpack(reader, &to));
    unpacked.await?.map_err(|e| Failure::failed(format!("{shown}: {e}")))
}

fn copy(reader: &mut PieceReader, mut file: File) -> io::Result<()> {
    io::copy(reader, &mut file)?;
    file.flush()
}

/// Feeds a download to a thread that writes it. The inner error is the thread's, the outer one the connection's.
async fn receive(
    mut download: Download,
    mut progress: Progress,
    write: impl FnOnce(&mut PieceReader) -> io::Result<()> + Send + 'static,
) -> Result<io::Result<()>, Failure> {
    let (feeder, mut reader) = pipe::reader();
    let writing = spawn_blocking(move || write(&mut reader));
    let fed = feeder.feed(&mut download, &mut progress).await;
    drop(progress);
    let written = writing.await.map_err(|e| Failure::failed(e.to_string()))?;
    fed?;
    Ok(written)
}

/// A file that is still being written. It is removed when this is dropped, unless it was renamed.
struct Temporary(PathBuf);

impl Temporary {
    fn beside(path: &Path) -> Result<Self, Failure> {
        let name = format!(".cove-{}", random_hex(6)?);
        Ok(Self(path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new(".")).join(name)))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

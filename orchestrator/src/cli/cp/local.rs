//! The local side of a copy: files and directories read and written by threads that may block.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tokio::task::{JoinHandle, spawn_blocking};

use super::super::exit::Failure;
use super::super::private::random_hex;
use super::pipe::{self, PieceReader};
use super::progress::Meter;
use super::{pack, unpack};
use crate::client::{Body, Download};

/// Names of what was passed over.
type Reading = JoinHandle<Result<Vec<String>, Failure>>;

/// A body of what a file or standard input holds.
pub fn reading(mut from: impl Read + Send + 'static, meter: Meter) -> (Reading, Body) {
    let (mut writer, body) = pipe::body(meter);
    let reading = spawn_blocking(move || {
        let result = pipe::copy(&mut from, &mut writer);
        finish(writer, result).map(|()| Vec::new())
    });
    (reading, body)
}

/// A body of a directory's content, as a tar stream.
pub fn packing(directory: PathBuf, meter: Meter) -> (Reading, Body) {
    let (mut writer, body) = pipe::body(meter);
    let packing = spawn_blocking(move || match pack::pack(&directory, &mut writer) {
        Ok(packed) => {
            finish(writer, Ok(()))?;
            Ok(packed.skipped.iter().map(|path| path.display().to_string()).collect())
        }
        Err(error) => finish(writer, Err(error)).map(|()| Vec::new()),
    });
    (packing, body)
}

/// That the other side stopped reading is for it to explain.
fn finish(writer: pipe::PieceWriter, result: io::Result<()>) -> Result<(), Failure> {
    match writer.finish(result) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure::failed(error.to_string())),
        _ => Ok(()),
    }
}

/// From one session into another.
pub fn relay(mut download: Download, mut meter: Meter) -> Body {
    let (feeder, mut reader) = pipe::reader();
    let (mut writer, body) = pipe::body(Meter::new(false, None));
    tokio::spawn(async move { feeder.feed(&mut download, &mut meter).await });
    spawn_blocking(move || {
        let result = pipe::copy(&mut reader, &mut writer);
        writer.finish(result)
    });
    body
}

/// Appears under its name when it is whole; what had the name before stays until then. A device or a FIFO is written into.
pub async fn write_file(download: Download, to: &Path, mode: u32, meter: Meter) -> Result<(), Failure> {
    // Through links, as cp does: the caller named them.
    let to = fs::canonicalize(to).unwrap_or_else(|_| to.to_owned());
    let failed = |e: io::Error| Failure::failed(format!("{}: {e}", to.display()));
    if fs::metadata(&to).is_ok_and(|there| !there.is_file()) {
        let file = File::options().write(true).open(&to).map_err(failed)?;
        return receive(download, meter, move |reader| copy(reader, file)).await?.map_err(failed);
    }
    let temporary = Temporary::beside(&to)?;
    let file = File::options().write(true).create_new(true).mode(0o600).open(&temporary.0).map_err(failed)?;
    let filled = receive(download, meter, move |reader| {
        file.set_permissions(fs::Permissions::from_mode(mode))?;
        copy(reader, file)
    });
    filled.await?.map_err(failed)?;
    fs::rename(&temporary.0, &to).map_err(failed)
}

pub async fn write_directory(download: Download, to: PathBuf, meter: Meter) -> Result<(), Failure> {
    let shown = to.display().to_string();
    let unpacked = receive(download, meter, move |reader| {
        unpack::unpack(&mut *reader, &to)?;
        // What follows the end marker is filling; it still has to arrive.
        io::copy(reader, &mut io::sink()).map(drop)
    });
    unpacked.await?.map_err(|e| Failure::failed(format!("{shown}: {e}")))
}

fn copy(reader: &mut PieceReader, mut file: File) -> io::Result<()> {
    io::copy(reader, &mut file)?;
    file.flush()
}

/// Feeds a thread that writes; its own error is the inner one, that of the connection the outer.
async fn receive(
    mut download: Download,
    mut meter: Meter,
    write: impl FnOnce(&mut PieceReader) -> io::Result<()> + Send + 'static,
) -> Result<io::Result<()>, Failure> {
    let (feeder, mut reader) = pipe::reader();
    let writing = spawn_blocking(move || write(&mut reader));
    let fed = feeder.feed(&mut download, &mut meter).await;
    meter.finish();
    let written = writing.await.map_err(|e| Failure::failed(e.to_string()))?;
    fed?;
    Ok(written)
}

/// A file that is not yet what it will be; gone with this, unless it was renamed.
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

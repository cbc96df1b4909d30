//! `cove image import`: makes an image from a tar archive or a directory, completely or not at all, also if the host loses
//! power: everything is on the disk before the image gets its name, and the name is before the import reports success.
//!
//! This process reads the archive. Another process, whose root is the new directory, unpacks it. So no name, link or `..` in the
//! archive can reach anything outside. If it turns out to be an archive of layers, they go to the store; see `layout`.

use std::fs::File;
use std::io::{self, Read, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Stdio};

use serde::{Deserialize, Serialize};

use super::entries::UnpackLimits;
use super::error::{ImageError, at};
use super::layers::MAX_ENTRIES;
use super::unpack::{Report, Task};
use super::{HIDDEN, is_name, layout, unpacker};
use crate::image_store::ImageStore;

/// How much is read at a time.
const CHUNK_BYTES: usize = 256 << 10;

/// An import has no limit but the disk: whoever runs the command could also copy the files.
const LIMITS: UnpackLimits = UnpackLimits { bytes: u64::MAX, entries: MAX_ENTRIES };

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportSummary {
    pub files: u64,
    pub bytes: u64,
    /// How many devices and FIFOs were left out, because a sandbox has its own.
    pub skipped: u64,
}

/// `source` is a tar file, compressed or not, a directory, or `-` for standard input. `progress` gets the bytes read so far.
pub fn import(
    images_dir: &Path,
    name: &str,
    source: &Path,
    progress: &mut dyn FnMut(u64),
) -> Result<ImportSummary, ImageError> {
    if !is_name(name) {
        return Err(ImageError::Name(name.to_owned()));
    }
    let store = ImageStore::new(images_dir);
    if super::rootfs(images_dir, name).is_some() || store.find(name).is_some_and(|image| image.name == name) {
        return Err(ImageError::Exists(name.to_owned()));
    }
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(images_dir)
        .map_err(at("making the images directory"))?;
    if source.is_dir() && layout::is_layout(source) {
        return layout::import(&store, name, source);
    }
    let staging = Staging::new(images_dir, name).map_err(at("making a directory for the image"))?;
    let summary = unpack(&staging.rootfs(), source, progress)?.summary;
    if layout::is_layout(&staging.rootfs()) {
        return layout::import(&store, name, &staging.rootfs());
    }
    unpacker::run(&staging.rootfs(), &Task::Complete, None).map_err(ImageError::Archive)?;
    let place = images_dir.join(name);
    let directory = File::open(images_dir).map_err(at("opening the images directory"))?;
    // One call for the whole file system: a call for each of many thousand files takes much longer.
    rustix::fs::syncfs(&directory).map_err(|e| at("writing the image to the disk")(e.into()))?;
    std::fs::rename(&staging.0, &place).map_err(at(format!("moving the image to {}", place.display())))?;
    directory.sync_all().map_err(at("writing the images directory to the disk"))?;
    Ok(summary)
}

/// The directory of an import that is not complete. It is removed when this is dropped, unless it was renamed.
struct Staging(PathBuf);

impl Staging {
    fn new(images_dir: &Path, name: &str) -> io::Result<Self> {
        let path = images_dir.join(format!("{HIDDEN}import-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::DirBuilder::new().mode(0o700).create(&path)?;
        std::fs::DirBuilder::new().mode(0o755).create(path.join("rootfs"))?;
        Ok(Self(path))
    }

    fn rootfs(&self) -> PathBuf {
        self.0.join("rootfs")
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn unpack(rootfs: &Path, source: &Path, progress: &mut dyn FnMut(u64)) -> Result<Report, ImageError> {
    let mut child = unpacker::start(rootfs, &Task::Files(LIMITS), Stdio::piped())
        .map_err(at("starting the process that unpacks"))?;
    let fed = match child.stdin.take() {
        Some(stdin) => feed(stdin, source, progress),
        None => Err(at("starting the process that unpacks")(io::ErrorKind::BrokenPipe.into())),
    };
    match (fed, unpacker::finish(child).map_err(ImageError::Archive)) {
        (Ok(()), finished) => finished,
        // The process says why it ended, which is more useful than that the pipe to it broke.
        (Err(ImageError::Io { source, .. }), Err(said)) if source.kind() == io::ErrorKind::BrokenPipe => Err(said),
        (Err(error), _) => Err(error),
    }
}

fn feed(stdin: ChildStdin, source: &Path, progress: &mut dyn FnMut(u64)) -> Result<(), ImageError> {
    let reading = || format!("reading {}", source.display());
    if source == Path::new("-") {
        return copy(&mut io::stdin().lock(), stdin, progress).map_err(at("reading standard input"));
    }
    let metadata = std::fs::metadata(source).map_err(at(reading()))?;
    if metadata.is_dir() {
        let mut archive = tar::Builder::new(Counting { inner: stdin, count: 0, progress });
        archive.follow_symlinks(false);
        archive.append_dir_all(".", source).map_err(at(reading()))?;
        return archive.finish().map_err(at(reading()));
    }
    let mut file = File::open(source).map_err(at(reading()))?;
    copy(&mut file, stdin, progress).map_err(at(reading()))
}

fn copy(from: &mut dyn Read, mut to: ChildStdin, progress: &mut dyn FnMut(u64)) -> io::Result<()> {
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut total = 0;
    loop {
        let count = match from.read(&mut chunk) {
            Ok(0) => return Ok(()),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        to.write_all(&chunk[..count])?;
        total += u64::try_from(count).unwrap_or(0);
        progress(total);
    }
}

struct Counting<'a> {
    inner: ChildStdin,
    count: u64,
    progress: &'a mut dyn FnMut(u64),
}

impl io::Write for Counting<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.inner.write(bytes)?;
        self.count += u64::try_from(count).unwrap_or(0);
        (self.progress)(self.count);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

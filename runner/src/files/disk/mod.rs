//! The disk of a sandbox as one stream: the directories that commands write to, as the daemon keeps them for a snapshot.
//!
//! ```text
//! MAGIC (entry)* end
//! entry      kind, mode, uid, gid, seconds, nanoseconds, path, then by kind:
//!            directory, FIFO: nothing · symbolic link: its text · hard link: the path of the first name
//!            file: its size, (offset, length, bytes)*, and an extent without bytes
//! end        b'E', the number of entries
//! ```
//!
//! Numbers are little-endian. Paths are absolute. Nobody but a runner looks into the stream: it is not a tar, because holes, exact times
//! and hard links would need three dialects of tar. Sockets are left out, because nobody listens to them afterwards.
//!
//! Both directions run as the runner's own user, and while no command runs: all are stopped, or none was started yet.

pub mod pack;
pub mod unpack;

use std::io::{self, Read};

pub const MAGIC: &[u8; 12] = b"cove-disk-1\n";

/// The most bytes of a path or of a link: `tree::MAX_LEVELS` names of 255 bytes, and the path of the directory.
const MAX_PATH: usize = 72 << 10;

/// The most bytes of one extent.
const MAX_EXTENT: usize = super::protocol::MAX_FRAME;

/// What an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Directory,
    File,
    Symlink,
    HardLink,
    Fifo,
}

impl Kind {
    const ALL: [(Self, u8); 5] = [
        (Self::Directory, b'D'),
        (Self::File, b'F'),
        (Self::Symlink, b'L'),
        (Self::HardLink, b'H'),
        (Self::Fifo, b'P'),
    ];

    fn tag(self) -> u8 {
        Self::ALL.into_iter().find(|(kind, _)| *kind == self).map_or(0, |(_, tag)| tag)
    }

    fn of(tag: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|(_, known)| *known == tag).map(|(kind, _)| kind)
    }
}

const END: u8 = b'E';

/// What every entry has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Facts {
    mode: u32,
    uid: u32,
    gid: u32,
    seconds: i64,
    nanoseconds: u32,
}

impl Facts {
    fn to_bytes(self) -> Vec<u8> {
        let Self { mode, uid, gid, seconds, nanoseconds } = self;
        let numbers = [mode, uid, gid].map(u32::to_le_bytes).concat();
        [numbers, seconds.to_le_bytes().to_vec(), nanoseconds.to_le_bytes().to_vec()].concat()
    }

    fn read(from: &mut dyn Read) -> io::Result<Self> {
        Ok(Self {
            mode: read_u32(from)?,
            uid: read_u32(from)?,
            gid: read_u32(from)?,
            seconds: i64::from_le_bytes(read_array(from)?),
            nanoseconds: read_u32(from)?,
        })
    }
}

fn read_array<const N: usize>(from: &mut dyn Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn read_u32(from: &mut dyn Read) -> io::Result<u32> {
    Ok(u32::from_le_bytes(read_array(from)?))
}

fn read_u64(from: &mut dyn Read) -> io::Result<u64> {
    Ok(u64::from_le_bytes(read_array(from)?))
}

/// Reads bytes with their length before them. A length beyond `most` is refused before anything is held.
fn read_bytes(from: &mut dyn Read, most: usize) -> io::Result<Vec<u8>> {
    let length = usize::try_from(read_u32(from)?).map_err(io::Error::other)?;
    if length > most {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("{length} bytes where {most} may be")));
    }
    let mut bytes = vec![0; length];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

//! Writes an empty btrfs into a file, so that the daemon needs no `mkfs.btrfs`.
//!
//! `empty.btrfs` has what `mkfs.btrfs` wrote into a file of 128 MiB, without the zeros; `scripts/empty-btrfs` makes it. The
//! kernel tells file systems apart by their ids, so each new one gets a random id: it goes into the superblocks, and the id
//! that the other blocks have stays there as the "metadata id".

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

/// Pieces of 256 bytes that are not all zero, each after its position, which is a number of such pieces.
const EMPTY: &[u8] = include_bytes!("empty.btrfs");
const PIECE: usize = 256;
const POSITION: usize = 4;

/// The size of the file system in [`EMPTY`], and so the smallest that can be made.
pub const MIN_BYTES: u64 = 128 << 20;

const SUPERBLOCKS: [u64; 2] = [64 << 10, 64 << 20];
const SUPERBLOCK_BYTES: usize = 4096;
/// Where the fields of a superblock are, of which the first is a checksum of what follows its 32 bytes.
const CHECKSUM_BYTES: usize = 32;
const FILESYSTEM_ID: std::ops::Range<usize> = 32..48;
const INCOMPATIBLE_FEATURES: std::ops::Range<usize> = 188..196;
const METADATA_ID: std::ops::Range<usize> = 571..587;
const HAS_METADATA_ID: u64 = 1 << 10;

/// Makes an empty file an empty file system of `bytes`. It has its size only after it was grown to its device.
pub fn format(file: &File, bytes: u64, id: [u8; 16]) -> io::Result<()> {
    if bytes < MIN_BYTES {
        return Err(io::Error::other(format!("it would have less than {} MiB", MIN_BYTES >> 20)));
    }
    file.set_len(bytes)?;
    for piece in EMPTY.chunks_exact(POSITION + PIECE) {
        let (position, content) = piece.split_at(POSITION);
        let position = u32::from_le_bytes(position.try_into().map_err(io::Error::other)?);
        file.write_all_at(content, u64::from(position) * PIECE as u64)?;
    }
    for position in SUPERBLOCKS {
        let mut block = [0; SUPERBLOCK_BYTES];
        file.read_exact_at(&mut block, position)?;
        set_id(&mut block, id)?;
        file.write_all_at(&block, position)?;
    }
    Ok(())
}

fn set_id(block: &mut [u8; SUPERBLOCK_BYTES], id: [u8; 16]) -> io::Result<()> {
    block.copy_within(FILESYSTEM_ID, METADATA_ID.start);
    block[FILESYSTEM_ID].copy_from_slice(&id);
    let features = &mut block[INCOMPATIBLE_FEATURES];
    let number = u64::from_le_bytes((&*features).try_into().map_err(io::Error::other)?);
    features.copy_from_slice(&(number | HAS_METADATA_ID).to_le_bytes());
    let checksum = crc32c(&block[CHECKSUM_BYTES..]);
    block[..4].copy_from_slice(&checksum.to_le_bytes());
    Ok(())
}

/// CRC-32C, as RFC 3720 defines it.
fn crc32c(bytes: &[u8]) -> u32 {
    const POLYNOMIAL: u32 = 0x82f6_3b78;
    let step = |crc: u32, _| if crc & 1 == 1 { (crc >> 1) ^ POLYNOMIAL } else { crc >> 1 };
    !bytes.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), step))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_the_standard() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
    }

    #[test]
    fn a_new_file_system_has_the_id_that_it_was_given_and_superblocks_with_right_checksums() {
        let file = tempfile::tempfile().unwrap();
        format(&file, 1 << 30, [7; 16]).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 1 << 30);
        for position in SUPERBLOCKS {
            let mut block = [0; SUPERBLOCK_BYTES];
            file.read_exact_at(&mut block, position).unwrap();
            assert_eq!(&block[64..72], b"_BHRfS_M");
            assert_eq!(block[FILESYSTEM_ID], [7; 16]);
            assert_ne!(block[METADATA_ID], [0; 16]);
            assert_eq!(block[..4], crc32c(&block[CHECKSUM_BYTES..]).to_le_bytes());
        }
    }

    #[test]
    fn a_file_that_is_too_small_is_refused() {
        assert!(format(&tempfile::tempfile().unwrap(), MIN_BYTES - 1, [0; 16]).is_err());
    }
}

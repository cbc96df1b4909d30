//! User ids of a sandbox: which ids inside map to which ids on the host. Pure.
//!
//! A root daemon gives each sandbox a block of 65,536 ids that no other process on the host uses, so a sandbox shares no
//! user with another sandbox or with the host. The daemon of an ordinary user can only map that user and their subordinate
//! ids.

use serde::{Deserialize, Serialize};
use shared_protocol::SANDBOX_USER;

/// One line of `/proc/PID/uid_map`: `count` ids from `inside` on map to the ids from `outside` on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdRange {
    pub inside: u32,
    pub outside: u32,
    pub count: u32,
}

/// How many ids one sandbox has.
pub const BLOCK: u32 = 65_536;

/// The first id of the first block: above the ids that distributions, `useradd`, `/etc/subuid` and container managers use.
const FIRST_BLOCK: u32 = 0x7000_0000;

/// How many blocks there are, and so how many sandboxes can exist on a host. The last block ends below the sign bit.
pub const BLOCKS: u32 = 4_095;

/// The first id of a block.
pub fn block_base(block: u32) -> u32 {
    FIRST_BLOCK + (block % BLOCKS) * BLOCK
}

/// Maps the ids from 0 on to a whole block.
pub fn block_map(block: u32) -> Vec<IdRange> {
    vec![IdRange { inside: 0, outside: block_base(block), count: BLOCK }]
}

/// The map of an idmapped mount where a file that belongs to id N on disk belongs to id N inside.
pub fn same_inside(block: u32) -> Vec<IdRange> {
    block_map(block)
}

/// The same as [`same_inside`], but root's files on disk belong to the sandbox user inside, who may therefore write to the
/// root.
pub fn root_is_user(block: u32) -> Vec<IdRange> {
    let base = block_base(block);
    vec![
        IdRange { inside: 0, outside: base + SANDBOX_USER, count: 1 },
        IdRange { inside: 1, outside: base + 1, count: SANDBOX_USER - 1 },
        IdRange { inside: SANDBOX_USER, outside: base, count: 1 },
        IdRange { inside: SANDBOX_USER + 1, outside: base + SANDBOX_USER + 1, count: BLOCK - SANDBOX_USER - 1 },
    ]
}

/// The host's id of the sandbox user in every sandbox with a workspace, if the file system has no idmapped mounts. It comes
/// after the last block.
pub const SHARED_USER: u32 = FIRST_BLOCK + BLOCKS * BLOCK + SANDBOX_USER;

/// Maps a whole block, except that the sandbox's user is [`SHARED_USER`].
pub fn block_map_with_shared_user(block: u32) -> Vec<IdRange> {
    let base = block_base(block);
    let after = SANDBOX_USER + 1;
    vec![
        IdRange { inside: 0, outside: base, count: SANDBOX_USER },
        IdRange { inside: SANDBOX_USER, outside: SHARED_USER, count: 1 },
        IdRange { inside: after, outside: base + after, count: BLOCK - after },
    ]
}

/// The map for an ordinary user without subordinate ids: the sandbox's user is the only user inside.
pub fn self_map(own: u32) -> Vec<IdRange> {
    vec![IdRange { inside: SANDBOX_USER, outside: own, count: 1 }]
}

/// The map for an ordinary user with subordinate ids: that user is the sandbox's user, and the range is everyone else.
pub fn subordinate_map(own: u32, first: u32, count: u32) -> Vec<IdRange> {
    let below = SANDBOX_USER.min(count);
    let above = count.saturating_sub(below).min(BLOCK - SANDBOX_USER - 1);
    let mut map = vec![
        IdRange { inside: 0, outside: first, count: below },
        IdRange { inside: SANDBOX_USER, outside: own, count: 1 },
    ];
    if above > 0 {
        map.push(IdRange { inside: SANDBOX_USER + 1, outside: first + below, count: above });
    }
    map
}

/// The content of a `uid_map` or `gid_map` file.
pub fn lines(map: &[IdRange]) -> String {
    map.iter().map(|range| format!("{} {} {}\n", range.inside, range.outside, range.count)).collect()
}

/// The first range that a file in the format of `/etc/subuid` gives to a user, by name or number.
pub fn subordinate_range(file: &str, name: &str, uid: u32) -> Option<(u32, u32)> {
    file.lines().find_map(|line| {
        let mut fields = line.trim().split(':');
        let owner = fields.next()?;
        let first = fields.next()?.parse().ok()?;
        let count: u32 = fields.next()?.parse().ok()?;
        let ours = owner == name || owner.parse() == Ok(uid);
        (ours && count > SANDBOX_USER).then_some((first, count))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_do_not_overlap_and_stay_below_the_sign_bit() {
        for block in 0..BLOCKS {
            assert!(block_base(block) >= FIRST_BLOCK);
            assert!(u64::from(block_base(block)) + u64::from(BLOCK) <= 0x8000_0000);
        }
        assert_eq!(block_base(1) - block_base(0), BLOCK);
    }

    #[test]
    fn in_a_writable_root_every_id_is_mapped_once() {
        let map = root_is_user(3);
        let mut seen = vec![0; BLOCK as usize];
        for range in &map {
            for n in 0..range.count {
                seen[(range.outside + n - block_base(3)) as usize] += 1;
            }
        }
        assert!(seen.iter().all(|n| *n == 1));
        assert_eq!(map[0].outside, block_base(3) + SANDBOX_USER);
    }

    #[test]
    fn a_subordinate_range_is_found_by_name_or_number_and_must_be_large_enough() {
        let file = "alice:100000:65536\n1001:200000:65536\nbob:1:10\nbroken\n";
        assert_eq!(subordinate_range(file, "alice", 5), Some((100_000, 65_536)));
        assert_eq!(subordinate_range(file, "carol", 1001), Some((200_000, 65_536)));
        assert_eq!(subordinate_range(file, "bob", 7), None);
    }

    #[test]
    fn a_subordinate_map_gives_the_user_himself_to_commands() {
        let map = subordinate_map(501, 100_000, 65_536);
        assert_eq!(lines(&map), "0 100000 1000\n1000 501 1\n1001 101000 64535\n");
    }
}

//! Users of a sandbox: which numbers inside stand for which outside.
//!
//! A root daemon gives each sandbox a range of 65,536 ids that no other process of the host has, so that two sandboxes are
//! strangers to each other and to every user of the host. An ordinary user can give only what he has.

use serde::{Deserialize, Serialize};

/// `count` ids from `inside` on are those from `outside` on, as in `/proc/PID/uid_map`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdRange {
    pub inside: u32,
    pub outside: u32,
    pub count: u32,
}

/// Commands run as this user inside, on every runtime.
pub use crate::runtime::policy::SANDBOX_USER;

/// Ids of one sandbox.
pub const BLOCK: u32 = 65_536;

/// Above what distributions, `useradd`, `/etc/subuid` and container managers give out, and below the sign bit.
const FIRST_BLOCK: u32 = 0x7000_0000;

/// How many sandboxes a host can tell apart.
pub const BLOCKS: u32 = 4_095;

/// The first id of a block.
pub fn block_base(block: u32) -> u32 {
    FIRST_BLOCK + (block % BLOCKS) * BLOCK
}

/// The whole block, inside from 0 on.
pub fn block_map(block: u32) -> Vec<IdRange> {
    vec![IdRange { inside: 0, outside: block_base(block), count: BLOCK }]
}

/// The map of an idmapped mount that shows files of the on-disk users 0 to 65,535 as those of the sandbox.
pub fn same_inside(block: u32) -> Vec<IdRange> {
    block_map(block)
}

/// As [`same_inside`], but what belongs to root on disk belongs to the sandbox's user inside: a root that he may write to.
pub fn root_is_user(block: u32) -> Vec<IdRange> {
    let base = block_base(block);
    vec![
        IdRange { inside: 0, outside: base + SANDBOX_USER, count: 1 },
        IdRange { inside: 1, outside: base + 1, count: SANDBOX_USER - 1 },
        IdRange { inside: SANDBOX_USER, outside: base, count: 1 },
        IdRange { inside: SANDBOX_USER + 1, outside: base + SANDBOX_USER + 1, count: BLOCK - SANDBOX_USER - 1 },
    ]
}

/// The sandbox's user of every sandbox that mounts a workspace, where mounts cannot show owners through a mapping. Behind the
/// last block.
pub const SHARED_USER: u32 = FIRST_BLOCK + BLOCKS * BLOCK + SANDBOX_USER;

/// The whole block but for that user.
pub fn block_map_with_shared_user(block: u32) -> Vec<IdRange> {
    let base = block_base(block);
    let after = SANDBOX_USER + 1;
    vec![
        IdRange { inside: 0, outside: base, count: SANDBOX_USER },
        IdRange { inside: SANDBOX_USER, outside: SHARED_USER, count: 1 },
        IdRange { inside: after, outside: base + after, count: BLOCK - after },
    ]
}

/// An ordinary user who has nothing else: inside he is the sandbox's user, and there is no other.
pub fn self_map(own: u32) -> Vec<IdRange> {
    vec![IdRange { inside: SANDBOX_USER, outside: own, count: 1 }]
}

/// An ordinary user with a subordinate range: inside he is the sandbox's user, and the range is everyone else.
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

/// The lines of a map file.
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

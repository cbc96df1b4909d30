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

/// The map of a sandbox's disk: as [`same_inside`], and the id after the block stands for the host's root, who makes the first
/// directories.
pub fn disk_map(block: u32) -> Vec<IdRange> {
    let mut map = same_inside(block);
    map.push(IdRange { inside: BLOCK, outside: 0, count: 1 });
    map
}

/// The same as [`same_inside`], but root's files on disk belong to the sandbox user inside, who may therefore write to the
/// root.
pub fn root_is_user(block: u32) -> Vec<IdRange> {
    swapped(block, 0, SANDBOX_USER)
}

/// The same as [`same_inside`], but two ids change places: a file that belongs to one of them on disk belongs to the other one inside.
pub fn swapped(block: u32, one: u32, other: u32) -> Vec<IdRange> {
    let (low, high) = (one.min(other), one.max(other));
    if low == high {
        return same_inside(block);
    }
    let base = block_base(block);
    let range = |inside, to, count| IdRange { inside, outside: base + to, count };
    let all = [
        range(0, 0, low),
        range(low, high, 1),
        range(low + 1, low + 1, high - low - 1),
        range(high, low, 1),
        range(high + 1, high + 1, BLOCK - high - 1),
    ];
    all.into_iter().filter(|range| range.count > 0).collect()
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

/// The map of a sandbox whose commands are root: the runner is the last id of the block, and everyone else is one id further than for the
/// commands, whose own map is [`commands_map`]. So a file that belongs to id N on disk belongs to N for them too, as in every sandbox.
pub fn block_map_of_root(block: u32) -> Vec<IdRange> {
    let base = block_base(block);
    vec![
        IdRange { inside: 0, outside: base + RUNNER_BESIDE_ROOT, count: 1 },
        IdRange { inside: 1, outside: base, count: RUNNER_BESIDE_ROOT },
    ]
}

/// The id of a block that stands for the runner in a sandbox whose commands are root. No distribution gives it to anybody: it means
/// "no id" to old programs.
pub const RUNNER_BESIDE_ROOT: u32 = BLOCK - 1;

/// The same for an ordinary user with subordinate ids: that user is the commands' root, so that what root makes belongs to the user.
pub fn subordinate_map_of_root(own: u32, first: u32, count: u32) -> Vec<IdRange> {
    vec![
        IdRange { inside: 0, outside: first, count: 1 },
        IdRange { inside: 1, outside: own, count: 1 },
        IdRange { inside: 2, outside: first + 1, count: count.min(BLOCK) - 1 },
    ]
}

/// The map of the namespace in which commands are root, below a sandbox with the map `sandbox`: everyone but the runner. The kernel wants a
/// line of its own for each of the sandbox's.
pub fn commands_map(sandbox: &[IdRange]) -> Vec<IdRange> {
    let others = sandbox.iter().filter(|range| range.inside >= COMMANDS_ROOT);
    others
        .map(|range| IdRange { inside: range.inside - COMMANDS_ROOT, outside: range.inside, count: range.count })
        .collect()
}

/// The id by which the runner knows the commands' root.
pub const COMMANDS_ROOT: u32 = 1;

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
        for map in [root_is_user(3), swapped(3, 1, 1), swapped(3, 999, 1000), swapped(3, 33, BLOCK - 1)] {
            every_id_is_there_once(&map);
        }
        assert_eq!(root_is_user(3)[0].outside, block_base(3) + SANDBOX_USER);
        let map = swapped(3, 1000, 33);
        let seen = [33, 1000, 0, 34].map(|id| outside(&map, id).map(|id| id - block_base(3)));
        assert_eq!(seen, [Some(1000), Some(33), Some(0), Some(34)]);
    }

    fn every_id_is_there_once(map: &[IdRange]) {
        let mut seen = vec![0; BLOCK as usize];
        for range in map {
            for n in 0..range.count {
                seen[(range.outside + n - block_base(3)) as usize] += 1;
            }
        }
        assert!(seen.iter().all(|n| *n == 1));
    }

    /// The host's id of an id in a map, if it is in there.
    fn outside(map: &[IdRange], id: u32) -> Option<u32> {
        let found = map.iter().find(|range| (range.inside..range.inside + range.count).contains(&id));
        found.map(|range| range.outside + (id - range.inside))
    }

    #[test]
    fn commands_that_are_root_have_every_id_of_their_sandbox_but_the_runners() {
        for sandbox in [block_map_of_root(3), subordinate_map_of_root(501, 100_000, 65_536)] {
            let commands = commands_map(&sandbox);
            let runner = outside(&sandbox, 0).unwrap();
            let ids: Vec<u32> = (0..BLOCK)
                .filter_map(|id| outside(&commands, id))
                .map(|id| outside(&sandbox, id).expect("each id of the commands is one of the sandbox"))
                .collect();
            assert!(!ids.contains(&runner));
            let all: u32 = sandbox.iter().map(|range| range.count).sum();
            assert_eq!(ids.len(), all as usize - 1);
            // Debian's group of `nobody` is the highest that packages use.
            assert!(ids.len() > 65_534);
        }
        let (sandbox, on_disk) = (block_map_of_root(3), same_inside(3));
        for id in [0, 1, SANDBOX_USER, 65_534] {
            let seen = outside(&commands_map(&sandbox), id).and_then(|id| outside(&sandbox, id));
            assert_eq!(seen, outside(&on_disk, id), "a file on disk has the owner that commands gave it");
        }
        // The kernel refuses a line that crosses two of the sandbox's.
        assert_eq!(lines(&commands_map(&subordinate_map_of_root(501, 100_000, 65_536))), "0 1 1\n1 2 65535\n");
        let own = outside(&commands_map(&subordinate_map_of_root(501, 100_000, 65_536)), 0);
        assert_eq!(own, Some(COMMANDS_ROOT));
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

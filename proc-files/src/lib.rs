//! The files of `/proc` that show a sandbox its own limits: which there are, what is in them, and the messages of FUSE by which the
//! kernel reads them.
//!
//! The daemon's launcher mounts them, and the runner inside answers whoever reads them. Both use what is here, so that they agree. This crate
//! does no I/O: messages and values come in as bytes and numbers, and go out as bytes.
//!
//! Each file is a file system of its own, whose root is no directory but the file. So there are no names to look up: the file can be mounted
//! while nobody answers yet.

pub mod load;
pub mod text;
pub mod wire;

/// A file whose content is made when it is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ProcFile {
    Meminfo,
    Stat,
    Loadavg,
}

impl ProcFile {
    /// All files, in the order in which the runner is given their connections.
    pub const ALL: [Self; 3] = [Self::Meminfo, Self::Stat, Self::Loadavg];

    pub fn path(self) -> &'static str {
        match self {
            Self::Meminfo => "/proc/meminfo",
            Self::Stat => "/proc/stat",
            Self::Loadavg => "/proc/loadavg",
        }
    }
}

/// The number of processors that a program with a quota can use at once: a part of one counts as one. At most those of the host, and
/// at least one.
pub fn processors(quota_usec: u64, period_usec: u64, host: usize) -> usize {
    let wanted = quota_usec.div_ceil(period_usec.max(1));
    usize::try_from(wanted).unwrap_or(usize::MAX).clamp(1, host.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_processor_counts_as_one_and_the_host_has_the_last_word() {
        assert_eq!(processors(1_000, 100_000, 8), 1);
        assert_eq!(processors(100_000, 100_000, 8), 1);
        assert_eq!(processors(150_000, 100_000, 8), 2);
        assert_eq!(processors(1_600_000, 100_000, 8), 8);
        assert_eq!(processors(0, 0, 0), 1);
    }
}

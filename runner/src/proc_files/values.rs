//! Reads what the files are made from: the sandbox's cgroup as the sandbox sees it, of version 2 or 1, and its processes.

use std::io;
use std::path::Path;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use proc_files::load::LoadAverage;
use proc_files::text::{self, CpuTime, MemoryUse, Processes, StatValues};
use proc_files::{ProcFile, processors};

use crate::sys::{proc, sched};

const CGROUP: &str = "/sys/fs/cgroup";

/// The unit of `cpuacct.stat`.
const USEC_PER_TICK: u64 = 10_000;
const NSEC_PER_USEC: u64 = 1_000;

/// The most processes that are looked at for the number that run.
const MAX_PROCESSES: usize = 1024;

pub struct Values {
    began: Instant,
    boot_time: u64,
    host_memory: u64,
    host_processors: usize,
    load: LoadAverage,
    is_v2: bool,
}

impl Values {
    pub fn new() -> Self {
        let uptime = nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME).map_or(0, |time| time.tv_sec());
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        Self {
            began: Instant::now(),
            boot_time: now.saturating_sub(u64::try_from(uptime).unwrap_or(0)),
            host_memory: sched::host_memory_bytes(),
            host_processors: sched::usable_processors(),
            load: LoadAverage::default(),
            is_v2: Path::new(CGROUP).join("memory.current").exists(),
        }
    }

    pub fn text(&mut self, file: ProcFile) -> io::Result<String> {
        match file {
            ProcFile::Meminfo => Ok(text::meminfo(&self.memory()?)),
            ProcFile::Stat => Ok(text::stat(&StatValues {
                processors: self.processors(),
                time: self.cpu_time()?,
                age: self.began.elapsed(),
                boot_time: self.boot_time,
                processes: processes()?,
            })),
            ProcFile::Loadavg => {
                let time = self.cpu_time()?;
                let busy = time.user_usec + time.system_usec + time.throttled_usec;
                let averages = self.load.update(self.began.elapsed(), busy);
                Ok(text::loadavg(averages, processes()?))
            }
        }
    }

    fn memory(&self) -> io::Result<MemoryUse> {
        if self.is_v2 {
            let stat = Keyed(read("memory.stat")?);
            return Ok(MemoryUse {
                limit: self.bounded(&read("memory.max")?),
                used: number(&read("memory.current")?)?,
                ..memory_of_v2(&stat)
            });
        }
        let stat = Keyed(read("memory/memory.stat")?);
        let kernel = read("memory/memory.kmem.usage_in_bytes").and_then(|text| number(&text)).unwrap_or(0);
        Ok(MemoryUse {
            limit: self.bounded(&read("memory/memory.limit_in_bytes")?),
            used: number(&read("memory/memory.usage_in_bytes")?)?,
            ..memory_of_v1(&stat, kernel)
        })
    }

    /// A limit in bytes. No limit, and one that is more than the host has, is what the host has.
    fn bounded(&self, limit: &str) -> u64 {
        limit.trim().parse().unwrap_or(u64::MAX).min(self.host_memory)
    }

    fn processors(&self) -> usize {
        let quota = if self.is_v2 {
            read("cpu.max").ok().and_then(|text| {
                let (quota, period) = text.trim().split_once(' ')?;
                Some((quota.parse().ok()?, period.parse().ok()?))
            })
        } else {
            // -1, which is no number of microseconds, means that there is no quota.
            let of = |name: &str| read(name).ok()?.trim().parse().ok();
            of("cpu/cpu.cfs_quota_us").zip(of("cpu/cpu.cfs_period_us"))
        };
        quota.map_or(self.host_processors, |(quota, period)| processors(quota, period, self.host_processors))
    }

    fn cpu_time(&self) -> io::Result<CpuTime> {
        if self.is_v2 {
            let stat = Keyed(read("cpu.stat")?);
            return Ok(CpuTime {
                user_usec: stat.get("user_usec"),
                system_usec: stat.get("system_usec"),
                throttled_usec: stat.get("throttled_usec"),
            });
        }
        let stat = Keyed(read("cpuacct/cpuacct.stat")?);
        let throttled = read("cpu/cpu.stat").map_or(0, |text| Keyed(text).get("throttled_time"));
        Ok(CpuTime {
            user_usec: stat.get("user") * USEC_PER_TICK,
            system_usec: stat.get("system") * USEC_PER_TICK,
            throttled_usec: throttled / NSEC_PER_USEC,
        })
    }
}

fn memory_of_v2(stat: &Keyed) -> MemoryUse {
    MemoryUse {
        cached: stat.get("file"),
        active_anon: stat.get("active_anon"),
        inactive_anon: stat.get("inactive_anon"),
        active_file: stat.get("active_file"),
        inactive_file: stat.get("inactive_file"),
        unevictable: stat.get("unevictable"),
        anon: stat.get("anon"),
        shmem: stat.get("shmem"),
        mapped: stat.get("file_mapped"),
        dirty: stat.get("file_dirty"),
        writeback: stat.get("file_writeback"),
        slab_reclaimable: stat.get("slab_reclaimable"),
        slab_unreclaimable: stat.get("slab_unreclaimable"),
        kernel_stack: stat.get("kernel_stack"),
        page_tables: stat.get("pagetables"),
        ..MemoryUse::default()
    }
}

/// Version 1 has one number for all memory of the kernel. It is shown as memory that cannot be taken back.
fn memory_of_v1(stat: &Keyed, kernel: u64) -> MemoryUse {
    MemoryUse {
        cached: stat.get("total_cache"),
        active_anon: stat.get("total_active_anon"),
        inactive_anon: stat.get("total_inactive_anon"),
        active_file: stat.get("total_active_file"),
        inactive_file: stat.get("total_inactive_file"),
        unevictable: stat.get("total_unevictable"),
        anon: stat.get("total_rss"),
        shmem: stat.get("total_shmem"),
        mapped: stat.get("total_mapped_file"),
        dirty: stat.get("total_dirty"),
        writeback: stat.get("total_writeback"),
        slab_unreclaimable: kernel,
        ..MemoryUse::default()
    }
}

/// The processes of the sandbox. The runner answers them, so it is not one that runs; the reader is, and waits meanwhile.
fn processes() -> io::Result<Processes> {
    let mut found = Processes { running: 1, ..Processes::default() };
    let pids = proc::pids()?;
    found.total = pids.len();
    found.last = pids.iter().copied().max().unwrap_or(0);
    for pid in pids.into_iter().filter(|pid| *pid != 1).take(MAX_PROCESSES) {
        match proc::stat(pid).map(|stat| stat.state) {
            Some(b'R') => found.running += 1,
            Some(b'D') => found.blocked += 1,
            _ => {}
        }
    }
    Ok(found)
}

fn read(name: &str) -> io::Result<String> {
    std::fs::read_to_string(Path::new(CGROUP).join(name))
}

fn number(text: &str) -> io::Result<u64> {
    text.trim().parse().map_err(io::Error::other)
}

/// A file of `name value` lines. A name that the kernel does not have counts 0.
struct Keyed(String);

impl Keyed {
    fn get(&self, name: &str) -> u64 {
        let value = self.0.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok());
        value.unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_not_found_in_a_longer_one() {
        let stat = Keyed("file_mapped 7\nfile 9\ntotal_cache 11\n".into());
        assert_eq!((stat.get("file"), stat.get("cache"), stat.get("file_mapped")), (9, 0, 7));
    }

    #[test]
    fn both_versions_tell_the_same() {
        let v2 = "anon 1\nfile 2\nshmem 3\nfile_mapped 4\nfile_dirty 5\nfile_writeback 6\ninactive_anon 7\nactive_anon 8\n\
                  inactive_file 9\nactive_file 10\nunevictable 11\n";
        let v1 = "total_rss 1\ntotal_cache 2\ntotal_shmem 3\ntotal_mapped_file 4\ntotal_dirty 5\ntotal_writeback 6\n\
                  total_inactive_anon 7\ntotal_active_anon 8\ntotal_inactive_file 9\ntotal_active_file 10\ntotal_unevictable 11\n";
        assert_eq!(memory_of_v2(&Keyed(v2.into())), memory_of_v1(&Keyed(v1.into()), 0));
        assert_eq!(memory_of_v2(&Keyed(v2.into())).active_file, 10);
    }
}

//! Decides where the disks of sandboxes are, from what the host has. Pure.

use crate::config::DiskSetting;

/// What a disk can be on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    /// Subvolumes of the file system that the data directory is on.
    Btrfs,
    /// Subvolumes of a file system of the daemon's own, in the file `disks.img`.
    Loop,
}

/// What the host has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostDisks {
    pub is_root: bool,
    /// Whether the kernel has idmapped mounts of btrfs (Linux 5.15).
    pub is_new_kernel: bool,
    /// Whether the kernel has btrfs, as far as it says without loading a module.
    pub has_btrfs: bool,
    pub has_loop_devices: bool,
    pub data_dir: DataDirKind,
}

/// The file system of the data directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DataDirKind {
    BtrfsWithQuotas,
    BtrfsWithoutQuotas,
    /// What is written there is memory, and no cgroup of a sandbox counts it.
    Memory,
    Other,
}

/// What the daemon uses, or why files stay in memory.
pub type Choice = Result<Backend, String>;

/// What the setting and the host lead to. An error says why a backend cannot be used, and what to do about it.
pub fn choose(setting: DiskSetting, host: &HostDisks) -> Choice {
    match setting {
        DiskSetting::Tmpfs => Err("the setting local.disk is tmpfs".into()),
        DiskSetting::Btrfs => shared_reasons(host).and_then(|()| own_subvolumes(host)).map(|()| Backend::Btrfs),
        DiskSetting::Loop => shared_reasons(host).and_then(|()| own_image(host)).map(|()| Backend::Loop),
        DiskSetting::Auto => {
            shared_reasons(host)?;
            own_subvolumes(host).map(|()| Backend::Btrfs).or_else(|_| own_image(host).map(|()| Backend::Loop))
        }
    }
}

/// What both backends need.
fn shared_reasons(host: &HostDisks) -> Result<(), String> {
    if !host.is_root {
        return Err("only a daemon that runs as root can mount disks".into());
    }
    if !host.is_new_kernel {
        return Err("disks on btrfs need Linux 5.15 or newer".into());
    }
    if !host.has_btrfs {
        return Err("the kernel has no btrfs: load the module btrfs".into());
    }
    Ok(())
}

fn own_subvolumes(host: &HostDisks) -> Result<(), String> {
    match host.data_dir {
        DataDirKind::BtrfsWithQuotas => Ok(()),
        DataDirKind::BtrfsWithoutQuotas => {
            Err("the data directory's btrfs has no quotas: turn them on with btrfs quota enable".into())
        }
        DataDirKind::Memory | DataDirKind::Other => Err("the data directory is not on btrfs".into()),
    }
}

fn own_image(host: &HostDisks) -> Result<(), String> {
    if host.data_dir == DataDirKind::Memory {
        return Err("the data directory is itself in memory".into());
    }
    if !host.has_loop_devices {
        return Err("there is no /dev/loop-control: load the module loop".into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: HostDisks = HostDisks {
        is_root: true,
        is_new_kernel: true,
        has_btrfs: true,
        has_loop_devices: true,
        data_dir: DataDirKind::Other,
    };

    #[test]
    fn a_host_with_everything_uses_its_own_btrfs_and_any_other_an_image() {
        use DataDirKind::{BtrfsWithQuotas, BtrfsWithoutQuotas, Other};
        let choice = |data_dir| choose(DiskSetting::Auto, &HostDisks { data_dir, ..HOST });
        assert_eq!(choice(BtrfsWithQuotas), Ok(Backend::Btrfs));
        assert_eq!(choice(BtrfsWithoutQuotas), Ok(Backend::Loop));
        assert_eq!(choice(Other), Ok(Backend::Loop));
    }

    #[test]
    fn what_is_missing_is_said_and_then_files_stay_in_memory() {
        for (host, why) in [
            (HostDisks { is_root: false, ..HOST }, "root"),
            (HostDisks { is_new_kernel: false, ..HOST }, "5.15"),
            (HostDisks { has_btrfs: false, ..HOST }, "module btrfs"),
            (HostDisks { has_loop_devices: false, ..HOST }, "loop-control"),
            (HostDisks { data_dir: DataDirKind::Memory, ..HOST }, "in memory"),
        ] {
            let refused = choose(DiskSetting::Auto, &host).unwrap_err();
            assert!(refused.contains(why), "{refused}");
        }
    }

    #[test]
    fn a_setting_counts_whatever_else_the_host_has() {
        let with_btrfs = HostDisks { data_dir: DataDirKind::BtrfsWithQuotas, ..HOST };
        assert!(choose(DiskSetting::Tmpfs, &with_btrfs).is_err());
        assert_eq!(choose(DiskSetting::Loop, &with_btrfs), Ok(Backend::Loop));
        assert_eq!(choose(DiskSetting::Btrfs, &with_btrfs), Ok(Backend::Btrfs));
        assert!(choose(DiskSetting::Btrfs, &HOST).unwrap_err().contains("not on btrfs"));
        let without = HostDisks { data_dir: DataDirKind::BtrfsWithoutQuotas, ..HOST };
        assert!(choose(DiskSetting::Btrfs, &without).unwrap_err().contains("btrfs quota enable"));
    }
}

//! Archives that no honest tar program writes.

use tar::{EntryType, Header};

/// Appends one entry exactly as given, whatever its name is.
pub fn entry(archive: &mut Vec<u8>, kind: EntryType, name: &str, link: &str, content: &[u8]) {
    let mut header = Header::new_gnu();
    let fields = header.as_gnu_mut().expect("it was made so");
    fields.name[..name.len()].copy_from_slice(name.as_bytes());
    fields.linkname[..link.len()].copy_from_slice(link.as_bytes());
    header.set_entry_type(kind);
    header.set_mode(if kind.is_dir() { 0o755 } else { 0o644 });
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(1_000_000_000);
    header.set_size(u64::try_from(content.len()).expect("small"));
    if kind.is_character_special() || kind.is_block_special() {
        header.set_device_major(1).expect("a number");
        header.set_device_minor(5).expect("a number");
    }
    header.set_cksum();
    archive.extend_from_slice(header.as_bytes());
    archive.extend_from_slice(content);
    archive.resize(archive.len().next_multiple_of(512), 0);
}

pub fn end(archive: &mut Vec<u8>) {
    archive.resize(archive.len() + 1024, 0);
}

/// The hostile archives by name. Each tries to write `escaped` outside of the target directory, or contains something
/// forbidden.
pub fn hostile() -> Vec<(&'static str, Vec<u8>)> {
    let one = |kind, name: &str, link: &str| {
        let mut archive = Vec::new();
        entry(&mut archive, kind, name, link, if kind.is_file() { b"escaped" } else { b"" });
        archive
    };
    let two = |link_kind, name: &str, target: &str, through: &str| {
        let mut archive = one(link_kind, name, target);
        entry(&mut archive, EntryType::Regular, through, "", b"escaped");
        archive
    };
    let file = EntryType::Regular;
    let mut all = vec![
        ("dots", one(file, "../escaped", "")),
        ("dots inside", one(file, "a/../../escaped", "")),
        ("many dots", one(file, "../../../../../../../../tmp/escaped", "")),
        ("absolute", one(file, "/tmp/escaped", "")),
        ("absolute dots", one(file, "/../../tmp/escaped", "")),
        ("through a link up", two(EntryType::Symlink, "up", "..", "up/escaped")),
        ("through an absolute link", two(EntryType::Symlink, "tmp", "/tmp", "tmp/escaped")),
        ("over a link", two(EntryType::Symlink, "x", "/tmp/escaped", "x")),
        ("over a link up", two(EntryType::Symlink, "x", "../escaped", "x")),
        ("a hard link to a secret", one(EntryType::Link, "stolen", "/etc/shadow")),
        ("a hard link up", one(EntryType::Link, "stolen", "../victim")),
        ("through a hard link", two(EntryType::Link, "x", "../victim", "x")),
        ("a character device", one(EntryType::Char, "device", "")),
        ("a block device", one(EntryType::Block, "device", "")),
        ("a FIFO", one(EntryType::Fifo, "fifo", "")),
    ];
    all.iter_mut().for_each(|(_, archive)| end(archive));
    all
}

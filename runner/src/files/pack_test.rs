//! Tests of packing: the `tar` crate reads what this code packs.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;

use super::*;
use crate::files::Job;
use crate::files::fixture::Fixture;
use crate::files::protocol::HelperResult;

fn packed(fixture: &Fixture) -> Vec<u8> {
    let (outcome, data) = fixture.run(&Job::Pack { path: b".".to_vec() });
    assert!(matches!(outcome, HelperResult::Done(_)), "{outcome:?}");
    data.unwrap()
}

#[test]
fn a_directory_is_packed_with_long_names_odd_bytes_and_links() {
    let fixture = Fixture::new();
    let long = format!("{}/{}", "n".repeat(120), "m".repeat(200));
    fixture.file(&long, b"deep");
    fixture.file("a", &[7; 1000]);
    let exactly = "e".repeat(SHORT_NAME);
    fixture.file(&exactly, b"");
    fixture.link("./a//b/", "link");
    fixture.link("t".repeat(300), "long-link");
    std::fs::write(fixture.workspace().join(std::ffi::OsStr::from_bytes(b"caf\xe9")), b"!").unwrap();
    nix::unistd::mkfifo(&fixture.workspace().join("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();

    let bytes = packed(&fixture);
    let mut archive = tar::Archive::new(bytes.as_slice());
    let mut found = BTreeMap::new();
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        let mut content = Vec::new();
        entry.read_to_end(&mut content).unwrap();
        assert_eq!((entry.header().uid().unwrap(), entry.header().gid().unwrap()), (0, 0));
        let link = entry.link_name_bytes().map(|l| l.into_owned());
        found.insert(entry.path_bytes().into_owned(), (entry.header().entry_type(), content, link));
    }
    assert_eq!(found[long.as_bytes()].1, b"deep");
    assert_eq!(found[&b"a"[..]].1, [7; 1000]);
    assert_eq!(found[exactly.as_bytes()].0, EntryType::Regular);
    assert_eq!(found[&b"caf\xe9"[..]].1, b"!");
    assert_eq!(found[&b"link"[..]].2.as_deref(), Some(&b"./a//b/"[..]), "a link's text is kept to the byte");
    assert_eq!(found[&b"long-link"[..]].2.as_deref(), Some("t".repeat(300).as_bytes()));
    assert!(!found.contains_key(&b"fifo"[..]));
    assert_eq!(found.len(), 7, "{:?}", found.keys());
}

#[test]
fn a_file_that_changed_size_does_not_shift_what_follows() {
    let fixture = Fixture::new();
    fixture.file("f", b"0123456789");
    let mut said = Vec::new();
    let mut reply = ReplyWriter::new(&mut said);
    reply.head(200, Content::Tar, None).unwrap();
    let mut packing = Packing { asked: b".", to: DataWriter::new(&mut reply), buffer: vec![0; MAX_FRAME] };
    let dir = std::fs::File::open(fixture.workspace()).unwrap();
    for claimed in [4, 700] {
        let mut stat = nix::sys::stat::stat(&fixture.workspace().join("f")).unwrap();
        stat.st_size = claimed;
        let entry = Entry { path: b"f", dir: std::os::fd::AsFd::as_fd(&dir), name: b"f", stat: &stat };
        packing.entry(&entry).unwrap();
    }
    packing.to.write_all(&[0; BLOCK * END_BLOCKS]).unwrap();
    packing.to.flush().unwrap();
    reply.end().unwrap();
    let bytes = crate::files::protocol::tests::heard(&said).1.unwrap();
    let contents: Vec<Vec<u8>> = tar::Archive::new(bytes.as_slice())
        .entries()
        .unwrap()
        .map(|entry| {
            let mut content = Vec::new();
            entry.unwrap().read_to_end(&mut content).unwrap();
            content
        })
        .collect();
    assert_eq!(contents[0], b"0123");
    assert_eq!((&contents[1][..10], contents[1].len()), (&b"0123456789"[..], 700));
    assert!(contents[1][10..].iter().all(|byte| *byte == 0));
}

#[test]
fn an_empty_directory_is_an_archive_too_and_a_file_is_not_one() {
    let fixture = Fixture::new();
    assert_eq!(packed(&fixture), [0; BLOCK * END_BLOCKS]);
    fixture.file("f", b"");
    assert!(fixture.refusal(&Job::Pack { path: b"f".to_vec() }).contains("not a directory"));
}

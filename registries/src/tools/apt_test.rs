//! Tests of `apt`, on a machine and a network that are made of maps.

use super::*;
use crate::testing::{FakeMachine, FakeNetwork};

const LIST: &str = "/etc/apt/sources.list";

fn with_list(text: &str) -> FakeMachine {
    FakeMachine::new().command("apt-config dump", "Dir \"/\";\nDir::Etc \"etc/apt\";\n").file(LIST, text)
}

#[test]
fn lines_with_options_comments_and_local_sources_are_read() {
    let list = "# deb http://no.test/debian stable main\n\
                deb [arch=amd64 signed-by=/usr/share/keyrings/x.gpg] https://ann:secret@one.test/debian stable main # mine\n\
                deb-src\thttp://two.test:8080/debian stable main\n\
                deb cdrom:[Disc 1]/ stable main\ndeb file:/srv/apt ./\ndebug http://no.test/ x\ndeb http://short.test\n";
    let asked = with_list(list).ask(ask);
    assert_eq!(asked.hosts(), ["one.test:443", "two.test:8080"]);
    assert_eq!(asked.because("one.test:443"), [LIST]);
    asked.assert_hides("secret");
}

#[test]
fn paragraphs_are_read_and_disabled_ones_are_not() {
    let text = "# Debian\nTypes: deb\nURIs: http://one.test/debian\n https://two.test/debian\nSuites: stable\n\n\
                Enabled: no\nTypes: deb\nURIs: http://no.test/\nSuites: stable\n\n\
                types: deb\nuris: https://three.test/\nsuites: ./\nSigned-By:\n -----BEGIN PGP-----\n .\n https://no.test/\n";
    let machine = with_list("")
        .file("/etc/apt/sources.list.d/x.sources", text)
        .file("/etc/apt/sources.list.d/x.sources.bak", text);
    assert_eq!(machine.ask(ask).hosts(), ["one.test:80", "two.test:443", "three.test:443"]);
}

#[test]
fn lists_of_mirrors_are_read_from_files_and_from_the_network() {
    let list = "deb mirror+file:/etc/apt/mirrors.txt stable main\ndeb mirror+https://list.test/mirrors stable main\n";
    let machine = with_list(list)
        .file("/etc/apt/mirrors.txt", "# mine\nhttp://a.test/debian\tpriority:1\nhttp://b.test/debian\n");
    let network = FakeNetwork::default().page("https://list.test/mirrors", "http://c.test/debian\nfile:/srv\n");
    let asked = machine.ask_with(ask, &network);
    assert_eq!(asked.hosts(), ["a.test:80", "b.test:80", "list.test:443", "c.test:80"]);
    assert_eq!(asked.because("c.test:80"), ["list of mirrors"]);
}

#[test]
fn a_source_that_redirects_adds_the_host_that_it_leads_to() {
    let network = FakeNetwork::default()
        .redirect("http://one.test/debian/dists/stable/InRelease", &["https://cdn.test/x"])
        .redirect("http://two.test/flat/InRelease", &["https://flat.test/x"]);
    let list = "deb http://one.test/debian stable main\ndeb http://two.test flat/\n";
    let asked = with_list(list).ask_with(ask, &network);
    assert_eq!(asked.hosts(), ["one.test:80", "cdn.test:443", "two.test:80", "flat.test:443"]);
}

#[test]
fn a_proxy_is_noted_and_is_not_a_source() {
    let machine =
        FakeMachine::new().command("apt-config dump", "Acquire::http::Proxy \"http://ann:secret@proxy.test:3142\";\n");
    let asked = machine.ask(ask);
    assert_eq!((asked.hosts().len(), asked.kinds()), (0, vec![ProblemKind::Note]));
    asked.assert_hides("secret");
}

#[test]
fn a_huge_list_is_cut_and_reported() {
    let list: String = (0..5000).map(|i| format!("deb http://h{i}.test/ stable main\n")).collect();
    let asked = with_list(&list).ask(ask);
    assert_eq!(asked.hosts().len(), 64);
    assert_eq!(asked.kinds(), [ProblemKind::Limit, ProblemKind::Limit]);
}

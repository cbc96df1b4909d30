//! Tests of `simple_index`, on a machine and a network that are made of maps.

use proptest::prelude::*;

use super::*;
use crate::testing::{Asked, FakeMachine, FakeNetwork};

const PAGE: &str = "https://index.test/simple/six/";

fn follow(network: &FakeNetwork) -> Asked {
    let question = |inquiry: &mut Inquiry<'_>| {
        let index = SourceUrl::parse("https://index.test/simple").unwrap();
        follow_index(inquiry, &index);
    };
    FakeMachine::new().ask_with(question, network)
}

#[test]
fn the_hosts_of_links_are_found_in_html() {
    let html = r#"<a href="https://files.test/a/six-1.whl#sha256=0">six</a><a href='../../six-2.whl'>six</a>"#;
    let asked = follow(&FakeNetwork::default().page(PAGE, html));
    assert_eq!(asked.hosts(), ["files.test:443", "index.test:443"]);
}

#[test]
fn the_hosts_of_links_are_found_in_json() {
    let json = r#"{"files": [{"url": "https://files.test/six-1.whl"}, {"url": 7}, {}], "name": "six"}"#;
    assert_eq!(follow(&FakeNetwork::default().page(PAGE, json)).hosts(), ["files.test:443"]);
}

#[test]
fn a_file_that_is_redirected_adds_the_host_of_the_storage() {
    let network = FakeNetwork::default()
        .page(PAGE, r#"<a href="/six-1.whl">six</a>"#)
        .redirect("https://index.test/six-1.whl", &["https://storage.test/bucket/x"]);
    let asked = follow(&network);
    assert_eq!(asked.because("storage.test:443"), ["redirect of the registry"]);
}

#[test]
fn a_page_names_only_a_few_hosts() {
    let html: String = (0..100).map(|i| format!("<a href=\"https://h{i}.test/x\">x</a>")).collect();
    assert_eq!(follow(&FakeNetwork::default().page(PAGE, &html)).hosts().len(), MAX_HOSTS);
}

#[test]
fn an_index_without_the_package_is_a_problem() {
    let asked = follow(&FakeNetwork::default());
    assert!(asked.problems[0].message.contains("404"), "{asked:?}");
}

proptest! {
    #[test]
    fn any_page_is_read_without_a_panic(body in proptest::collection::vec(any::<u8>(), 0..300), tail in "href=.{0,40}") {
        links(&[&body, tail.as_bytes()].concat());
    }
}

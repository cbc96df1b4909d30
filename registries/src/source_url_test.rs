//! Tests of `source_url`.

use proptest::prelude::*;

use super::*;

fn parsed(text: &str) -> (String, u16, String) {
    let url = SourceUrl::parse(text).unwrap();
    (url.host(), url.port(), url.scheme().to_owned())
}

#[test]
fn a_url_gives_its_host_and_the_port_of_its_scheme() {
    assert_eq!(parsed("https://Mirror.Example.com/simple"), ("mirror.example.com".into(), 443, "https".into()));
    assert_eq!(parsed("http://mirror.test:8081/x"), ("mirror.test".into(), 8081, "http".into()));
    assert_eq!(parsed("ssh://git@git.example.net/x"), ("git.example.net".into(), 22, "ssh".into()));
    assert_eq!(parsed("https://example.com./"), ("example.com".into(), 443, "https".into()));
}

#[test]
fn a_host_that_is_an_address_is_kept_as_such() {
    assert_eq!(parsed("http://10.1.2.3:8080/").0, "10.1.2.3");
    assert_eq!(parsed("https://[fd00::1]/").0, "fd00::1");
}

#[test]
fn paths_and_file_urls_are_local() {
    for text in ["/srv/wheels", "./wheels", "~/wheels", "file:///srv/wheels", "cdrom:[Disc]/"] {
        assert_eq!(SourceUrl::parse(text), Err(UrlError::Local), "{text}");
    }
}

#[test]
fn what_names_no_host_is_refused() {
    for text in ["", "direct", "https://", "https://*.example.com/", "https://${HOST}/", "https://a.test:0/", "a\0b"] {
        assert!(matches!(SourceUrl::parse(text), Err(UrlError::Malformed)), "{text}");
    }
    assert_eq!(SourceUrl::parse("data:text/plain,x"), Err(UrlError::Scheme));
    assert_eq!(SourceUrl::parse(&format!("https://a.test/{}", "x".repeat(5000))), Err(UrlError::TooLong));
}

#[test]
fn git_takes_a_user_and_a_host_before_a_colon() {
    let url = SourceUrl::parse_git("git@git.example.com:team/project.git").unwrap();
    assert_eq!((url.host().as_str(), url.port(), url.scheme()), ("git.example.com", 22, "ssh"));
    assert_eq!(SourceUrl::parse_git("../project"), Err(UrlError::Local));
}

#[test]
fn credentials_follow_a_link_only_to_the_same_origin() {
    let page = SourceUrl::parse("https://user:secret@example.com/simple/six/").unwrap();
    assert_eq!(page.follow("../../f.whl").unwrap().with_credentials(), "https://user:secret@example.com/f.whl");
    assert_eq!(page.follow("https://files.example.net/f").unwrap().with_credentials(), "https://files.example.net/f");
    assert_eq!(page.follow("http://example.com/f").unwrap().with_credentials(), "http://example.com/f");
}

#[test]
fn something_below_a_url_needs_no_slash_at_its_end() {
    for base in ["https://example.com/simple", "https://example.com/simple/?token=1"] {
        let below = SourceUrl::parse(base).unwrap().below("six/").unwrap();
        assert_eq!(below.with_credentials(), "https://example.com/simple/six/");
    }
}

proptest! {
    #[test]
    fn a_printed_url_never_holds_its_credentials(user in "[a-z]{8}", password in "[A-Z0-9@:/%?#]{1,20}", token in "[0-9]{12}") {
        let mut url = Url::parse("https://example.com/path").unwrap();
        url.set_username(&user).unwrap();
        url.set_password(Some(&password)).unwrap();
        url.set_query(Some(&token));
        let url = SourceUrl::parse(url.as_str()).unwrap();
        prop_assert_eq!(url.to_string(), "https://example.com/…");
        let debug = format!("{:?}", url);
        prop_assert!(!debug.contains(&user), "{}", debug);
    }

    #[test]
    fn any_text_is_parsed_without_a_panic(text in any::<String>()) {
        let _ = SourceUrl::parse(&text);
        let _ = SourceUrl::parse_git(&text);
        let _ = SourceUrl::parse("https://example.com/a/").unwrap().follow(&text);
    }
}

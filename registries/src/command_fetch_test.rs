//! Tests of `command_fetch`, with invented answers, and with the real programs against a server on this machine.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread;
use std::time::Duration;

use super::*;
use crate::local_tools::LocalTools;
use crate::testing::FakeMachine;

fn request(url: &str) -> Request {
    Request { url: SourceUrl::parse(url).unwrap(), timeout: Duration::from_secs(10), max_bytes: 1000 }
}

fn answer(code: i32, stdout: &str, stderr: &str) -> Result<Answer, FetchError> {
    let output = Output { code: Some(code), stdout: stdout.into(), stderr: stderr.into() };
    Answer::read(output, &SourceUrl::parse("https://a.test/x").unwrap(), 10)
}

#[test]
fn the_status_and_the_exit_code_decide_what_an_answer_is() {
    assert_eq!(answer(0, "body", "\n200 "), Ok(Answer::Body(Body::Whole(b"body".to_vec()))));
    assert_eq!(answer(0, "a long body", "\n200 "), Ok(Answer::Body(Body::TooLarge)));
    assert_eq!(answer(63, "", "\n200 "), Ok(Answer::Body(Body::TooLarge)));
    assert_eq!(answer(0, "", "\n404 "), Err(FetchError::Status(404)));
    assert_eq!(answer(0, "", "\n302 file:///etc/passwd"), Err(FetchError::BadRedirect));
    assert_eq!(answer(28, "", "\n000 "), Err(FetchError::TimedOut));
    assert_eq!(answer(6, "", "\n000 "), Err(FetchError::Connection("its name does not resolve")));
    assert_eq!(answer(1, "", ""), Err(FetchError::Connection("the request failed")));
}

#[test]
fn a_url_with_a_password_is_never_an_argument() {
    let machine = FakeMachine::new().output("curl", 0, "body", "\n200 ");
    CommandFetch::new(&machine).get(&request("https://ann:secret@a.test/")).unwrap();
    let runs = machine.runs.lock().unwrap();
    assert!(!format!("{:?}{:?}", runs[0].arguments, runs[0].variables).contains("secret"));
    assert!(String::from_utf8_lossy(&runs[0].stdin).contains("secret"));
}

#[test]
fn redirects_without_end_are_given_up() {
    let machine = FakeMachine::new().output("curl", 0, "", "\n302 https://b.test/again");
    assert_eq!(CommandFetch::new(&machine).get(&request("https://a.test/")), Err(FetchError::TooManyRedirects));
    assert_eq!(machine.runs.lock().unwrap().len(), MAX_REDIRECTS + 1);
}

#[test]
fn without_curl_and_python_nothing_is_fetched() {
    assert_eq!(CommandFetch::new(&FakeMachine::new()).get(&request("https://a.test/")), Err(FetchError::NoProgram));
}

/// This machine, on which curl may be missing and proxies are not used.
struct WithoutCurl {
    has_curl: bool,
}

impl Tools for WithoutCurl {
    fn run(&self, invocation: &Invocation) -> Result<Output, RunError> {
        match invocation.program == "curl" && !self.has_curl {
            true => Err(RunError::NotInstalled),
            false => LocalTools.run(&invocation.clone().variable("NO_PROXY", "*").variable("no_proxy", "*")),
        }
    }

    fn read(&self, path: &std::path::Path) -> Result<String, crate::ReadError> {
        LocalTools.read(path)
    }

    fn list(&self, directory: &std::path::Path) -> Vec<std::path::PathBuf> {
        LocalTools.list(directory)
    }

    fn variables(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    fn resolve(&self, host: &str) -> Vec<std::net::IpAddr> {
        LocalTools.resolve(host)
    }
}

/// Serves `/` with a redirect to `/page`, and `/large` with too many bytes. Returns its port.
fn server() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut bytes = [0; 4096];
            let count = stream.read(&mut bytes).unwrap_or_default();
            let head = String::from_utf8_lossy(&bytes[..count]).into_owned();
            let authorized = head.contains("Basic YW5uOnNlY3JldA==");
            let reply = match head.split(' ').nth(1) {
                Some("/") => "HTTP/1.1 302 Found\r\nLocation: /page\r\nContent-Length: 0\r\n\r\n".to_owned(),
                Some("/large") => format!("HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n{}", "x".repeat(5000)),
                Some("/page") if authorized => "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody".to_owned(),
                _ => "HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n".to_owned(),
            };
            let _ = stream.write_all(reply.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n").as_bytes());
        }
    });
    port
}

/// Runs a check with each of the two programs that this machine has.
fn with_each_program(check: impl Fn(&CommandFetch<'_>, u16)) {
    for (program, has_curl) in [("curl", true), ("python3", false)] {
        match LocalTools.run(&Invocation::new(program, &["--version"])) {
            Ok(_) => check(&CommandFetch::new(&WithoutCurl { has_curl }), server()),
            Err(error) => println!("skipped with {program}: {error}"),
        }
    }
}

#[test]
fn a_redirect_is_followed_with_credentials_on_the_same_host() {
    with_each_program(|fetch, port| {
        let fetched = fetch.get(&request(&format!("http://ann:secret@127.0.0.1:{port}/"))).unwrap();
        assert_eq!(fetched.body, Body::Whole(b"body".to_vec()));
        assert_eq!(fetched.visited.len(), 2);
        assert_eq!(fetched.visited[1].with_credentials(), format!("http://ann:secret@127.0.0.1:{port}/page"));
    });
}

#[test]
fn a_large_body_and_a_refusal_are_told_apart() {
    with_each_program(|fetch, port| {
        let get = |path: &str| fetch.get(&request(&format!("http://127.0.0.1:{port}{path}")));
        assert_eq!(get("/large").unwrap().body, Body::TooLarge);
        assert_eq!(get("/page"), Err(FetchError::Status(401)));
    });
}

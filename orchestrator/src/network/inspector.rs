//! Looks at what a program sends on one connection, and lets bytes pass only when the name in them is allowed. Pure.
//!
//! A TLS connection names its server once. A plain HTTP connection can carry many requests, and each names its host; so the
//! inspector counts the body of each request and looks at the next one too. What is neither passes as it is, if the policy allows
//! that.
//!
//! ```text
//!  Deciding ── TLS or something else, allowed ──▶ Passing
//!     │  ▲
//!     │  └── the body is over ── Body, Chunks
//!     └── HTTP, allowed ──────────▲
//! ```
//!
//! Where everything is allowed, it only listens: all bytes pass at once, and the first ones are noted, so that a later policy can be
//! asked about the connection.

use network_policy::{Denial, HostName, Reason, Spoken};
use network_wire::{Body, FirstBytes, HostOrAddress, Reading};

use super::chunked::{ChunkReader, ChunkState};

/// Decides about a connection whose first bytes are these.
pub type Judge<'a> = dyn FnMut(&Spoken) -> Result<(), Denial> + Send + 'a;

#[derive(Debug)]
pub struct Inspector {
    state: State,
    /// Bytes that must not pass before a decision.
    held: Vec<u8>,
    is_on: bool,
    then: Then,
}

#[derive(Debug)]
enum State {
    Deciding(FirstBytes),
    /// This many bytes of a request's body are still to come.
    Body(u64),
    Chunks(ChunkReader),
    /// Everything passes; these are copies of the first bytes.
    Listening(FirstBytes, Vec<u8>),
    Passing,
    /// The one request that may pass has passed.
    Over,
}

/// What comes after a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Then {
    AnotherRequest,
    Nothing,
}

impl Inspector {
    pub fn new() -> Self {
        Self { state: State::Deciding(FirstBytes::new()), held: Vec::new(), is_on: true, then: Then::AnotherRequest }
    }

    /// Lets everything pass, and reports what the first bytes are, if they come in time.
    pub fn listening() -> Self {
        Self {
            state: State::Listening(FirstBytes::new(), Vec::new()),
            held: Vec::new(),
            is_on: false,
            then: Then::AnotherRequest,
        }
    }

    /// Lets the body of one request pass, whose head was judged, and nothing after it.
    pub fn for_body(body: Body) -> Self {
        let state = match body {
            Body::Bytes(0) => State::Over,
            Body::Bytes(left) => State::Body(left),
            Body::Chunked => State::Chunks(ChunkReader::default()),
        };
        Self { state, held: Vec::new(), is_on: true, then: Then::Nothing }
    }

    /// Whether bytes came after the one request that may pass. They never pass.
    pub fn is_over(&self) -> bool {
        matches!(self.state, State::Over) && self.holds_bytes()
    }

    /// Whether it holds back what it has not decided about, or did so until it was clear.
    pub fn is_on(&self) -> bool {
        self.is_on
    }

    fn is_deciding(&self) -> bool {
        matches!(self.state, State::Deciding(_))
    }

    /// Whether everything passes from now on.
    pub fn is_passing(&self) -> bool {
        matches!(self.state, State::Passing) && self.held.is_empty()
    }

    /// Whether bytes wait for a decision.
    pub fn holds_bytes(&self) -> bool {
        !self.held.is_empty()
    }

    /// Lets everything pass from now on, and returns what waits for a decision.
    pub fn let_pass(&mut self) -> Vec<u8> {
        let held = std::mem::take(&mut self.held);
        *self = Self { state: State::Passing, held: Vec::new(), is_on: false, then: Then::AnotherRequest };
        held
    }

    /// Takes bytes of the program and returns those that may pass now.
    pub fn take(&mut self, bytes: Vec<u8>, judge: &mut Judge<'_>) -> Result<Vec<u8>, Denial> {
        if let State::Listening(first, heard) = &mut self.state {
            heard.extend_from_slice(&bytes);
            let reading = first.read(heard);
            if reading == Reading::Incomplete {
                // It is decided after `network_wire::MAX_FIRST_BYTES` at the latest.
                return Ok(bytes);
            }
            self.state = State::Passing;
            // Whatever is spoken is allowed, so what is malformed passes too, and nobody knows what it is.
            if let Ok(spoken) = spoken(&reading) {
                judge(&spoken)?;
            }
        }
        if self.is_passing() {
            return Ok(bytes);
        }
        self.held.extend(bytes);
        let mut passed = 0;
        while passed < self.held.len() {
            match self.step(passed, judge)? {
                0 => break,
                count => passed += count,
            }
        }
        let rest = self.held.split_off(passed);
        Ok(std::mem::replace(&mut self.held, rest))
    }

    /// Decides about the bytes so far: no more come in time. What is unclear counts as neither TLS nor HTTP.
    pub fn give_up(&mut self, judge: &mut Judge<'_>) -> Result<Vec<u8>, Denial> {
        if self.is_deciding() {
            judge(&Spoken::Other)?;
            self.state = State::Passing;
        }
        Ok(std::mem::take(&mut self.held))
    }

    /// How many bytes after the first `passed` ones may pass. 0: more bytes are needed to decide.
    fn step(&mut self, passed: usize, judge: &mut Judge<'_>) -> Result<usize, Denial> {
        let waiting = &self.held[passed..];
        let next = || match self.then {
            Then::AnotherRequest => State::Deciding(FirstBytes::new()),
            Then::Nothing => State::Over,
        };
        match &mut self.state {
            State::Passing | State::Listening(..) => Ok(waiting.len()),
            State::Over => Ok(0),
            State::Body(left) => {
                let count = usize::try_from(*left).unwrap_or(usize::MAX).min(waiting.len());
                *left -= u64::try_from(count).unwrap_or(u64::MAX);
                if *left == 0 {
                    self.state = next();
                }
                Ok(count)
            }
            State::Chunks(chunks) => match chunks.read(waiting) {
                ChunkState::More => Ok(waiting.len()),
                ChunkState::End(count) => {
                    self.state = next();
                    Ok(count)
                }
                ChunkState::Malformed => Err(not_understood()),
            },
            State::Deciding(first) => {
                let reading = first.read(waiting);
                if reading == Reading::Incomplete {
                    return Ok(0);
                }
                let spoken = spoken(&reading)?;
                let (next, count) = match reading {
                    Reading::Http { head_bytes, body: Body::Bytes(0), .. } => {
                        (State::Deciding(FirstBytes::new()), head_bytes)
                    }
                    Reading::Http { head_bytes, body: Body::Bytes(left), .. } => (State::Body(left), head_bytes),
                    Reading::Http { head_bytes, body: Body::Chunked, .. } => {
                        (State::Chunks(ChunkReader::default()), head_bytes)
                    }
                    _ => (State::Passing, waiting.len()),
                };
                judge(&spoken)?;
                self.state = next;
                Ok(count)
            }
        }
    }
}

/// What the first bytes speak, if they are enough to tell.
fn spoken(reading: &Reading) -> Result<Spoken, Denial> {
    match reading {
        Reading::Tls { server_name, .. } => Ok(Spoken::Tls(name(server_name.as_deref())?)),
        Reading::Http { host, .. } => Ok(Spoken::Http(match host.as_ref().map(|host| &host.host) {
            Some(HostOrAddress::Name(text)) => name(Some(text))?,
            // An address is no name that a rule could be for.
            Some(HostOrAddress::Address(_)) | None => None,
        })),
        // The program asks an allowed host to connect it to another one.
        Reading::HttpConnect { authority } => {
            Err(Denial { reason: Reason::ProtocolNotAllowed, wanted: authority.to_string() })
        }
        // Its host is in compressed frames, which nobody reads here.
        Reading::Http2 | Reading::Other => Ok(Spoken::Other),
        Reading::Incomplete | Reading::Malformed(_) => Err(not_understood()),
    }
}

fn name(text: Option<&str>) -> Result<Option<HostName>, Denial> {
    text.map(|text| HostName::from_bytes(text.as_bytes()).map_err(|_| not_understood())).transpose()
}

fn not_understood() -> Denial {
    Denial { reason: Reason::NotUnderstood, wanted: String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn only(allowed: &'static str) -> impl FnMut(&Spoken) -> Result<(), Denial> {
        move |spoken| match spoken {
            Spoken::Http(Some(name)) | Spoken::Tls(Some(name)) if name.as_str() == allowed => Ok(()),
            _ => Err(Denial { reason: Reason::HostNotAllowed, wanted: String::new() }),
        }
    }

    fn feed(parts: &[&[u8]]) -> (Vec<u8>, Option<Reason>) {
        let (mut inspector, mut judge, mut passed) = (Inspector::new(), only("good.example.com"), Vec::new());
        for part in parts {
            match inspector.take(part.to_vec(), &mut judge) {
                Ok(bytes) => passed.extend(bytes),
                Err(denial) => return (passed, Some(denial.reason)),
            }
        }
        (passed, None)
    }

    const GOOD: &[u8] = b"GET / HTTP/1.1\r\nHost: good.example.com\r\n\r\n";
    const BAD: &[u8] = b"GET / HTTP/1.1\r\nHost: bad.example.com\r\n\r\n";
    const POST: &[u8] = b"POST / HTTP/1.1\r\nHost: good.example.com\r\nContent-Length: 5\r\n\r\nhello";
    const CHUNKED: &[u8] =
        b"POST / HTTP/1.1\r\nHost: good.example.com\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";

    #[test]
    fn every_request_of_a_connection_is_looked_at() {
        for first in [GOOD, POST, CHUNKED] {
            assert_eq!(feed(&[first, GOOD]), ([first, GOOD].concat(), None));
            let (passed, denied) = feed(&[&[first, BAD].concat()]);
            assert_eq!(denied, Some(Reason::HostNotAllowed));
            assert!(passed.is_empty(), "what came in one piece is refused in one piece");
            assert_eq!(feed(&[first, BAD]), (first.to_vec(), Some(Reason::HostNotAllowed)));
        }
    }

    #[test]
    fn after_the_one_request_of_a_proxy_nothing_passes() {
        let never = |_: &Spoken| -> Result<(), Denial> { panic!("nothing is judged: the head was") };
        for (body, bytes) in
            [(Body::Bytes(0), &b""[..]), (Body::Bytes(5), b"hello"), (Body::Chunked, b"5\r\nhello\r\n0\r\n\r\n")]
        {
            for cut in 0..=bytes.len() {
                let mut inspector = Inspector::for_body(body);
                let (start, rest) = bytes.split_at(cut);
                let mut passed = inspector.take(start.to_vec(), &mut { never }).unwrap();
                assert!(!inspector.is_over());
                passed.extend(inspector.take([rest, GOOD].concat(), &mut { never }).unwrap());
                assert_eq!(passed, bytes);
                assert!(inspector.is_over() && !inspector.is_passing());
                assert_eq!(inspector.take(GOOD.to_vec(), &mut { never }), Ok(Vec::new()));
            }
        }
    }

    #[test]
    fn a_request_to_be_connected_elsewhere_is_refused() {
        let connect = b"CONNECT evil.example.com:443 HTTP/1.1\r\nHost: good.example.com\r\n\r\n";
        assert_eq!(feed(&[connect]).1, Some(Reason::NotUnderstood), "target and Host contradict each other");
        let connect = b"CONNECT evil.example.com:443 HTTP/1.1\r\nHost: evil.example.com:443\r\n\r\n";
        let denial = Inspector::new().take(connect.to_vec(), &mut only("good.example.com")).unwrap_err();
        assert_eq!(denial.reason, Reason::ProtocolNotAllowed);
        assert_eq!(denial.wanted, "evil.example.com:443", "the host that it wants, not the one that it asks");
    }

    #[test]
    fn a_listener_lets_everything_pass_at_once_and_tells_what_was_spoken() {
        let connect = b"CONNECT evil.example.com:443 HTTP/1.1\r\nHost: evil.example.com:443\r\n\r\n";
        let good = HostName::parse("good.example.com").unwrap();
        let long = [b'x'; network_wire::MAX_FIRST_BYTES + 1];
        for (bytes, expected) in [
            (GOOD, Some(Spoken::Http(Some(good)))),
            (b"SSH-2.0-x\r\n", Some(Spoken::Other)),
            (b"\0\0", Some(Spoken::Other)),
            (connect, None),
            (b"\r\nGET / HTTP/1.1\r\n\r\n", None),
            (&long, Some(Spoken::Other)),
        ] {
            let (mut inspector, mut heard) = (Inspector::listening(), Vec::new());
            assert!(!inspector.is_on() && !inspector.is_passing());
            let mut judge = |spoken: &Spoken| {
                heard.push(spoken.clone());
                Ok(())
            };
            for byte in bytes {
                assert_eq!(inspector.take(vec![*byte], &mut judge).unwrap(), [*byte]);
                assert!(!inspector.holds_bytes());
            }
            assert!(inspector.is_passing(), "it listens no longer than it has to");
            assert_eq!(heard, Vec::from_iter(expected));
        }
    }

    proptest! {
        #[test]
        fn the_pieces_in_which_bytes_come_do_not_matter(cuts in proptest::collection::vec(0_usize..400, 0..6), bad in any::<bool>()) {
            let all = [POST, CHUNKED, GOOD, if bad { BAD } else { GOOD }].concat();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut % all.len()).collect();
            cuts.extend([0, all.len()]);
            cuts.sort_unstable();
            let parts: Vec<&[u8]> = cuts.windows(2).map(|pair| &all[pair[0]..pair[1]]).collect();
            let (passed, denied) = feed(&parts);
            prop_assert_eq!(denied.is_some(), bad);
            prop_assert!(all.starts_with(&passed));
            prop_assert_eq!(passed.len() == all.len(), !bad);
            prop_assert!(!bad || passed.len() <= all.len() - BAD.len());
        }
    }
}

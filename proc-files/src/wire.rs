//! The messages of FUSE that a file system of one read-only file needs, as `include/uapi/linux/fuse.h` describes them. All numbers have
//! the byte order of the machine.
//!
//! A request that is not known is answered with "no such call", which the kernel remembers; it asks no more then. Messages that have no
//! answer (a forgotten inode, an interrupt) are [`Operation::Silent`]. An interrupt needs nothing, because every request is answered at
//! once.

/// The size of the buffer for a request: the least that the kernel accepts. No request of a reader is longer.
pub const REQUEST_BYTES: usize = 8192;

const HEADER_BYTES: usize = 40;
/// The number of the root, which is the file.
const NODE: u64 = 1;

/// The version of the protocol. Linux 5.4 has it, and newer kernels keep to it.
const MAJOR: u32 = 7;
const MINOR: u32 = 31;

/// What the kernel may send in a write, of which there are none. It takes no less.
const MAX_WRITE: u32 = 4096;
const MAX_BACKGROUND: u16 = 16;

const BLOCK: u32 = 4096;

/// The bits of the flags of an open that say whether it is to read or to write.
const ACCESS_MODE: u32 = 3;

/// How long the kernel may keep the attributes: they never change.
const FOREVER_SECONDS: u64 = 1 << 30;

/// Every read reaches the server, and the size of a file does not matter.
const DIRECT_IO: u32 = 1;

/// The mode of the file: everybody may read it.
pub const MODE: u32 = 0o100_444;

/// Errors, with the numbers that every Linux has.
const EACCES: i32 = 13;
const EINVAL: i32 = 22;
const ENOSYS: i32 = 38;
pub const EIO: i32 = 5;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    id: u64,
    pub operation: Operation,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    Init {
        major: u32,
    },
    Attributes,
    FileSystem,
    Open {
        writes: bool,
    },
    Read {
        handle: u64,
        offset: u64,
        size: u32,
    },
    Release {
        handle: u64,
    },
    /// It has no answer.
    Silent,
    Unknown,
}

/// A message that the kernel would not send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

impl Request {
    pub fn parse(message: &[u8]) -> Result<Self, Malformed> {
        let length = number32(message, 0)?;
        if usize::try_from(length) != Ok(message.len()) {
            return Err(Malformed);
        }
        let (code, id) = (number32(message, 4)?, number64(message, 8)?);
        let body = message.get(HEADER_BYTES..).ok_or(Malformed)?;
        let operation = match code {
            2 | 36 | 42 => Operation::Silent,
            3 => Operation::Attributes,
            14 => Operation::Open { writes: number32(body, 0)? & ACCESS_MODE != 0 },
            15 => Operation::Read { handle: number64(body, 0)?, offset: number64(body, 8)?, size: number32(body, 16)? },
            17 => Operation::FileSystem,
            18 => Operation::Release { handle: number64(body, 0)? },
            26 => Operation::Init { major: number32(body, 0)? },
            _ => Operation::Unknown,
        };
        Ok(Self { id, operation })
    }

    /// The answer to a request that does not depend on what is in the file. `None` if there is no answer.
    pub fn plain_answer(&self) -> Option<Vec<u8>> {
        Some(match self.operation {
            Operation::Silent => return None,
            Operation::Init { major: MAJOR } => self.init(),
            // No kernel has another version yet.
            Operation::Init { .. } => self.error(EINVAL),
            Operation::Attributes => self.attributes(),
            Operation::FileSystem => self.file_system(),
            Operation::Open { writes: true } => self.error(EACCES),
            Operation::Open { writes: false } | Operation::Read { .. } => self.error(EIO),
            Operation::Release { .. } => self.answer(0, &[]),
            Operation::Unknown => self.error(ENOSYS),
        })
    }

    pub fn error(&self, number: i32) -> Vec<u8> {
        self.answer(-number, &[])
    }

    pub fn opened(&self, handle: u64) -> Vec<u8> {
        let mut body = handle.to_ne_bytes().to_vec();
        put32(&mut body, &[DIRECT_IO, 0]);
        self.answer(0, &body)
    }

    /// The part of `text` that a read asks for.
    pub fn data(&self, text: &[u8], offset: u64, size: u32) -> Vec<u8> {
        let from = usize::try_from(offset).unwrap_or(usize::MAX).min(text.len());
        let size = usize::try_from(size).unwrap_or(usize::MAX).min(text.len() - from);
        self.answer(0, &text[from..from + size])
    }

    fn answer(&self, error: i32, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(16 + body.len()).unwrap_or(u32::MAX);
        let mut message = Vec::with_capacity(16 + body.len());
        message.extend(length.to_ne_bytes());
        message.extend(error.to_ne_bytes());
        message.extend(self.id.to_ne_bytes());
        message.extend(body);
        message
    }

    fn init(&self) -> Vec<u8> {
        let mut body = Vec::new();
        let (read_ahead, flags) = (0, 0);
        put32(&mut body, &[MAJOR, MINOR, read_ahead, flags]);
        body.extend(MAX_BACKGROUND.to_ne_bytes());
        body.extend(MAX_BACKGROUND.to_ne_bytes());
        // The rest is the granularity of times, and nothing else.
        put32(&mut body, &[MAX_WRITE, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        self.answer(0, &body)
    }

    /// Like a file of `/proc`, it belongs to root, is empty by its size, and has no times.
    fn attributes(&self) -> Vec<u8> {
        let mut body = Vec::new();
        put64(&mut body, &[FOREVER_SECONDS]);
        put32(&mut body, &[0, 0]);
        let (size, blocks, times) = (0, 0, 0);
        put64(&mut body, &[NODE, size, blocks, times, times, times]);
        let (nanoseconds, links, owner, device, flags) = (0, 1, 0, 0, 0);
        put32(&mut body, &[nanoseconds, nanoseconds, nanoseconds, MODE, links, owner, owner, device, BLOCK, flags]);
        self.answer(0, &body)
    }

    fn file_system(&self) -> Vec<u8> {
        let mut body = Vec::new();
        put64(&mut body, &[0, 0, 0, 0, 0]);
        let name_length = 255;
        put32(&mut body, &[BLOCK, name_length, BLOCK, 0, 0, 0, 0, 0, 0, 0]);
        self.answer(0, &body)
    }
}

fn put32(body: &mut Vec<u8>, numbers: &[u32]) {
    body.extend(numbers.iter().flat_map(|number| number.to_ne_bytes()));
}

fn put64(body: &mut Vec<u8>, numbers: &[u64]) {
    body.extend(numbers.iter().flat_map(|number| number.to_ne_bytes()));
}

fn number32(bytes: &[u8], at: usize) -> Result<u32, Malformed> {
    let bytes = bytes.get(at..at + 4).ok_or(Malformed)?;
    Ok(u32::from_ne_bytes(bytes.try_into().map_err(|_| Malformed)?))
}

fn number64(bytes: &[u8], at: usize) -> Result<u64, Malformed> {
    let bytes = bytes.get(at..at + 8).ok_or(Malformed)?;
    Ok(u64::from_ne_bytes(bytes.try_into().map_err(|_| Malformed)?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn message(code: u32, body: &[u8]) -> Vec<u8> {
        let mut message = Vec::new();
        put32(&mut message, &[u32::try_from(HEADER_BYTES + body.len()).unwrap(), code]);
        put64(&mut message, &[77, NODE]);
        message.resize(HEADER_BYTES, 0);
        message.extend(body);
        message
    }

    fn answer_to(code: u32, body: &[u8]) -> Option<(i32, Vec<u8>)> {
        let message = message(code, body);
        let answer = Request::parse(&message).unwrap().plain_answer()?;
        assert_eq!(usize::try_from(number32(&answer, 0).unwrap()).unwrap(), answer.len());
        assert_eq!(number64(&answer, 8).unwrap(), 77);
        Some((i32::from_ne_bytes(answer[4..8].try_into().unwrap()), answer[16..].to_vec()))
    }

    #[test]
    fn answers_have_the_sizes_that_the_kernel_expects() {
        let size = |code, body: &[u8]| {
            let (error, body) = answer_to(code, body).unwrap();
            assert_eq!(error, 0, "{code}");
            body.len()
        };
        assert_eq!(size(26, &MAJOR.to_ne_bytes()), 64);
        assert_eq!(size(3, &[]), 104);
        assert_eq!(size(17, &[]), 80);
        assert_eq!(size(18, &[0; 24]), 0);
    }

    #[test]
    fn what_is_not_possible_is_an_error_and_what_needs_no_answer_gets_none() {
        assert_eq!(answer_to(14, &[1, 0, 0, 0, 0, 0, 0, 0]), Some((-EACCES, Vec::new())), "opened to write");
        assert_eq!(answer_to(16, &[]), Some((-ENOSYS, Vec::new())), "a write");
        for silent in [2, 36, 42] {
            assert_eq!(answer_to(silent, &[0; 16]), None);
        }
    }

    #[test]
    fn a_read_gets_its_part_of_the_text() {
        let message = message(15, &[0; 40]);
        let request = Request::parse(&message).unwrap();
        assert!(matches!(request.operation, Operation::Read { offset: 0, .. }));
        assert_eq!(request.data(b"0123456789", 2, 3)[16..], *b"234");
        assert_eq!(request.data(b"0123456789", 8, 100)[16..], *b"89");
        assert_eq!(request.data(b"0123456789", u64::MAX, u32::MAX)[16..], *b"");
    }

    proptest! {
        #[test]
        fn no_message_makes_it_panic(code in 0u32..64, body in proptest::collection::vec(any::<u8>(), 0..64)) {
            let message = message(code, &body);
            if let Ok(request) = Request::parse(&message) {
                let _ = request.plain_answer();
            }
            let _ = Request::parse(&body);
        }
    }
}

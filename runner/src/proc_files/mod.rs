//! Serves the files of `/proc` that show the sandbox's own limits: `meminfo`, `stat` and `loadavg`.
//!
//! The kernel sends each read of a program as a message of FUSE, and the answer is made from the sandbox's cgroup. Whoever made the sandbox
//! has mounted the files and passed their connections on.
//!
//! **A reader never waits for long.** Each request is answered when it is read, without an await in between. If the runner ends, the kernel
//! closes the connections, and all waiting reads fail. A pause freezes the readers before the runner. The runner itself never opens these
//! files: it would wait for its own answer.

mod values;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use proc_files::ProcFile;
use proc_files::wire::{EIO, Operation, REQUEST_BYTES, Request};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::sys::{fd, poll};
use values::Values;

/// How long a text is used again. Many readers at once cost as much as one.
const FRESH: Duration = Duration::from_millis(50);

/// The most open files that keep the text that they began to read. A reader whose text was dropped goes on in the current one.
const MAX_KEPT: usize = 128;

/// The most requests that are answered before other tasks of the runner get a turn.
const MAX_ANSWERS: usize = 32;

/// Takes the connections from descriptor `first` on, one for each file, and answers as long as the runner runs.
pub fn start(first: i32) -> io::Result<()> {
    let texts = Rc::new(RefCell::new(Texts::new()));
    for (number, file) in (first..).zip(ProcFile::ALL) {
        let connection = poll::register(fd::inherited(number)?, Interest::READABLE)?;
        let texts = texts.clone();
        tokio::task::spawn_local(async move {
            let Err(error) = serve(&connection, file, &texts).await;
            tracing::warn!(%error, path = file.path(), "programs no longer see the sandbox's own values");
        });
    }
    Ok(())
}

async fn serve(connection: &AsyncFd<OwnedFd>, file: ProcFile, texts: &RefCell<Texts>) -> Result<Infallible, io::Error> {
    loop {
        let mut ready = connection.readable().await?;
        if answer_waiting(connection.get_ref(), file, &mut texts.borrow_mut())? == Waiting::None {
            ready.clear_ready();
        }
        tokio::task::yield_now().await;
    }
}

/// Whether requests wait on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Waiting {
    None,
    Perhaps,
}

fn answer_waiting(connection: &OwnedFd, file: ProcFile, texts: &mut Texts) -> io::Result<Waiting> {
    let mut buffer = [0; REQUEST_BYTES];
    for _ in 0..MAX_ANSWERS {
        match nix::unistd::read(connection, &mut buffer) {
            Ok(length) => {
                // A reader that was killed meanwhile needs no answer. There is no other error.
                if let Some(answer) = texts.answer(file, &buffer[..length]) {
                    let _ = nix::unistd::write(connection, &answer);
                }
            }
            Err(Errno::EAGAIN) => return Ok(Waiting::None),
            // The reader was killed before its request was read.
            Err(Errno::EINTR | Errno::ENOENT) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(Waiting::Perhaps)
}

/// The content of the files.
struct Texts {
    values: Values,
    current: [Option<(Instant, Rc<str>)>; ProcFile::ALL.len()],
    /// What each open file reads, by its handle. The oldest comes first.
    kept: VecDeque<(u64, Rc<str>)>,
    last_handle: u64,
}

impl Texts {
    fn new() -> Self {
        Self { values: Values::new(), current: [const { None }; 3], kept: VecDeque::new(), last_handle: 0 }
    }

    fn answer(&mut self, file: ProcFile, message: &[u8]) -> Option<Vec<u8>> {
        let request = Request::parse(message).ok()?;
        match request.operation {
            Operation::Open { writes: false } => {
                self.last_handle += 1;
                Some(request.opened(self.last_handle))
            }
            Operation::Read { handle, offset, size } => {
                let text = if offset == 0 { self.begin(file, handle) } else { self.continued(file, handle) };
                Some(text.map_or_else(|_| request.error(EIO), |text| request.data(text.as_bytes(), offset, size)))
            }
            Operation::Release { handle } => {
                self.kept.retain(|(kept, _)| *kept != handle);
                request.plain_answer()
            }
            _ => request.plain_answer(),
        }
    }

    /// The text for a read from the beginning. What follows is read from the same text.
    fn begin(&mut self, file: ProcFile, handle: u64) -> io::Result<Rc<str>> {
        let text = self.current(file)?;
        self.kept.retain(|(kept, _)| *kept != handle);
        if self.kept.len() == MAX_KEPT {
            self.kept.pop_front();
        }
        self.kept.push_back((handle, text.clone()));
        Ok(text)
    }

    fn continued(&mut self, file: ProcFile, handle: u64) -> io::Result<Rc<str>> {
        match self.kept.iter().find(|(kept, _)| *kept == handle) {
            Some((_, text)) => Ok(text.clone()),
            None => self.current(file),
        }
    }

    fn current(&mut self, file: ProcFile) -> io::Result<Rc<str>> {
        let place = ProcFile::ALL.iter().position(|each| *each == file).unwrap_or_default();
        if let Some((made, text)) = &self.current[place]
            && made.elapsed() < FRESH
        {
            return Ok(text.clone());
        }
        let text: Rc<str> = self.values.text(file)?.into();
        self.current[place] = Some((Instant::now(), text.clone()));
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(code: u32, body: &[u64]) -> Vec<u8> {
        let length = u32::try_from(40 + body.len() * 8).unwrap();
        let mut message: Vec<u8> = [length, code].iter().flat_map(|number| number.to_ne_bytes()).collect();
        message.extend([1_u64, 1].iter().flat_map(|number| number.to_ne_bytes()));
        message.resize(40, 0);
        message.extend(body.iter().flat_map(|number| number.to_ne_bytes()));
        message
    }

    fn read(texts: &mut Texts, handle: u64, offset: u64) -> Vec<u8> {
        texts.answer(ProcFile::Loadavg, &message(15, &[handle, offset, 4096, 0, 0])).unwrap()[16..].to_vec()
    }

    #[test]
    fn a_reader_goes_on_in_the_text_that_it_began() {
        let mut texts = Texts::new();
        let set = |texts: &mut Texts, text: &str| texts.current[2] = Some((Instant::now() + FRESH * 1000, text.into()));
        set(&mut texts, "first");
        assert_eq!(read(&mut texts, 1, 0), b"first");
        set(&mut texts, "SECOND");
        assert_eq!(read(&mut texts, 1, 2), b"rst");
        assert_eq!(read(&mut texts, 2, 0), b"SECOND");
        assert_eq!(read(&mut texts, 1, 0), b"SECOND", "from the beginning, it is read anew");
        texts.answer(ProcFile::Loadavg, &message(18, &[1, 0, 0])).unwrap();
        assert_eq!(texts.kept.len(), 1);
    }

    #[test]
    fn open_files_keep_a_bounded_number_of_texts() {
        let mut texts = Texts::new();
        texts.current[2] = Some((Instant::now() + FRESH * 1000, "text".into()));
        for handle in 0..1000 {
            read(&mut texts, handle, 0);
        }
        assert_eq!(texts.kept.len(), MAX_KEPT);
        assert_eq!(read(&mut texts, 0, 1), b"ext", "a text that was dropped is the current one");
    }
}

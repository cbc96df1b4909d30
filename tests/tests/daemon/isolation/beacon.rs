//! Files that the host uses while a sandbox looks at them: a socket that listens, a FIFO that is read, and a file that is locked
//! and opened again and again. Everybody may use all of them.

use std::fs::File;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::fcntl::{Flock, FlockArg};
use tempfile::TempDir;

/// How often the host opens its file. A watch that hears of it does so after one of these at most.
const PERIOD: Duration = Duration::from_millis(5);

pub struct Beacon {
    directory: PathBuf,
    is_over: Arc<AtomicBool>,
    opener: Option<JoinHandle<()>>,
    _held: Option<(UnixListener, File, Flock<File>)>,
    _owned: Option<TempDir>,
}

impl Beacon {
    /// A beacon in a directory of the host that sandboxes see. An ordinary user cannot make one there: then it is a directory
    /// that does not exist.
    pub fn below_usr() -> Self {
        match tempfile::Builder::new().prefix("cove-beacon-").tempdir_in("/usr/local") {
            Ok(owned) => {
                let mut beacon = Self::at(owned.path());
                beacon._owned = Some(owned);
                beacon
            }
            Err(_) => Self {
                directory: "/usr/local/no-beacon".into(),
                is_over: Arc::default(),
                opener: None,
                _held: None,
                _owned: None,
            },
        }
    }

    /// A beacon in an empty directory that exists.
    pub fn at(directory: &Path) -> Self {
        let open_to_all = |path: &Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("our own file");
        };
        open_to_all(directory, 0o755);
        let path = |name: &str| directory.join(name);
        let socket = UnixListener::bind(path("socket")).expect("an empty directory");
        open_to_all(&path("socket"), 0o666);
        nix::unistd::mkfifo(&path("fifo"), nix::sys::stat::Mode::from_bits_truncate(0o666))
            .expect("an empty directory");
        open_to_all(&path("fifo"), 0o666);
        let reader =
            File::options().read(true).custom_flags(nix::libc::O_NONBLOCK).open(path("fifo")).expect("our own");
        std::fs::write(path("file"), "of the host").expect("an empty directory");
        open_to_all(&path("file"), 0o666);
        let locked = File::open(path("file")).expect("our own file");
        let lock =
            Flock::lock(locked, FlockArg::LockExclusiveNonblock).map_err(|(_, e)| e).expect("nobody else has it");
        let is_over = Arc::new(AtomicBool::new(false));
        let opener = std::thread::spawn({
            let (is_over, file) = (Arc::clone(&is_over), path("file"));
            move || {
                while !is_over.load(Ordering::Relaxed) {
                    let _ = File::open(&file);
                    std::thread::park_timeout(PERIOD);
                }
            }
        });
        let directory = directory.to_owned();
        Self { directory, is_over, opener: Some(opener), _held: Some((socket, reader, lock)), _owned: None }
    }

    pub fn path(&self) -> &Path {
        &self.directory
    }
}

impl Drop for Beacon {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(opener) = self.opener.take() {
            opener.thread().unpark();
            let _ = opener.join();
        }
    }
}

//! How a command gets to a daemon: the one that is named, the one that runs, or a private one for a single command.

use std::io::IsTerminal as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use shared_protocol::SessionId;
use shared_protocol::api::{CreateSessionRequest, PullProgress, SessionView};

use super::exit::{self, Failure};
use super::interrupt::Interrupts;
use super::output::say;
use super::private::{IMAGES, PrivateDaemon};
use super::progress::{Progress, Visibility};
use crate::client::{ApiKey, Client, ClientError, FindError, Hints, default_data_dir, find};

/// The longest wait for the end of a session that was made for this command.
const DESTROY_TIMEOUT: Duration = Duration::from_secs(15);

#[derive(Args, Debug, Default, Clone)]
#[command(next_help_heading = "Which daemon")]
pub struct DaemonArgs {
    /// Address of the daemon, as http://HOST:PORT, https://HOST:PORT or unix:PATH
    #[arg(long, env = "COVE_URL", value_name = "URL", hide_env = true)]
    pub url: Option<String>,
    /// API key of the daemon (default: the one in the data directory)
    #[arg(long, env = "COVE_API_KEY", value_name = "KEY", hide_env = true)]
    pub api_key: Option<String>,
    /// Data directory of the daemon, by which a running one is found
    #[arg(long, env = "COVE_DATA_DIR", value_name = "DIR", hide_env = true)]
    pub data_dir: Option<PathBuf>,
}

impl DaemonArgs {
    fn hints(&self) -> Hints {
        let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        Hints {
            url: given(&self.url),
            api_key: given(&self.api_key).map(ApiKey::new),
            data_dir: self.data_dir.clone().filter(|dir| !dir.as_os_str().is_empty()),
        }
    }

    pub fn client(&self) -> Result<Client, Failure> {
        let found = find(&self.hints())?;
        Ok(Client::new(found.endpoint, found.key))
    }

    /// A client of the running daemon, or else of a private one, which uses the images of the default data directory. A private
    /// daemon refuses a workspace, because a workspace is meant to outlive the session and would be removed with the daemon.
    pub async fn client_or_private(&self, wanted: &CreateSessionRequest) -> Result<Connection, Failure> {
        let hints = self.hints();
        match find(&hints) {
            Ok(found) => Ok(Connection { client: Client::new(found.endpoint, found.key), private: None }),
            Err(error @ FindError::NoDaemon { .. }) if wanted.workspace_id.is_some() => {
                Err(Failure::new(exit::UNREACHABLE, format!("a workspace needs a daemon that keeps running: {error}")))
            }
            Err(FindError::NoDaemon { data_dir }) => Self::start_private(Some(data_dir), wanted).await,
            Err(FindError::NoHome) => Self::start_private(None, wanted).await,
            Err(error) => Err(error.into()),
        }
    }

    async fn start_private(data_dir: Option<PathBuf>, wanted: &CreateSessionRequest) -> Result<Connection, Failure> {
        let data_dir = data_dir.or_else(|| default_data_dir().ok());
        let images = data_dir.map(|dir| dir.join(IMAGES));
        if let (Some(images), Some(_)) = (&images, image_of_registry(wanted)) {
            make_images_dir(images)?;
        }
        let private = PrivateDaemon::start(images.as_deref()).await?;
        if let Some(warning) = private.warning() {
            say(format!("{warning}; `cove doctor` says what to do"));
        }
        Ok(Connection { client: private.client(), private: Some(private) })
    }
}

/// Makes the directory of images: what is pulled by a private daemon is kept for the next one.
pub fn make_images_dir(images: &Path) -> Result<(), Failure> {
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(images);
    made.map_err(|e| Failure::failed(format!("cannot make {}: {e}", images.display())))
}

pub struct Connection {
    pub client: Client,
    private: Option<PrivateDaemon>,
}

impl Connection {
    pub fn is_private(&self) -> bool {
        self.private.is_some()
    }

    pub async fn close(self) {
        if let Some(private) = self.private {
            private.stop().await;
        }
    }
}

/// What to do with a session when the command is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AtEnd {
    Destroy,
    Keep,
}

/// Creates a session, runs `work` in it, and destroys it however the work ended. `work` has to end on a signal. A second signal
/// stops the wait for the destroy. If the create is cut off, the daemon removes the session itself.
pub async fn in_own_session(
    connecting: impl Future<Output = Result<Connection, Failure>>,
    wanted: &CreateSessionRequest,
    at_end: AtEnd,
    interrupts: &mut Interrupts,
    work: impl AsyncFnOnce(&Client, &SessionId, &mut Interrupts) -> Result<u8, Failure>,
) -> Result<u8, Failure> {
    let connection = tokio::select! {
        connection = connecting => connection?,
        signal = interrupts.next() => return Ok(exit::signalled(signal)),
    };
    let result = if connection.is_private() && at_end == AtEnd::Keep {
        let why = "--keep needs a running daemon: without one, the session ends with this command. Start one with `cove serve`";
        Err(Failure::usage(why))
    } else {
        session(&connection.client, wanted, at_end, interrupts, work).await
    };
    tokio::select! {
        () = connection.close() => {}
        // The private daemon was told to end, and does so by itself.
        _ = interrupts.next() => {}
    }
    result
}

async fn session(
    client: &Client,
    wanted: &CreateSessionRequest,
    at_end: AtEnd,
    interrupts: &mut Interrupts,
    work: impl AsyncFnOnce(&Client, &SessionId, &mut Interrupts) -> Result<u8, Failure>,
) -> Result<u8, Failure> {
    let session = tokio::select! {
        session = create_session(client, wanted) => session?,
        signal = interrupts.next() => return Ok(exit::signalled(signal)),
    };
    let result = work(client, &session.id, interrupts).await;
    if at_end == AtEnd::Destroy {
        tokio::select! {
            () = destroy(client, &session.id) => {}
            _ = interrupts.next() => say(format!("session {} still runs; end it with `cove rm {0}`", session.id)),
        }
    }
    result
}

/// The image of a create, if it is named as one of a registry.
fn image_of_registry(wanted: &CreateSessionRequest) -> Option<&str> {
    wanted.image.as_deref().filter(|image| image.contains([':', '/', '@']))
}

/// Creates a session. If the daemon pulls its image, this shows how far that is.
pub async fn create_session(client: &Client, wanted: &CreateSessionRequest) -> Result<SessionView, ClientError> {
    let visibility = if std::io::stderr().is_terminal() { Visibility::Shown } else { Visibility::Hidden };
    let mut bar: Option<Progress> = None;
    let tell = |progress: &PullProgress| {
        if progress.total_bytes > 0 {
            bar.get_or_insert_with(|| Progress::new(visibility, Some(progress.total_bytes))).set(progress.bytes);
        }
    };
    client.create_session(wanted, tell).await
}

async fn destroy(client: &Client, id: &SessionId) {
    let left = |why: String| say(format!("cannot end session {id}: {why}"));
    match tokio::time::timeout(DESTROY_TIMEOUT, client.destroy_session(id)).await {
        Ok(Ok(())) => {}
        // It has ended by itself meanwhile.
        Ok(Err(error)) if error.is("SESSION_NOT_FOUND") || error.is("SESSION_EXPIRED") => {}
        Ok(Err(error)) => left(error.to_string()),
        Err(_) => left("no answer".into()),
    }
}

//! The proxy between standard input and output, which an MCP client holds, and the daemon's `/mcp`.
//!
//! Messages are passed on as they are, so the daemon is the one implementation of the protocol, and what it learns this learns too. The
//! proxy adds what HTTP needs: the MCP session and the protocol version as headers. And it survives the daemon:
//!
//! ```text
//!  the connection is cut      ─▶ GET with the last event: the rest of the answer comes
//!  the daemon was restarted   ─▶ its MCP sessions are gone (404): `initialize` is sent again, for the same sandbox, by its name
//!  a tool's answer is lost    ─▶ the model is told that the command may have run. A tool is never called twice
//! ```
//!
//! The daemon sends nothing unasked, so there is no stream besides those of requests.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;
use tokio::sync::{Mutex, mpsc};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

use super::message::{Message, negotiated};
use crate::cli::connect::DaemonArgs;
use crate::cli::output::say;
use crate::client::{Client, ClientError, EventReader, McpAnswer, McpHeaders, mcp_session};

/// How long a request waits for a daemon that does not answer.
const RECONNECT_LIMIT: Duration = Duration::from_secs(30);
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// The most requests at once.
const MAX_REQUESTS: usize = 64;
/// The messages that wait to be written.
const OUTPUT_QUEUE: usize = 64;

const INITIALIZED: &[u8] = br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

/// How the proxy reaches the daemon.
pub enum Reach {
    /// The daemon that runs now: after a restart it may have another address.
    Found(DaemonArgs),
    /// The private daemon of this command.
    Private(Client),
}

impl Reach {
    pub fn client(&self) -> Result<Client, String> {
        match self {
            Self::Found(daemon) => daemon.client().map_err(|failure| failure.message().to_owned()),
            Self::Private(client) => Ok(client.clone()),
        }
    }
}

pub struct Proxy {
    reach: Reach,
    path: String,
    output: mpsc::Sender<String>,
    link: Mutex<Link>,
}

/// The MCP session, as the daemon knows it.
#[derive(Default)]
struct Link {
    session: Option<String>,
    version: Option<String>,
    /// The client's `initialize`, to send it again.
    initialize: Option<Bytes>,
    /// How often the session was opened.
    opened: u32,
}

/// Why a request has no answer.
enum Lost {
    /// It was not served, and can be sent again.
    NotServed(String),
    /// Nobody knows whether it was served.
    Unknown(String),
}

impl Proxy {
    pub fn new(reach: Reach, path: String) -> (Arc<Self>, mpsc::Receiver<String>) {
        let (output, lines) = mpsc::channel(OUTPUT_QUEUE);
        (Arc::new(Self { reach, path, output, link: Mutex::default() }), lines)
    }

    /// Ends the MCP session.
    pub async fn end(&self) {
        let headers = {
            let link = self.link.lock().await;
            link.session.is_some().then(|| headers(&link))
        };
        if let (Some(headers), Ok(client)) = (headers, self.reach.client()) {
            // A daemon that was restarted does not know it; whoever made the sandbox ends that.
            let _ = client.mcp_end(&self.path, &headers).await;
        }
    }

    /// Serves a request to its answer, or tells the client why there is none.
    async fn serve(&self, message: &Message) {
        if let Err(why) = self.answered(message).await {
            self.tell(message.failure(&why)).await;
        }
    }

    async fn tell(&self, line: String) {
        // If nobody reads, the command ends anyway.
        let _ = self.output.send(line).await;
    }

    async fn answered(&self, message: &Message) -> Result<(), String> {
        let mut pauses = Pauses::start();
        loop {
            let opened = self.link.lock().await.opened;
            match self.once(message).await {
                Ok(()) => return Ok(()),
                Err(Failed::Forgotten) => self.reopen(opened).await?,
                Err(Failed::Lost(Lost::NotServed(why))) => pauses.next(why).await?,
                Err(Failed::Lost(Lost::Unknown(why))) if message.may_repeat() => pauses.next(why).await?,
                Err(Failed::Lost(Lost::Unknown(why))) => {
                    return Err(format!(
                        "{why}. The command may have run, or may still run. The sandbox is still there: look before you repeat it."
                    ));
                }
                Err(Failed::Refused(why)) => return Err(why),
            }
        }
    }

    /// Sends a message once and passes on what comes, across cut connections.
    async fn once(&self, message: &Message) -> Result<(), Failed> {
        let is_first = message.is("initialize");
        let headers = {
            let mut link = self.link.lock().await;
            if is_first {
                *link = Link { initialize: Some(message.bytes.clone()), opened: link.opened, ..Link::default() };
            }
            match &message.own_version {
                Some(version) => headers_of_one(message, version),
                None => headers(&link),
            }
        };
        let client = self.reach.client().map_err(|why| Failed::Lost(Lost::NotServed(why)))?;
        match client.mcp_post(&self.path, &headers, message.bytes.clone()).await? {
            McpAnswer::Accepted => Ok(()),
            McpAnswer::Document(bytes) => {
                self.tell(String::from_utf8_lossy(&bytes).into_owned()).await;
                Ok(())
            }
            McpAnswer::Events { session, events } if is_first => {
                let answer = self.follow(message, events, &headers).await?;
                let mut link = self.link.lock().await;
                link.session = session;
                link.version = negotiated(&answer);
                link.opened += 1;
                Ok(())
            }
            McpAnswer::Events { events, .. } => self.follow(message, events, &headers).await.map(drop),
        }
    }

    /// Passes events on until the answer, which it returns.
    async fn follow(&self, message: &Message, mut events: EventReader, headers: &McpHeaders) -> Result<String, Failed> {
        let mut last = None;
        let mut pauses = Pauses::start();
        loop {
            match events.next().await {
                Ok(Some(event)) => {
                    last = event.id.or(last);
                    let is_answer = message.is_answered_by(&event.data);
                    if !event.data.is_empty() {
                        self.tell(event.data.clone()).await;
                    }
                    if is_answer {
                        return Ok(event.data);
                    }
                    pauses = Pauses::start();
                    continue;
                }
                // Without an id nothing can be asked for again.
                Ok(None) | Err(_) if last.is_none() => {
                    return Err(Failed::Lost(Lost::Unknown("the daemon ended the answer".into())));
                }
                Ok(None) | Err(_) => {}
            }
            let after = last.clone().unwrap_or_default();
            events = loop {
                let why = match self.reach.client() {
                    Err(why) => why,
                    Ok(client) => match client.mcp_resume(&self.path, headers, &after).await {
                        Ok(events) => break events,
                        Err(ClientError::Api(error)) if error.status == 404 => {
                            return Err(match message.may_repeat() {
                                true => Failed::Forgotten,
                                false => {
                                    Failed::Lost(Lost::Unknown("the daemon was restarted during this call".into()))
                                }
                            });
                        }
                        Err(error) => error.to_string(),
                    },
                };
                pauses.next(why).await.map_err(|why| Failed::Lost(Lost::Unknown(why)))?;
            };
            // An answer that is no longer kept is an empty stream, which must not be asked for without end.
            pauses
                .next("the answer is no longer there".into())
                .await
                .map_err(|why| Failed::Lost(Lost::Unknown(why)))?;
        }
    }

    /// Opens the MCP session again, unless somebody else has done it since `opened`.
    async fn reopen(&self, opened: u32) -> Result<(), String> {
        let mut link = self.link.lock().await;
        if link.opened != opened {
            return Ok(());
        }
        let Some(initialize) = link.initialize.clone() else {
            return Err("the MCP session is over, and was not opened here".into());
        };
        let request = Message::parse(&initialize).map_err(|error| error.to_string())?;
        let client = self.reach.client()?;
        let answer = client.mcp_post(&self.path, &Vec::new(), initialize).await.map_err(|error| error.to_string())?;
        let McpAnswer::Events { session, mut events } = answer else {
            return Err("the daemon did not open the MCP session again".into());
        };
        while let Some(event) = events.next().await.map_err(|error| error.to_string())? {
            if request.is_answered_by(&event.data) {
                link.version = negotiated(&event.data);
                break;
            }
        }
        link.session = session;
        link.opened += 1;
        let initialized = client.mcp_post(&self.path, &headers(&link), Bytes::from_static(INITIALIZED)).await;
        initialized.map_err(|error| error.to_string())?;
        say("connected to the daemon again");
        Ok(())
    }
}

/// Why a message was not served.
enum Failed {
    /// The daemon does not know the MCP session.
    Forgotten,
    Lost(Lost),
    Refused(String),
}

impl From<ClientError> for Failed {
    fn from(error: ClientError) -> Self {
        match &error {
            ClientError::Api(answer) if answer.status == 404 && answer.code.as_deref() == Some("NOT_FOUND") => {
                Self::Forgotten
            }
            ClientError::Unreachable { .. } => Self::Lost(Lost::NotServed(error.to_string())),
            ClientError::Lost(_) => Self::Lost(Lost::Unknown(error.to_string())),
            ClientError::Api(_) | ClientError::Protocol(_) | ClientError::BadKey(_) => Self::Refused(error.to_string()),
        }
    }
}

fn headers(link: &Link) -> McpHeaders {
    let session = link.session.as_deref().map(mcp_session);
    let version = link.version.clone().map(|version| ("mcp-protocol-version", version));
    session.into_iter().chain(version).collect()
}

/// The headers of a request that stands alone.
fn headers_of_one(message: &Message, version: &str) -> McpHeaders {
    let mut headers = vec![("mcp-protocol-version", version.to_owned())];
    headers.extend(message.method.clone().map(|method| ("mcp-method", method)));
    headers.extend(message.name.clone().map(|name| ("mcp-name", name)));
    headers
}

/// The pauses between attempts, which grow, and end.
struct Pauses {
    until: Instant,
    pause: Duration,
}

impl Pauses {
    fn start() -> Self {
        Self { until: Instant::now() + RECONNECT_LIMIT, pause: FIRST_PAUSE }
    }

    /// Waits before the next attempt. If there have been enough, returns why the last one failed.
    async fn next(&mut self, why: String) -> Result<(), String> {
        if Instant::now() + self.pause > self.until {
            return Err(why);
        }
        tokio::time::sleep(self.pause).await;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        Ok(())
    }
}

/// The requests that are being served.
pub struct Requests {
    proxy: Arc<Proxy>,
    tasks: JoinSet<()>,
    /// Requests of versions without MCP sessions, which end with their connection.
    alone: HashMap<String, AbortHandle>,
}

impl Requests {
    pub fn new(proxy: Arc<Proxy>) -> Self {
        Self { proxy, tasks: JoinSet::new(), alone: HashMap::new() }
    }

    /// Takes a line of the client. A request is served while the next lines are read; everything else is sent before them, and so is
    /// `initialize`, on which all others depend.
    pub async fn take(&mut self, line: &[u8]) {
        let message = match Message::parse(line) {
            Ok(message) => message,
            Err(error) => {
                let error = serde_json::json!({ "code": -32700, "message": format!("this is no message: {error}") });
                let answer = serde_json::json!({ "jsonrpc": "2.0", "id": Value::Null, "error": error });
                return self.proxy.tell(answer.to_string()).await;
            }
        };
        if let Some(handle) = message.cancels.as_ref().and_then(|id| self.alone.remove(&id.to_string())) {
            return handle.abort();
        }
        if !message.is_request() {
            if let Err(why) = self.proxy.answered(&message).await {
                say(format!("a message was not delivered: {why}"));
            }
            return;
        }
        if message.is("initialize") {
            return self.proxy.serve(&message).await;
        }
        while self.tasks.len() >= MAX_REQUESTS {
            self.tasks.join_next().await;
        }
        while self.tasks.try_join_next().is_some() {}
        self.alone.retain(|_, handle| !handle.is_finished());
        let alone = message.own_version.as_ref().and(message.id.as_ref()).map(Value::to_string);
        let proxy = self.proxy.clone();
        let handle = self.tasks.spawn(async move { proxy.serve(&message).await });
        self.alone.extend(alone.map(|id| (id, handle)));
    }

    /// Waits for the answers that are outstanding.
    pub async fn finish(&mut self) {
        while self.tasks.join_next().await.is_some() {}
    }
}

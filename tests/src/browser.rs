//! A real browser without a window: Chromium, driven by its DevTools protocol over one WebSocket.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use base64::Engine as _;
use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;

use crate::skipped;
use crate::wait::{DEADLINE, LONG_DEADLINE, wait_until};

/// The browser must not speak to anybody but the page: no updates, no profile of a user, no QUIC.
const ARGUMENTS: [&str; 12] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-port=0",
    "--window-size=1000,700",
    "about:blank",
];
const PROGRAMS: [&str; 2] = ["chromium", "chromium-browser"];
/// What the browser prints before the address of its DevTools.
const LISTENING: &str = "DevTools listening on ";
/// Where screenshots are kept, for people who want to look at them.
const SCREENSHOTS: &str = "COVE_E2E_SCREENSHOTS";

pub struct Browser {
    child: Child,
    socket: WebSocketStream<TcpStream>,
    /// The page's session in the protocol.
    page: String,
    number: u64,
    _profile: TempDir,
}

impl Browser {
    /// Starts a browser with one empty page. `None` if there is none on this host: then it prints the skip.
    pub async fn start(story: &str) -> Option<Self> {
        let profile = tempfile::Builder::new().prefix("cove-e2e-browser-").tempdir().expect("a temporary directory");
        let spawned = PROGRAMS.into_iter().find_map(|program| {
            let mut command = Command::new(program);
            command.arg(format!("--user-data-dir={}", profile.path().display())).args(ARGUMENTS);
            command.env("HOME", profile.path()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
            command.spawn().ok()
        });
        let Some(mut child) = spawned else {
            skipped(story, "there is no Chromium");
            return None;
        };
        let mut lines = BufReader::new(child.stderr.take().expect("a pipe")).lines().map_while(Result::ok);
        let url = lines.find_map(|line| line.strip_prefix(LISTENING).map(str::to_owned)).expect("the browser listens");
        // It would block if nobody read on.
        std::thread::spawn(move || lines.for_each(drop));
        let request = url.into_client_request().expect("an address");
        let authority = request.uri().authority().expect("a host").as_str().to_owned();
        let stream = TcpStream::connect(authority).await.expect("the browser accepts");
        let (socket, _) = tokio_tungstenite::client_async(request, stream).await.expect("an upgrade");
        let mut browser = Self { child, socket, page: String::new(), number: 0, _profile: profile };
        let target = browser.call("Target.createTarget", json!({ "url": "about:blank" })).await;
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let attached = browser.call("Target.attachToTarget", attach).await;
        browser.page = attached["sessionId"].as_str().expect("a session").to_owned();
        Some(browser)
    }

    /// Calls a method of the protocol. Events that come meanwhile are ignored.
    async fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.number += 1;
        let mut request = json!({ "id": self.number, "method": method, "params": parameters });
        if !self.page.is_empty() {
            request["sessionId"] = json!(self.page);
        }
        let answered = async {
            self.socket.send(Message::text(request.to_string())).await.expect("the browser reads");
            loop {
                let message = self.socket.next().await.expect("the browser lives").expect("a message");
                let Ok(text) = message.into_text() else { continue };
                let value: Value = serde_json::from_str(&text).unwrap_or_default();
                if value["id"] == self.number {
                    break value;
                }
            }
        };
        let answer = tokio::time::timeout(LONG_DEADLINE, answered).await.expect("an answer in time");
        assert!(answer.get("error").is_none(), "{method}: {answer}");
        answer["result"].clone()
    }

    /// Opens an address, as if a person had typed it.
    pub async fn open(&mut self, url: &str) {
        let opened = self.call("Page.navigate", json!({ "url": url })).await;
        assert!(opened.get("errorText").is_none(), "the page does not open: {opened}");
    }

    /// The value of an expression in the page, or nothing if it throws, as when the page is not there yet.
    pub async fn evaluate(&mut self, expression: &str) -> Option<Value> {
        let answer = self.call("Runtime.evaluate", json!({ "expression": expression, "returnByValue": true })).await;
        answer.get("exceptionDetails").is_none().then(|| answer["result"]["value"].clone())
    }

    /// Waits until an expression in the page has this value.
    pub async fn until(&mut self, expression: &str, value: impl Into<Value>) {
        let value = value.into();
        let what = format!("in the page, {expression} is {value}");
        let is_so = async || (self.evaluate(expression).await.as_ref() == Some(&value)).then_some(());
        wait_until(&what, LONG_DEADLINE, is_so).await;
    }

    /// Keeps a picture of the page, if somebody wants to look at it.
    pub async fn screenshot(&mut self, name: &str) {
        let Some(directory) = std::env::var_os(SCREENSHOTS).map(PathBuf::from) else { return };
        let answer = self.call("Page.captureScreenshot", json!({ "format": "png" })).await;
        let encoded = answer["data"].as_str().expect("a picture");
        let picture = base64::engine::general_purpose::STANDARD.decode(encoded).expect("base64");
        std::fs::write(directory.join(format!("{name}.png")), picture).expect("the directory of screenshots");
    }

    /// Closes the browser and waits for its end.
    pub async fn close(mut self) {
        // This is a call to the browser, not to the page.
        self.page.clear();
        self.call("Browser.close", json!({})).await;
        let is_over = async || self.child.try_wait().expect("our own child").map(drop);
        wait_until("the browser ends", DEADLINE, is_over).await;
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

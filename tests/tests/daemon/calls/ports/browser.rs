//! Dev servers in a real browser, through a link: Vite, which changes a page over a WebSocket without a reload, and Streamlit, whose
//! whole page comes over one. Both are installed in the sandbox, through the host's registries.

use e2e::daemon::{Daemon, Session, is_local_only};
use e2e::{Browser, LONG_DEADLINE, skipped, wait_until};
use serde_json::{Value, json};

/// The longest installation.
const INSTALL_MS: u64 = 280_000;
const HOUR: u64 = 3600;

const VITE_PORT: u16 = 5173;
const VITE_PAGE: &str =
    r#"<!doctype html><title>story</title><h1 id="text"></h1><script type="module" src="/main.js"></script>"#;
const VITE_MAIN: &str = r#"
import { text } from './text.js'
const show = (text) => { document.getElementById('text').textContent = text }
show(text)
import.meta.hot.accept('./text.js', (changed) => show(changed.text))
import.meta.hot.on('story:pong', () => { document.title = 'connected' })
import.meta.hot.send('story:ping', {})
"#;
/// Answers the page over the WebSocket, so that the page knows that it is connected.
const VITE_CONFIG: &str = r#"
const configureServer = (server) => server.ws.on('story:ping', (_, client) => client.send('story:pong', {}))
export default { plugins: [{ name: 'story', configureServer }] }
"#;

const STREAMLIT_PORT: u16 = 8501;
const STREAMLIT_PAGE: &str = r#"
import streamlit as st
if 'count' not in st.session_state: st.session_state.count = 0
if st.button('one more'): st.session_state.count += 1
st.header(f'count: {st.session_state.count}')
"#;

/// A session that may reach the registries of this host; `None`, and a line, if it has none.
async fn session(daemon: &Daemon, story: &str, tool: &str) -> Option<Session> {
    if is_local_only(story, "the daemon carries the same for containers, and they take longer") {
        return None;
    }
    let told = daemon.api().patient().get("/v1/network/packages").await.ok();
    if !told["found"].as_array().expect("a list").iter().any(|one| one["tool"] == tool) {
        skipped(story, &format!("{tool} of this host has told no registry"));
        return None;
    }
    let resources = json!({ "memory_mb": 3072, "disk_mb": 1536, "pids": 512 });
    Some(daemon.api().patient().create(json!({ "network": "packages", "resources": resources })).await)
}

/// Installs something. `false`, and a line, if the registry did not give it although nothing was denied.
async fn installs(session: &Session, story: &str, command: &str) -> bool {
    let request = json!({ "cmd": command, "timeout_ms": INSTALL_MS });
    let reply = session.api.patient().post(&session.path("/exec"), request).await.ok();
    assert_eq!(reply["network_denied"], Value::Null, "{reply}");
    if reply["exit_code"] != 0 {
        skipped(story, &format!("the registry of this host did not give it: {}", reply["output"]));
    }
    reply["exit_code"] == 0
}

/// Starts a server, waits until it listens, and opens it by a link.
async fn open(browser: &mut Browser, session: &Session, command: &str, port: u16) {
    session.sh(&format!("nohup {command} > server-{port}.log 2>&1 &")).await;
    let listens = wait_until("the server listens", LONG_DEADLINE, async || {
        let list = session.api.get(&session.path("/ports")).await.ok();
        list["ports"].as_array().expect("a list").iter().any(|view| view["port"] == port).then_some(())
    });
    listens.await;
    let path = session.path(&format!("/ports/{port}/url"));
    let link = session.api.post(&path, json!({ "ttl_seconds": HOUR })).await.ok();
    browser.open(link["url"].as_str().expect("an address")).await;
}

#[tokio::test]
async fn a_change_of_a_source_file_shows_in_the_browser_without_a_reload() {
    let story = "Vite in a browser";
    let daemon = Daemon::start().await;
    let Some(session) = session(&daemon, story, "npm").await else { return };
    let Some(mut browser) = Browser::start(story).await else { return };
    session.sh("mkdir -p /workspace/site").await;
    for (name, text) in [
        ("index.html", VITE_PAGE),
        ("main.js", VITE_MAIN),
        ("text.js", "export const text = 'before'\n"),
        ("vite.config.mjs", VITE_CONFIG),
    ] {
        session.put(&format!("site/{name}"), text).await.ok();
    }
    if !installs(&session, story, "cd /workspace/site && npm install --silent --no-fund --no-audit vite").await {
        return;
    }
    let command = format!("npx vite --port {VITE_PORT} --strictPort");
    open(&mut browser, &session, &command, VITE_PORT).await;
    let text = "document.getElementById('text').textContent";
    browser.until(text, "before").await;
    let shown = browser.evaluate("location.host + location.search").await.expect("an address");
    assert_eq!(shown, json!(format!("{VITE_PORT}-{}.localhost:{}", session.id, daemon.address.port())));
    browser.screenshot("vite-before").await;
    // A reload would forget it.
    browser.evaluate("window.mark = 'not reloaded'").await.expect("a value");
    // Before it has its WebSocket, the page would not hear of a change.
    browser.until("document.title", "connected").await;
    session.put("site/text.js", "export const text = 'after'\n").await.ok();
    browser.until(text, "after").await;
    assert_eq!(browser.evaluate("window.mark").await, Some(json!("not reloaded")));
    browser.screenshot("vite-after").await;
    browser.close().await;
    session.destroy().await;
    daemon.stop().await;
}

#[tokio::test]
async fn a_page_that_lives_on_a_websocket_works_in_a_browser() {
    let story = "Streamlit in a browser";
    let daemon = Daemon::start().await;
    let Some(session) = session(&daemon, story, "pip").await else { return };
    let Some(mut browser) = Browser::start(story).await else { return };
    session.put("app.py", STREAMLIT_PAGE).await.ok();
    let install = "python3 -m pip install -q --no-cache-dir --target /tmp/streamlit streamlit";
    if !installs(&session, story, install).await {
        return;
    }
    let command = format!(
        "env PYTHONPATH=/tmp/streamlit python3 -m streamlit run app.py --global.developmentMode false --server.port {STREAMLIT_PORT} --server.headless true --browser.gatherUsageStats false"
    );
    open(&mut browser, &session, &command, STREAMLIT_PORT).await;
    let count = "document.querySelector('h2')?.innerText.trim()";
    browser.until(count, "count: 0").await;
    let button = "[...document.querySelectorAll('button')].find((b) => b.innerText.includes('one more'))";
    // The page comes in parts.
    browser.until(&format!("String(!!{button})"), "true").await;
    browser.evaluate(&format!("{button}.click(), true")).await.expect("a button");
    browser.until(count, "count: 1").await;
    browser.screenshot("streamlit").await;
    browser.close().await;
    session.destroy().await;
    daemon.stop().await;
}

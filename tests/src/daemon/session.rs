//! One session, used as an agent would use it.

use bytes::Bytes;
use hyper::Method;
use serde_json::{Value, json};

use super::{Answer, Api, EventStream};

#[derive(Debug, Clone)]
pub struct Session {
    pub api: Api,
    pub id: String,
}

impl Session {
    pub fn path(&self, rest: &str) -> String {
        format!("/v1/sessions/{}{rest}", self.id)
    }

    pub async fn view(&self) -> Value {
        self.api.get(&self.path("")).await.ok()
    }

    pub async fn ask(&self, request: Value) -> Answer {
        self.api.post(&self.path("/exec"), request).await
    }

    /// Runs a command in the main shell and returns the reply.
    pub async fn exec(&self, cmd: &str) -> Value {
        self.ask(json!({ "cmd": cmd })).await.ok()
    }

    /// Runs a command that must succeed and returns its output.
    pub async fn sh(&self, cmd: &str) -> String {
        let reply = self.exec(cmd).await;
        assert_eq!(reply["exit_code"], 0, "{cmd:?} failed: {reply}");
        reply["output"].as_str().expect("output is text").to_owned()
    }

    pub async fn run(&self, argv: &[&str]) -> Value {
        self.api.post(&self.path("/run"), json!({ "argv": argv })).await.ok()
    }

    pub async fn stream(&self, request: Value) -> EventStream {
        self.api.events(Method::POST, &self.path("/exec/stream"), request).await
    }

    pub async fn reattach(&self, exec_id: &str, from: u64) -> EventStream {
        let path = self.path(&format!("/execs/{exec_id}?from={from}&follow=1"));
        self.api.events(Method::GET, &path, Value::Null).await
    }

    /// Uploads a file. The path is written as in a URL.
    pub async fn put(&self, path: &str, content: impl Into<Bytes>) -> Answer {
        self.api.send(Method::PUT, &self.path(&format!("/files/{path}")), content).await
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.api.get(&self.path(&format!("/files/{path}"))).await
    }

    /// Pauses or resumes the session: `what` is `pause` or `resume`.
    pub async fn change(&self, what: &str) -> Answer {
        self.api.send(Method::POST, &self.path(&format!("/{what}")), "").await
    }

    pub async fn destroy(&self) {
        self.api.delete(&self.path("")).await.ok();
    }
}

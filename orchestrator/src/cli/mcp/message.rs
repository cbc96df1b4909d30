//! What the proxy has to know of a message: whether it wants an answer, and whether it may be sent twice. The rest is passed on as it
//! came. Pure.

use bytes::Bytes;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

/// The version that a request names by itself, in the versions without a handshake.
const VERSION_KEY: &str = "io.modelcontextprotocol/protocolVersion";

/// A message of the client.
#[derive(Debug, Clone)]
pub struct Message {
    pub bytes: Bytes,
    pub method: Option<String>,
    /// The id of a request.
    pub id: Option<Value>,
    /// The protocol version of a request that needs no MCP session.
    pub own_version: Option<String>,
    /// What the request is about: a tool, a prompt or a resource.
    pub name: Option<String>,
    /// The request that a cancellation is about.
    pub cancels: Option<Value>,
}

impl Message {
    pub fn parse(line: &[u8]) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        struct Shape {
            method: Option<String>,
            id: Option<Value>,
            #[serde(default)]
            params: Value,
        }
        let Shape { method, id, params } = serde_json::from_slice(line)?;
        let text = |value: &Value| value.as_str().map(str::to_owned);
        Ok(Self {
            bytes: Bytes::copy_from_slice(line),
            own_version: text(&params["_meta"][VERSION_KEY]),
            name: text(&params["name"]).or_else(|| text(&params["uri"])),
            cancels: (method.as_deref() == Some("notifications/cancelled")).then(|| params["requestId"].clone()),
            method,
            id,
        })
    }

    pub fn is(&self, method: &str) -> bool {
        self.method.as_deref() == Some(method)
    }

    /// Whether it is a request, which gets an answer.
    pub fn is_request(&self) -> bool {
        self.method.is_some() && self.id.is_some()
    }

    /// Whether it may be sent again if nobody knows whether it arrived. A tool may have changed something.
    pub fn may_repeat(&self) -> bool {
        !self.is("tools/call")
    }

    /// The answer to a request that cannot be served. For a tool it is a result, because clients show that to the model.
    pub fn failure(&self, why: &str) -> String {
        let id = &self.id;
        match self.is("tools/call") {
            true => {
                let content = json!([{ "type": "text", "text": why }]);
                json!({ "jsonrpc": "2.0", "id": id, "result": { "content": content, "isError": true } })
            }
            false => json!({ "jsonrpc": "2.0", "id": id, "error": { "code": -32000, "message": why } }),
        }
        .to_string()
    }

    /// Whether a message of the daemon is the answer to this one.
    pub fn is_answered_by(&self, data: &str) -> bool {
        #[derive(Deserialize)]
        struct Shape {
            id: Option<Value>,
            result: Option<IgnoredAny>,
            error: Option<IgnoredAny>,
        }
        serde_json::from_str::<Shape>(data)
            .is_ok_and(|answer| answer.id == self.id && (answer.result.is_some() || answer.error.is_some()))
    }
}

/// The protocol version in the answer to `initialize`.
pub fn negotiated(answer: &str) -> Option<String> {
    let answer: Value = serde_json::from_str(answer).ok()?;
    answer["result"]["protocolVersion"].as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_known_by_what_it_wants() {
        let request = Message::parse(br#"{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"bash"}}"#);
        let request = request.unwrap();
        assert!(request.is_request() && !request.may_repeat());
        assert_eq!((request.name.as_deref(), &request.own_version), (Some("bash"), &None));
        let cancel = br#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"a"}}"#;
        let cancel = Message::parse(cancel).unwrap();
        assert_eq!((cancel.is_request(), cancel.cancels), (false, Some(json!("a"))));
        let answer = Message::parse(br#"{"jsonrpc":"2.0","id":1,"result":{}}"#).unwrap();
        assert!(!answer.is_request());
        assert!(Message::parse(b"[]").is_err() && Message::parse(b"{").is_err());
    }

    #[test]
    fn an_answer_is_known_by_its_id() {
        let request = Message::parse(br#"{"id":1,"method":"ping"}"#).unwrap();
        assert!(request.is_answered_by(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#));
        assert!(request.is_answered_by(&request.failure("x")));
        for other in
            [r#"{"id":2,"result":{}}"#, r#"{"method":"notifications/progress"}"#, r#"{"id":1,"method":"x"}"#, ""]
        {
            assert!(!request.is_answered_by(other), "{other}");
        }
    }

    #[test]
    fn a_model_sees_why_its_call_failed() {
        let call = Message::parse(br#"{"id":1,"method":"tools/call"}"#).unwrap();
        let told: Value = serde_json::from_str(&call.failure("gone")).unwrap();
        assert_eq!((&told["result"]["isError"], &told["result"]["content"][0]["text"]), (&json!(true), &json!("gone")));
    }
}

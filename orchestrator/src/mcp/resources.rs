//! Resources: files of the sandbox as `cove://files/PATH`, and the output of commands as `cove://execs/EXEC_ID`.
//!
//! A path after `cove://files/` is relative to `/workspace`; with one more slash it is absolute. What a client reads is bounded: a file
//! that is larger is refused, with the tool that reads parts of it, and of a long output the end is shown. A client that only
//! lists resources makes no sandbox.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::StreamExt as _;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use rmcp::model::{ErrorData, ReadResourceResult, Resource, ResourceContents, ResourceTemplate};
use shared_protocol::runner::FileKind;
use shared_protocol::{ErrorBody, ErrorCode, ExecId, SessionId};

use super::sandbox::Sandbox;
use crate::service::commands::{ExecEvent, PageSpec, Until};
use crate::service::files::{Depth, Place, SandboxPath};
use crate::service::{CallError, Caller, Service};

const FILES: &str = "cove://files/";
const EXECS: &str = "cove://execs/";
/// The largest file that is read as a resource.
const MAX_FILE_BYTES: usize = 1 << 20;
/// The most bytes of a command's output.
const MAX_OUTPUT_BYTES: usize = 256 << 10;
/// The most files in the list.
const MAX_LISTED_FILES: usize = 200;
/// The most commands in the list.
const MAX_LISTED_EXECS: u64 = 50;

/// What stays as it is in the path of a URI.
const PATH: &AsciiSet = &NON_ALPHANUMERIC.remove(b'/').remove(b'.').remove(b'-').remove(b'_').remove(b'~');

pub fn templates() -> Vec<ResourceTemplate> {
    vec![
        ResourceTemplate::new("cove://files/{+path}", "file").with_title("A file of the sandbox").with_description(
            "A file, by its path relative to /workspace; an absolute path begins with a second slash",
        ),
        ResourceTemplate::new("cove://execs/{exec_id}", "output")
            .with_title("The output of a command")
            .with_description(
                "What a command has printed so far, by the id that its result has; the end of it, if it is long",
            )
            .with_mime_type("text/plain"),
    ]
}

/// The files at the top of the workspace, and the last commands.
pub async fn list(service: &Service, caller: &Caller, sandbox: &Sandbox) -> Result<Vec<Resource>, ErrorData> {
    let Some(id) = sandbox.session_if_made().await else { return Ok(Vec::new()) };
    let place = Place::Session(id.clone());
    let files = service.files().list(caller, &place, &SandboxPath::workspace(), Depth::Flat).await.map_err(refused)?;
    let files = files.entries.into_iter().filter(|file| file.kind == FileKind::File && file.path_base64.is_none());
    let mut listed: Vec<Resource> = files
        .take(MAX_LISTED_FILES)
        .map(|file| {
            let uri = format!("{FILES}{}", utf8_percent_encode(&file.path, PATH));
            Resource::new(uri, file.path).with_size(file.size)
        })
        .collect();
    let page = PageSpec::new(/* after */ None, Some(MAX_LISTED_EXECS)).map_err(|e| invalid(e.to_string()))?;
    let execs = service.commands().list(caller, &id, &page).await.map_err(refused)?.execs;
    listed.extend(execs.into_iter().map(|exec| {
        let name = format!("output of {}", exec.exec_id);
        Resource::new(format!("{EXECS}{}", exec.exec_id), name)
            .with_mime_type("text/plain")
            .with_size(exec.output_bytes)
    }));
    Ok(listed)
}

/// What a URI names.
#[derive(Debug, PartialEq)]
enum Address {
    File(SandboxPath),
    Exec(ExecId),
}

impl Address {
    fn parse(uri: &str) -> Result<Self, String> {
        if let Some(path) = uri.strip_prefix(FILES) {
            let path: Vec<u8> = percent_decode_str(path).collect();
            return SandboxPath::new("the path", path).map(Self::File).map_err(|error| error.to_string());
        }
        if let Some(id) = uri.strip_prefix(EXECS) {
            return ExecId::new(id).map(Self::Exec).map_err(|error| error.to_string());
        }
        Err(format!("a resource is {FILES}PATH or {EXECS}EXEC_ID"))
    }
}

pub async fn read(
    service: &Service,
    caller: &Caller,
    sandbox: &Sandbox,
    uri: &str,
) -> Result<ReadResourceResult, ErrorData> {
    let address = Address::parse(uri).map_err(invalid)?;
    let Some(id) = sandbox.session_if_made().await else {
        return Err(ErrorData::resource_not_found("there is no sandbox yet; the first tool call makes it", None));
    };
    let contents = match address {
        Address::File(path) => file(service, caller, id, &path, uri).await?,
        Address::Exec(exec) => output(service, caller, &id, &exec, uri).await?,
    };
    Ok(ReadResourceResult::new(vec![contents]))
}

async fn file(
    service: &Service,
    caller: &Caller,
    id: SessionId,
    path: &SandboxPath,
    uri: &str,
) -> Result<ResourceContents, ErrorData> {
    let too_large = || {
        let most = MAX_FILE_BYTES >> 20;
        invalid(format!("the file is larger than {most} MiB; read a part of it with a tool"))
    };
    let mut content =
        service.files().read(caller, &Place::Session(id), path, /* range */ None).await.map_err(refused)?;
    if content.length().is_some_and(|length| length > MAX_FILE_BYTES as u64) {
        return Err(too_large());
    }
    let mut bytes = Vec::new();
    while let Some(piece) = content.next().await {
        bytes.extend_from_slice(&piece.map_err(refused)?);
        if bytes.len() > MAX_FILE_BYTES {
            return Err(too_large());
        }
    }
    Ok(match String::from_utf8(bytes) {
        Ok(text) => ResourceContents::text(text, uri),
        Err(error) => {
            ResourceContents::blob(STANDARD.encode(error.into_bytes()), uri).with_mime_type("application/octet-stream")
        }
    })
}

/// The end of what a command has printed so far.
async fn output(
    service: &Service,
    caller: &Caller,
    id: &SessionId,
    exec: &ExecId,
    uri: &str,
) -> Result<ResourceContents, ErrorData> {
    let mut stream = service.commands().reattach(caller, id, exec, /* from */ 0, Until::Now).await.map_err(refused)?;
    let mut tail = Tail::default();
    while let Some(event) = stream.next().await {
        match event {
            ExecEvent::Output { piece, .. } => tail.push(&piece.text),
            ExecEvent::Gap { bytes, .. } => tail.left_out += bytes,
            ExecEvent::Failed(error) => return Err(refused(error)),
            _ => {}
        }
    }
    Ok(ResourceContents::text(tail.finish(), uri))
}

/// The last bytes of a text that comes in pieces.
#[derive(Default)]
struct Tail {
    text: String,
    left_out: u64,
}

impl Tail {
    fn push(&mut self, piece: &str) {
        self.text.push_str(piece);
        // Twice the limit, so that not every piece moves the rest.
        if self.text.len() > 2 * MAX_OUTPUT_BYTES {
            self.cut();
        }
    }

    fn cut(&mut self) {
        let over = self.text.len().saturating_sub(MAX_OUTPUT_BYTES);
        let start = (over..=self.text.len()).find(|index| self.text.is_char_boundary(*index)).unwrap_or_default();
        self.text.drain(..start);
        self.left_out += start as u64;
    }

    fn finish(mut self) -> String {
        self.cut();
        match self.left_out {
            0 => self.text,
            bytes => format!("[{bytes} bytes left out]\n{}", self.text),
        }
    }
}

fn invalid(message: String) -> ErrorData {
    ErrorData::invalid_params(message, None)
}

/// A call that failed, as an error of the protocol. What does not exist is told apart.
fn refused(error: CallError) -> ErrorData {
    let body = ErrorBody::from(error);
    match body.error_code {
        ErrorCode::FileNotFound | ErrorCode::ExecNotFound | ErrorCode::SessionNotFound => {
            ErrorData::resource_not_found(body.message, None)
        }
        ErrorCode::InternalError => ErrorData::internal_error(body.message, None),
        _ => invalid(body.message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_file_or_an_output_and_nothing_else() {
        let file = |path: &str| Ok(Address::File(SandboxPath::new("p", path).unwrap()));
        assert_eq!(Address::parse("cove://files/a%20b/c.txt"), file("a b/c.txt"));
        assert_eq!(Address::parse("cove://files//etc/hosts"), file("/etc/hosts"));
        assert_eq!(Address::parse("cove://execs/x1"), Ok(Address::Exec(ExecId::new("x1").unwrap())));
        for bad in
            ["", "cove://files/", "cove://files/../x", "cove://files/a%00b", "cove://execs/a/b", "file:///etc/hosts"]
        {
            assert!(Address::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn of_a_long_output_the_end_is_shown_and_the_rest_is_counted() {
        let mut tail = Tail::default();
        for _ in 0..3 * MAX_OUTPUT_BYTES / 2 {
            tail.push("äx");
        }
        let text = tail.finish();
        let (note, rest) = text.split_once('\n').unwrap();
        let left_out: usize =
            note.trim_matches(|c: char| !c.is_ascii_digit()).split(' ').next().unwrap().parse().unwrap();
        assert!(rest.len() <= MAX_OUTPUT_BYTES && rest.ends_with("äx"));
        assert_eq!(left_out + rest.len(), 3 * MAX_OUTPUT_BYTES / 2 * 3);
    }
}

//! The arguments of each tool. The schema that models see is made from these types, so the doc comments are written for models.
//!
//! A wrong call gets an error with the name of the argument, and with all arguments that the tool has.

use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use shared_protocol::{ExecId, SnapshotId};

use super::definition;
use crate::service::InvalidRequest;
use crate::service::files::SandboxPath;

/// The most seconds that `wait` waits in one call.
pub const MAX_WAIT_SECONDS: u64 = 600;
/// The most edits in one call of `edit`.
const MAX_EDITS: usize = 100;
/// The most lines of context around a match of `grep`.
const MAX_CONTEXT_LINES: usize = 50;
/// The most hosts in one call of `network_request`.
const MAX_HOSTS: usize = 32;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReadArguments {
    /// The file, absolute or relative to /workspace.
    pub path: String,
    /// The first line to show; lines count from 1.
    pub offset: Option<u64>,
    /// How many lines to show; 2000 if it is absent.
    pub limit: Option<u64>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WriteArguments {
    /// The file, absolute or relative to /workspace. Missing directories are created.
    pub path: String,
    /// The whole new content.
    pub content: String,
}

/// One replacement.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EditArguments {
    /// The file, absolute or relative to /workspace.
    pub path: String,
    /// The text to replace, exactly as it stands in the file, without line numbers. It must match once, unless replace_all is true.
    pub old_string: Option<String>,
    /// The text to put in its place.
    pub new_string: Option<String>,
    /// Replace every match.
    pub replace_all: Option<bool>,
    /// Several replacements in place of old_string and new_string. They are made one after the other: all of them, or none.
    pub edits: Option<Vec<OneEdit>>,
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OneEdit {
    /// The text to replace, exactly as it stands in the file.
    pub old_string: String,
    /// The text to put in its place.
    pub new_string: String,
    /// Replace every match.
    #[serde(default)]
    pub replace_all: bool,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DiffArguments {
    /// The file, absolute or relative to /workspace.
    pub path: String,
    /// The file to compare it with. If it is absent, the file is compared with what it was at the last call of read, write, edit or diff.
    pub other: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DeleteArguments {
    /// The file or directory, absolute or relative to /workspace.
    pub path: String,
    /// Delete a directory with everything in it.
    pub recursive: Option<bool>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LsArguments {
    /// The directory, absolute or relative to /workspace; /workspace if it is absent.
    pub path: Option<String>,
    /// How many levels of directories to show; 2 if it is absent.
    pub depth: Option<usize>,
    /// Show what git ignores, too.
    pub include_ignored: Option<bool>,
}

/// What `grep` shows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum GrepMode {
    #[default]
    Lines,
    Files,
    Counts,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GrepArguments {
    /// A regular expression in the syntax of ripgrep, without look-around and backreferences.
    pub pattern: String,
    /// The file or directory to search, absolute or relative to /workspace; /workspace if it is absent.
    pub path: Option<String>,
    /// Search only files whose name matches this glob, such as *.py or src/**/*.ts.
    pub glob: Option<String>,
    /// Search only files of this type, such as py, rust, js, ts, go, java, c, md, json.
    #[serde(rename = "type")]
    pub file_type: Option<String>,
    /// Show the matching lines (lines), only the names of files (files), or the number of matches in each file (counts).
    pub mode: Option<GrepMode>,
    /// Do not distinguish upper and lower case.
    pub ignore_case: Option<bool>,
    /// The pattern is plain text, not a regular expression.
    pub fixed: Option<bool>,
    /// Match whole words only.
    pub word: Option<bool>,
    /// Let the pattern match across lines.
    pub multiline: Option<bool>,
    /// How many lines to show before and after each match.
    pub context: Option<usize>,
    /// The most matches to show; 200 if it is absent.
    pub limit: Option<usize>,
    /// Search what git ignores, too.
    pub include_ignored: Option<bool>,
}

/// The kind of what `find` looks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum FindKind {
    #[serde(alias = "f")]
    File,
    #[serde(alias = "d")]
    Directory,
    #[serde(alias = "l")]
    Symlink,
}

/// The order of what `find` shows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum FindOrder {
    #[default]
    Path,
    Modified,
    Size,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FindArguments {
    /// The directory to look in, absolute or relative to /workspace; /workspace if it is absent.
    pub path: Option<String>,
    /// A glob. Without a slash it matches names at any depth (*.py); with one it matches the path (src/**/test_*.py).
    #[serde(alias = "name")]
    pub pattern: Option<String>,
    /// Only files, directories or symbolic links.
    #[serde(rename = "type")]
    pub kind: Option<FindKind>,
    /// Only files of at least this size, such as 10k or 5M.
    pub min_size: Option<String>,
    /// Only files of at most this size.
    pub max_size: Option<String>,
    /// Only what was changed within this many seconds.
    pub modified_within_seconds: Option<u64>,
    /// How many levels of directories to enter.
    pub depth: Option<usize>,
    /// The order: path, modified (the newest first) or size (the largest first).
    pub sort: Option<FindOrder>,
    /// The most results; 500 if it is absent.
    pub limit: Option<usize>,
    /// Look at what git ignores, too.
    pub include_ignored: Option<bool>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BashArguments {
    /// The command, in the syntax of bash. Directory, variables and functions stay for the next command.
    pub command: Option<String>,
    /// Start the shell anew, without variables and functions. Alone or before the command.
    pub restart: Option<bool>,
    /// The time limit in seconds. After it the command is interrupted, and the shell stays usable.
    #[serde(alias = "timeout")]
    pub timeout_seconds: Option<u64>,
    /// Start the command in the background and return its exec_id, as run_background does.
    pub background: Option<bool>,
}

/// One text, or a list of words.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum GitWords {
    Text(String),
    Words(Vec<String>),
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GitArguments {
    /// The arguments of git: one text such as "log --oneline -5", or a list of words.
    pub args: GitWords,
    /// The directory, absolute or relative to /workspace; the shell's directory if it is absent.
    pub cwd: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunBackgroundArguments {
    /// The command, in the syntax of bash. It starts with a copy of the shell's directory and variables.
    pub command: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WaitArguments {
    /// The exec_id that run_background or bash returned.
    pub exec_id: ExecId,
    /// How many seconds to wait; 60 if it is absent, at most 600.
    pub timeout_seconds: Option<u64>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OutputArguments {
    /// The exec_id of a command.
    pub exec_id: ExecId,
    /// The offset of the first byte to show; 0 if it is absent.
    pub from: Option<u64>,
    /// The most bytes to show; 32768 if it is absent.
    pub max_bytes: Option<u64>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KillArguments {
    /// The exec_id of a command.
    pub exec_id: ExecId,
    /// A signal to send, such as TERM, HUP or USR1. If it is absent, the command is ended: by INT, and by TERM and KILL if it goes on.
    pub signal: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExposePortArguments {
    /// The port on which a server in the sandbox listens.
    pub port: u16,
    /// How long the link is good, in seconds; an hour if it is absent.
    pub ttl_seconds: Option<u64>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SnapshotArguments {
    /// A name for the snapshot.
    pub name: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RestoreArguments {
    /// The snapshot_id that snapshot returned.
    pub snapshot_id: SnapshotId,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NetworkRequestArguments {
    /// The hosts, as in the notes about denied connections: example.com, example.com:22 or *.example.com.
    pub hosts: Vec<String>,
}

/// The arguments of a call, by tool.
#[derive(Debug)]
pub enum ToolArguments {
    Read(ReadArguments),
    Write(WriteArguments),
    Edit(EditArguments),
    Diff(DiffArguments),
    Delete(DeleteArguments),
    Ls(LsArguments),
    Grep(GrepArguments),
    Find(FindArguments),
    Bash(BashArguments),
    Git(GitArguments),
    RunBackground(RunBackgroundArguments),
    Wait(WaitArguments),
    Output(OutputArguments),
    Kill(KillArguments),
    ExposePort(ExposePortArguments),
    Snapshot(SnapshotArguments),
    Restore(RestoreArguments),
    NetworkRequest(NetworkRequestArguments),
}

impl ToolArguments {
    /// Reads the arguments of a call, and checks what can be checked without a sandbox.
    pub fn read(name: &str, arguments: Map<String, Value>) -> Result<Self, InvalidRequest> {
        let arguments = match name {
            "read" => Self::Read(of(name, arguments)?),
            "write" => Self::Write(of(name, arguments)?),
            "edit" => Self::Edit(of(name, arguments)?),
            "diff" => Self::Diff(of(name, arguments)?),
            "delete" => Self::Delete(of(name, arguments)?),
            "ls" => Self::Ls(of(name, arguments)?),
            "grep" => Self::Grep(of(name, arguments)?),
            "find" => Self::Find(of(name, arguments)?),
            "bash" => Self::Bash(of(name, arguments)?),
            "git" => Self::Git(of(name, arguments)?),
            "run_background" => Self::RunBackground(of(name, arguments)?),
            "wait" => Self::Wait(of(name, arguments)?),
            "output" => Self::Output(of(name, arguments)?),
            "kill" => Self::Kill(of(name, arguments)?),
            "expose_port" => Self::ExposePort(of(name, arguments)?),
            "snapshot" => Self::Snapshot(of(name, arguments)?),
            "restore" => Self::Restore(of(name, arguments)?),
            "network_request" => Self::NetworkRequest(of(name, arguments)?),
            _ => return Err(InvalidRequest::new(definition::unknown(name))),
        };
        arguments.check().map_err(|error| InvalidRequest::new(format!("{name}: {error}")))?;
        Ok(arguments)
    }

    fn check(&self) -> Result<(), InvalidRequest> {
        let path = |path: &str| SandboxPath::new("path", path).map(drop);
        let some_path = |given: &Option<String>| given.as_deref().map_or(Ok(()), path);
        match self {
            Self::Read(arguments) => {
                path(&arguments.path)?;
                refuse_if(arguments.offset == Some(0), "offset is 0; lines count from 1")?;
                refuse_if(arguments.limit == Some(0), "limit is 0; give at least 1, or leave it out")
            }
            Self::Write(arguments) => path(&arguments.path),
            Self::Edit(arguments) => {
                path(&arguments.path)?;
                arguments.list().map(drop)
            }
            Self::Diff(arguments) => path(&arguments.path).and_then(|()| some_path(&arguments.other)),
            Self::Delete(arguments) => path(&arguments.path),
            Self::Ls(arguments) => {
                some_path(&arguments.path)?;
                refuse_if(arguments.depth == Some(0), "depth is 0; 1 shows the directory itself")
            }
            Self::Grep(arguments) => {
                some_path(&arguments.path)?;
                refuse_if(arguments.pattern.is_empty(), "pattern is empty")?;
                let is_wide = arguments.context.is_some_and(|lines| lines > MAX_CONTEXT_LINES);
                refuse_if(is_wide, format!("context is at most {MAX_CONTEXT_LINES}"))
            }
            Self::Find(arguments) => some_path(&arguments.path),
            Self::Bash(arguments) => {
                let is_nothing = arguments.command.is_none() && arguments.restart != Some(true);
                refuse_if(is_nothing, "give command, or restart: true")?;
                let is_both = arguments.background == Some(true) && arguments.command.is_none();
                refuse_if(is_both, "background needs a command")?;
                refuse_if(arguments.timeout_seconds == Some(0), "timeout_seconds is 0; leave it out for the default")
            }
            Self::Git(arguments) => some_path(&arguments.cwd).and_then(|()| arguments.words().map(drop)),
            Self::Wait(arguments) => {
                let is_long = arguments.timeout_seconds.is_some_and(|seconds| seconds > MAX_WAIT_SECONDS);
                refuse_if(is_long, format!("timeout_seconds is at most {MAX_WAIT_SECONDS}; call wait again after it"))
            }
            Self::ExposePort(arguments) => refuse_if(arguments.port == 0, "a port is a number from 1 to 65535"),
            Self::NetworkRequest(arguments) => {
                refuse_if(arguments.hosts.is_empty(), "hosts is empty")?;
                refuse_if(arguments.hosts.len() > MAX_HOSTS, format!("at most {MAX_HOSTS} hosts in one call"))
            }
            Self::RunBackground(_) | Self::Output(_) | Self::Kill(_) | Self::Snapshot(_) | Self::Restore(_) => Ok(()),
        }
    }
}

fn refuse_if(is_wrong: bool, why: impl Into<String>) -> Result<(), InvalidRequest> {
    if is_wrong { Err(InvalidRequest::new(why)) } else { Ok(()) }
}

/// The arguments as their type, or what is wrong with them and what there is.
fn of<T: DeserializeOwned>(name: &str, arguments: Map<String, Value>) -> Result<T, InvalidRequest> {
    // A model that leaves an argument out may send null.
    let given: Map<String, Value> = arguments.into_iter().filter(|(_, value)| !value.is_null()).collect();
    serde_path_to_error::deserialize(Value::Object(given)).map_err(|error| {
        let (path, said) = (error.path().to_string(), error.inner().to_string());
        // All arguments come in the next sentence, with their kinds.
        let (said, place) = match said.split_once(", expected one of ") {
            Some((said, _)) => (said, String::new()),
            None if path == "." => (said.as_str(), String::new()),
            None => (said.as_str(), format!(" ({path})")),
        };
        InvalidRequest::new(format!("{name}: {said}{place}. {}", definition::arguments_of(name)))
    })
}

impl EditArguments {
    /// The replacements, in whichever way they were given.
    pub fn list(&self) -> Result<Vec<OneEdit>, InvalidRequest> {
        match (&self.old_string, &self.new_string, &self.edits) {
            (Some(old), Some(new), None) => Ok(vec![OneEdit {
                old_string: old.clone(),
                new_string: new.clone(),
                replace_all: self.replace_all.unwrap_or(false),
            }]),
            (None, None, Some(edits)) if edits.is_empty() => Err(InvalidRequest::new("edits is empty")),
            (None, None, Some(edits)) if edits.len() > MAX_EDITS => {
                Err(InvalidRequest::new(format!("at most {MAX_EDITS} edits in one call")))
            }
            (None, None, Some(_)) if self.replace_all.is_some() => {
                Err(InvalidRequest::new("replace_all belongs into each of the edits"))
            }
            (None, None, Some(edits)) => Ok(edits.clone()),
            _ => Err(InvalidRequest::new("give old_string and new_string, or edits with several of them")),
        }
    }
}

impl GitArguments {
    /// The words that git gets.
    pub fn words(&self) -> Result<Vec<String>, InvalidRequest> {
        let words = match &self.args {
            GitWords::Words(words) => words.clone(),
            GitWords::Text(text) => shell_words(text)
                .ok_or_else(|| InvalidRequest::new("args has an open quote; give a list of words, or close it"))?,
        };
        let words: Vec<String> = match words.split_first() {
            Some((first, rest)) if first == "git" => rest.to_vec(),
            _ => words,
        };
        if words.is_empty() {
            return Err(InvalidRequest::new("args is empty; give a command of git, such as status"));
        }
        Ok(words)
    }
}

/// Splits a text into words as a shell would, without expanding anything. `None` if a quote is open.
fn shell_words(text: &str) -> Option<Vec<String>> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match (quote, character) {
            (Some(open), close) if open == close => quote = None,
            (Some('\''), character) => word.get_or_insert_default().push(character),
            (Some(_), '\\') => {
                let next = characters.next()?;
                let current = word.get_or_insert_default();
                if !matches!(next, '"' | '\\' | '$' | '`') {
                    current.push('\\');
                }
                current.push(next);
            }
            (Some(_), character) => word.get_or_insert_default().push(character),
            (None, '\'' | '"') => {
                word.get_or_insert_default();
                quote = Some(character);
            }
            (None, '\\') => word.get_or_insert_default().push(characters.next()?),
            (None, space) if space.is_whitespace() => words.extend(word.take()),
            (None, character) => word.get_or_insert_default().push(character),
        }
    }
    words.extend(word);
    quote.is_none().then_some(words)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(name: &str, arguments: Value) -> Result<ToolArguments, String> {
        let Value::Object(arguments) = arguments else { panic!("arguments are an object") };
        ToolArguments::read(name, arguments).map_err(|error| error.to_string())
    }

    #[test]
    fn a_wrong_call_is_told_what_is_wrong_and_what_there_is() {
        let missing = read("read", json!({})).unwrap_err();
        assert!(missing.contains("missing field `path`") && missing.contains("path (text, required)"), "{missing}");
        let unknown = read("read", json!({ "file_path": "a" })).unwrap_err();
        assert!(unknown.contains("unknown field `file_path`") && unknown.contains("offset (number)"), "{unknown}");
        let kind = read("edit", json!({ "path": "a", "edits": [{ "old_string": 1, "new_string": "b" }] })).unwrap_err();
        assert!(kind.contains("edits[0].old_string"), "{kind}");
        let name = read("reed", json!({})).unwrap_err();
        assert!(name.contains("did you mean read"), "{name}");
    }

    #[test]
    fn null_is_the_same_as_nothing() {
        let Ok(ToolArguments::Read(arguments)) = read("read", json!({ "path": "a", "offset": null })) else { panic!() };
        assert_eq!((arguments.path.as_str(), arguments.offset), ("a", None));
    }

    #[test]
    fn what_cannot_work_is_refused_before_the_sandbox_is_touched() {
        for (name, arguments, why) in [
            ("read", json!({ "path": "" }), "path is empty"),
            ("read", json!({ "path": "../x" }), "leaves the workspace"),
            ("read", json!({ "path": "a", "offset": 0 }), "from 1"),
            ("edit", json!({ "path": "a" }), "give old_string and new_string"),
            ("edit", json!({ "path": "a", "old_string": "x" }), "give old_string and new_string"),
            ("edit", json!({ "path": "a", "old_string": "x", "new_string": "y", "edits": [] }), "give old_string"),
            ("edit", json!({ "path": "a", "edits": [] }), "edits is empty"),
            ("bash", json!({}), "give command"),
            ("bash", json!({ "restart": true, "background": true }), "needs a command"),
            ("git", json!({ "args": "" }), "args is empty"),
            ("git", json!({ "args": "log 'x" }), "open quote"),
            ("wait", json!({ "exec_id": "x", "timeout_seconds": 601 }), "at most 600"),
            ("grep", json!({ "pattern": "" }), "pattern is empty"),
            ("network_request", json!({ "hosts": [] }), "hosts is empty"),
            ("expose_port", json!({ "port": 0 }), "1 to 65535"),
        ] {
            let said = read(name, arguments.clone()).err().unwrap_or_default();
            assert!(said.contains(why), "{name} {arguments}: {said}");
        }
    }

    #[test]
    fn the_words_of_git_are_split_as_a_shell_does() {
        let words = |text: &str| {
            GitArguments { args: GitWords::Text(text.to_owned()), cwd: None }.words().map_err(|error| error.to_string())
        };
        assert_eq!(words("git log  --oneline -5").unwrap(), ["log", "--oneline", "-5"]);
        assert_eq!(
            words(r#"commit -m "it's \"done\"" a\ b 'x\y' """#).unwrap(),
            ["commit", "-m", "it's \"done\"", "a b", "x\\y", ""]
        );
        assert!(words("\\").is_err());
        let listed = GitArguments { args: GitWords::Words(vec!["status".into()]), cwd: None };
        assert_eq!(listed.words().unwrap(), ["status"]);
    }
}

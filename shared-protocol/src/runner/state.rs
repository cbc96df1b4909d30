//! The state of a sandbox's shells, as a runner gives it out and another one takes it: for snapshots and for sessions that are
//! stopped. Nobody but a runner looks into it.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use super::claim::{MAX_ENV_BYTES, MAX_ENV_VALUE_BYTES};
use super::rules::{MAX_PATH_BYTES, check_size, check_variables};
use crate::{ErrorBody, ErrorCode, ShellName};

/// The largest state of one shell. The functions of a loaded nvm take a tenth of this.
pub const MAX_SHELL_STATE_BYTES: usize = 1 << 20;

/// The most bytes of the states of all shells together. Shells that do not fit are left out.
pub const MAX_SHELL_STATES_BYTES: usize = 4 << 20;

/// The most bytes of a whole [`SandboxState`] as JSON: the states in base64, the variables with their escapes, and the rest.
pub const MAX_SANDBOX_STATE_BYTES: usize = 15 << 20;

/// The most shells in a state: as many as a runner can have.
pub const MAX_SAVED_SHELLS: usize = 64;

/// The longest list of options: bash has about 80, with short names.
const MAX_OPTIONS_BYTES: usize = 4096;

/// What the shells of a sandbox have beside their files. Processes are no part of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SandboxState {
    /// The variables that the session was created with. Every shell and run has them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// The shells, `main` first. Terminals are not among them.
    pub shells: Vec<SavedShell>,
}

/// One shell, as it was after its last command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SavedShell {
    /// The name of the shell.
    pub name: ShellName,
    /// The directory that it was in.
    pub cwd: String,
    /// The width of its terminal in characters.
    pub cols: u16,
    /// The height of its terminal in characters.
    pub rows: u16,
    /// `SHELLOPTS` of the shell.
    pub options: String,
    /// `BASHOPTS` of the shell.
    pub shopts: String,
    /// Variables, functions, aliases, traps and the umask as bash printed them, in base64.
    pub text_base64: String,
}

impl SavedShell {
    pub fn text(&self) -> Result<Vec<u8>, ErrorBody> {
        // A text that is too long is not decoded first.
        let is_long = self.text_base64.len() > MAX_SHELL_STATE_BYTES.div_ceil(3) * 4;
        let decoded = if is_long { None } else { STANDARD.decode(&self.text_base64).ok() };
        let text = decoded.filter(|text| text.len() <= MAX_SHELL_STATE_BYTES);
        text.ok_or_else(|| {
            invalid(format!("the state of shell {} is not base64 of at most {MAX_SHELL_STATE_BYTES} bytes", self.name))
        })
    }
}

fn invalid(message: impl Into<String>) -> ErrorBody {
    ErrorBody::new(ErrorCode::InvalidRequest, message)
}

/// Puts the text of a state into its form on the wire.
pub fn encode_shell_text(text: &[u8]) -> String {
    STANDARD.encode(text)
}

impl SandboxState {
    /// Refuses a state that no runner gives out. Both sides call it: the state comes from inside a sandbox.
    pub fn check(&self) -> Result<(), ErrorBody> {
        check_variables(&self.env)?;
        let size = |(name, value): (&String, &String)| name.len() + value.len();
        let bytes: usize = self.env.iter().map(size).sum();
        if bytes > MAX_ENV_BYTES || self.env.iter().map(size).any(|bytes| bytes > MAX_ENV_VALUE_BYTES) {
            return Err(invalid("the variables of the state are too long"));
        }
        if self.shells.len() > MAX_SAVED_SHELLS {
            return Err(invalid(format!("a state has at most {MAX_SAVED_SHELLS} shells")));
        }
        let mut names: Vec<&ShellName> = self.shells.iter().map(|shell| &shell.name).collect();
        names.sort();
        names.dedup();
        if names.len() != self.shells.len() {
            return Err(invalid("two shells of a state have one name"));
        }
        let mut states = 0;
        for shell in &self.shells {
            let is_path = shell.cwd.starts_with('/') && shell.cwd.len() <= MAX_PATH_BYTES && !shell.cwd.contains('\0');
            if !is_path || shell.options.len() > MAX_OPTIONS_BYTES || shell.shopts.len() > MAX_OPTIONS_BYTES {
                return Err(invalid(format!("the directory or the options of shell {} are not valid", shell.name)));
            }
            check_size(Some(shell.cols), Some(shell.rows))?;
            states += shell.text()?.len();
        }
        if states > MAX_SHELL_STATES_BYTES {
            return Err(invalid(format!("the states of shells have more than {MAX_SHELL_STATES_BYTES} bytes")));
        }
        Ok(())
    }
}

/// What a runner that was started with `--await-restore` is to start its shells with.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RestoreRequest {
    /// The state that another runner gave out.
    pub state: SandboxState,
    /// Variables that take the place of those in the state, for every shell and run.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(name: &str, text: &[u8]) -> SavedShell {
        SavedShell {
            name: ShellName::new(name).unwrap(),
            cwd: "/".into(),
            cols: 80,
            rows: 24,
            options: String::new(),
            shopts: String::new(),
            text_base64: encode_shell_text(text),
        }
    }

    fn state(shells: Vec<SavedShell>) -> SandboxState {
        SandboxState { env: BTreeMap::new(), shells }
    }

    #[test]
    fn a_state_is_bounded_in_every_part() {
        let full = vec![b'x'; MAX_SHELL_STATE_BYTES];
        assert!(state(Vec::new()).check().is_ok());
        assert!(state(["a", "b", "c", "d"].map(|name| shell(name, &full)).into()).check().is_ok());
        let many = (0..=MAX_SAVED_SHELLS).map(|n| shell(&format!("s{n}"), b"")).collect();
        for (wrong, why) in [
            (state(["a", "b", "c", "d", "e"].map(|name| shell(name, &full)).into()), "more than"),
            (state(vec![shell("a", &vec![0; MAX_SHELL_STATE_BYTES + 1])]), "base64"),
            (state(vec![SavedShell { text_base64: "?".into(), ..shell("a", b"") }]), "base64"),
            (state(vec![shell("a", b""), shell("a", b"")]), "one name"),
            (state(vec![SavedShell { cwd: "tmp".into(), ..shell("a", b"") }]), "directory"),
            (state(vec![SavedShell { cols: 0, ..shell("a", b"") }]), "cols"),
            (state(many), "at most"),
            (SandboxState { env: [("A=B".to_owned(), String::new())].into(), shells: Vec::new() }, "A=B"),
        ] {
            let refused = wrong.check().unwrap_err();
            assert!(refused.message.contains(why), "{why}: {}", refused.message);
        }
    }
}

//! Checked calls about shells. Pure. The fields are private: only a check can make a value of these types.

use nix::sys::signal::Signal;
use shared_protocol::ShellName;
use shared_protocol::runner::{InputRequest, OpenShellRequest, ResizeRequest, SignalRequest, check_size};

use crate::service::InvalidRequest;

/// The signal numbers of Linux, including real-time signals.
const SIGNAL_NUMBERS: std::ops::RangeInclusive<i32> = 1..=64;

/// The most characters of a refused signal that an error shows.
const MAX_SHOWN_CHARS: usize = 32;

/// A shell to open.
#[derive(Debug)]
pub struct OpenShellSpec(OpenShellRequest);

impl OpenShellSpec {
    pub fn new(request: OpenShellRequest) -> Result<Self, InvalidRequest> {
        request.check()?;
        Ok(Self(request))
    }

    pub(super) fn request(&self) -> &OpenShellRequest {
        &self.0
    }
}

/// Bytes to send as input.
#[derive(Debug)]
pub struct InputSpec(InputRequest);

impl InputSpec {
    pub fn new(request: InputRequest) -> Result<Self, InvalidRequest> {
        request.check()?;
        Ok(Self(request))
    }

    pub(super) fn request(&self) -> &InputRequest {
        &self.0
    }

    pub(super) fn length(&self) -> u64 {
        self.0.data.as_ref().or(self.0.data_base64.as_ref()).map_or(0, String::len) as u64
    }
}

/// A signal and its target.
#[derive(Debug)]
pub struct SignalSpec(SignalRequest);

impl SignalSpec {
    pub fn new(request: SignalRequest) -> Result<Self, InvalidRequest> {
        if !is_signal(&request.signal) {
            let shown: String = request.signal.chars().take(MAX_SHOWN_CHARS).collect();
            let message = format!("{shown:?} is not a signal: give a name such as INT or a number from 1 to 64");
            return Err(InvalidRequest::new(message));
        }
        if request.shell.is_some() && request.exec_id.is_some() {
            return Err(InvalidRequest::new("give shell or exec_id, not both"));
        }
        Ok(Self(request))
    }

    pub(super) fn request(&self) -> &SignalRequest {
        &self.0
    }
}

/// Whether this names a signal, in a form such as `INT`, `SIGINT`, `int` or `2`.
fn is_signal(name: &str) -> bool {
    if let Ok(number) = name.parse::<i32>() {
        return SIGNAL_NUMBERS.contains(&number);
    }
    let upper = name.to_ascii_uppercase();
    let full = if upper.starts_with("SIG") { upper } else { format!("SIG{upper}") };
    full.parse::<Signal>().is_ok()
}

/// A terminal's new size.
#[derive(Debug)]
pub struct ResizeSpec(ResizeRequest);

impl ResizeSpec {
    pub fn new(request: ResizeRequest) -> Result<Self, InvalidRequest> {
        check_size(Some(request.cols), Some(request.rows))?;
        Ok(Self(request))
    }

    pub(super) fn request(&self) -> &ResizeRequest {
        &self.0
    }
}

/// A terminal to attach to.
#[derive(Debug)]
pub struct TerminalSpec {
    pub(super) shell: Option<ShellName>,
    pub(super) cols: Option<u16>,
    pub(super) rows: Option<u16>,
}

impl TerminalSpec {
    pub fn new(shell: Option<ShellName>, cols: Option<u16>, rows: Option<u16>) -> Result<Self, InvalidRequest> {
        check_size(cols, rows)?;
        Ok(Self { shell, cols, rows })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shared_protocol::ExecId;

    #[test]
    fn signals_go_by_name_and_by_number() {
        for name in ["INT", "SIGINT", "term", "9", "64"] {
            assert!(is_signal(name), "{name}");
        }
        for bad in ["", "0", "65", "-9", "INTERRUPT", "SIG"] {
            assert!(!is_signal(bad), "{bad}");
        }
    }

    #[test]
    fn a_signal_has_one_target() {
        let request = SignalRequest {
            signal: "INT".into(),
            shell: Some(ShellName::main()),
            exec_id: Some(ExecId::new("x").unwrap()),
        };
        assert!(SignalSpec::new(request).is_err());
    }
}

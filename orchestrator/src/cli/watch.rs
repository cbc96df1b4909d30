//! `cove watch`: prints what changes in a directory of a session, until the directory is gone or the user has seen enough.

use clap::Args;
use shared_protocol::runner::{ChangeKind, FileChange, WatchEnd, WatchFrame};

use super::connect::DaemonArgs;
use super::exit::Failure;
use super::output::{Colour, Style, escape_control, print, say};
use super::session_ref::SessionRef;

const EXAMPLES: &str = "\
Examples:
  cove watch web                             the files of /workspace
  cove watch -r web src                      everything below src
  cove watch -r --json web | jq -r 'select(.event == \"change\") .path'

Ctrl-C ends it. `overflow` means that changes were lost: list the directory again. The exit code is 0 when
the directory is gone.";

/// Print what changes in a directory
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct WatchArgs {
    /// Id or name of the session
    #[arg(value_name = "SESSION")]
    session: SessionRef,
    /// The directory, absolute or below /workspace
    #[arg(value_name = "PATH", default_value = ".")]
    path: String,
    /// Watch everything below it too
    #[arg(short = 'r', long)]
    recursive: bool,
    /// Print each event as a line of JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    daemon: DaemonArgs,
}

pub async fn watch(args: WatchArgs) -> Result<u8, Failure> {
    let client = args.daemon.client()?;
    let session = args.session.find(&client).await?;
    let style = Style::for_stdout();
    let show = |frame: &WatchFrame| if args.json { print(&json(frame)) } else { tell(frame, &args.path, style) };
    let seen = |frame: WatchFrame| match show(&frame) {
        Err(failure) => Some(Err(failure)),
        Ok(()) => matches!(frame, WatchFrame::Ended { .. }).then_some(Ok(0)),
    };
    client.watch_files(&session, args.path.as_bytes(), args.recursive, seen).await?
}

fn json(frame: &WatchFrame) -> String {
    // Frames are objects of texts and flags, which always can be written.
    serde_json::to_string(frame).unwrap_or_default() + "\n"
}

fn tell(frame: &WatchFrame, path: &str, style: Style) -> Result<(), Failure> {
    match frame {
        WatchFrame::Ready { truncated } => {
            let rest = if *truncated { ", without directories that are too deep or cannot be read" } else { "" };
            say(format!("watching {}{rest}; Ctrl-C ends it", escape_control(path)));
            Ok(())
        }
        WatchFrame::Change(change) => print(&line(change, style)),
        WatchFrame::Overflow => print(&format!("{}\n", style.paint(Colour::Yellow, "overflow"))),
        WatchFrame::Ended { reason } => {
            let what = match reason {
                WatchEnd::Deleted => "was deleted",
                WatchEnd::Moved => "was moved",
                WatchEnd::Unmounted => "was unmounted",
            };
            say(format!("{} {what}", escape_control(path)));
            Ok(())
        }
        // The client makes a failure of it.
        WatchFrame::Error(_) => Ok(()),
    }
}

fn line(change: &FileChange, style: Style) -> String {
    let (word, colour) = match change.kind {
        ChangeKind::Created => ("created ", Colour::Green),
        ChangeKind::Modified => ("modified", Colour::Yellow),
        ChangeKind::Deleted => ("deleted ", Colour::Red),
        ChangeKind::Moved => ("moved   ", Colour::Bold),
    };
    let slash = if change.is_dir { "/" } else { "" };
    let from = change.from.as_ref().map(|from| format!("{}{slash} -> ", escape_control(from))).unwrap_or_default();
    format!("{} {from}{}{slash}\n", style.paint(colour, word), escape_control(&change.path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_one_line_whatever_its_name() {
        let change = |kind, path: &str, from: Option<&str>, is_dir| FileChange {
            kind,
            path: path.into(),
            path_base64: None,
            from: from.map(str::to_owned),
            from_base64: None,
            is_dir,
        };
        let line = |change| line(&change, Style::plain());
        assert_eq!(line(change(ChangeKind::Created, "a\nb\x1b[2J", None, false)), "created  a\\nb\\u{1b}[2J\n");
        assert_eq!(line(change(ChangeKind::Moved, "new", Some("old"), true)), "moved    old/ -> new/\n");
    }
}

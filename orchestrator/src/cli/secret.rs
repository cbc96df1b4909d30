//! `cove secret`: stores, lists and removes secrets that the daemon adds to requests of sandboxes. A value is never an argument, which
//! other users of the host could see.

use std::io::{self, IsTerminal as _, Read as _};

use clap::{Args, Subcommand};
use nix::sys::termios::{LocalFlags, SetArg, SpecialCharacterIndices, tcgetattr, tcsetattr};
use shared_protocol::SecretName;
use shared_protocol::api::{SecretText, SecretView, SetSecretRequest};

use super::connect::DaemonArgs;
use super::exit::Failure;
use super::list::ListForm;
use super::output::{self, Style, escape_control, print};
use super::table::{Cell, Table};

/// More than the longest value: the daemon says what is wrong with it.
const MAX_READ_BYTES: u64 = 64 << 10;
/// What the terminal sends for Ctrl-C.
const CTRL_C: u8 = 3;

const EXAMPLES: &str = "\
Examples:
  cove secret set token --host api.example.com < token.txt
  cove secret ls
  cove run --network api.example.com --inject 'api.example.com:Authorization=Bearer secret:token' -- \\
    curl -s https://api.example.com/user
  cove secret rm token

The value is read from standard input, and is not shown again. The sandbox never sees it.";

/// Manage secrets that the daemon adds to requests of sandboxes
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct SecretArgs {
    #[command(subcommand)]
    action: Action,
    #[command(flatten)]
    daemon: DaemonArgs,
}

#[derive(Subcommand)]
enum Action {
    /// Store a secret, or replace it; the value is read from standard input
    #[command(after_help = "Example:\n  cove secret set token --host api.example.com < token.txt")]
    Set {
        /// Name of the secret
        name: SecretName,
        /// A host that the secret may be sent to; may be given more than once [default: every host]
        #[arg(long = "host", value_name = "HOST")]
        hosts: Vec<String>,
    },
    /// List secrets, without their values
    #[command(after_help = "Example:\n  cove secret ls --json")]
    Ls {
        #[command(flatten)]
        form: ListForm,
    },
    /// Remove secrets
    #[command(after_help = "Example:\n  cove secret rm token")]
    Rm {
        /// Names of the secrets
        #[arg(required = true, value_name = "NAME")]
        names: Vec<SecretName>,
    },
}

pub async fn secret(args: SecretArgs) -> Result<u8, Failure> {
    let client = args.daemon.client()?;
    match args.action {
        Action::Set { name, hosts } => {
            let value = SecretText(read_value(&name)?);
            client.set_secret(&name, &SetSecretRequest { value, hosts }).await?;
            print(&format!("{name}\n"))?;
        }
        Action::Ls { form } => form.show(&client.secrets().await?, |secret| secret.name.to_string(), table)?,
        Action::Rm { names } => {
            for name in names {
                client.remove_secret(&name).await?;
                print(&format!("{name}\n"))?;
            }
        }
    }
    Ok(0)
}

/// Reads the value: one line from a terminal, without showing it, or everything from a file or pipe. One line break at the end is not
/// part of it.
fn read_value(name: &SecretName) -> Result<String, Failure> {
    let read = if io::stdin().is_terminal() { ask(name) } else { read_all() };
    let mut text = read.map_err(|error| Failure::failed(format!("cannot read the secret: {error}")))?;
    let end = text.trim_end_matches(['\r', '\n']).len();
    text.truncate(end);
    if text.is_empty() {
        return Err(Failure::usage("no secret was given on standard input"));
    }
    Ok(text)
}

fn read_all() -> io::Result<String> {
    let mut text = String::new();
    io::stdin().lock().take(MAX_READ_BYTES).read_to_string(&mut text)?;
    Ok(text)
}

/// Asks on the terminal. Ctrl-C ends the line instead of this process, so that the terminal always gets its modes back.
fn ask(name: &SecretName) -> io::Result<String> {
    output::ask(format_args!("value of {name} (it does not show): "));
    let found = tcgetattr(io::stdin())?;
    let mut silent = found.clone();
    silent.local_flags.remove(LocalFlags::ECHO | LocalFlags::ISIG);
    silent.local_flags.insert(LocalFlags::ECHONL);
    silent.control_chars[SpecialCharacterIndices::VEOL as usize] = CTRL_C;
    tcsetattr(io::stdin(), SetArg::TCSAFLUSH, &silent)?;
    let read = read_line();
    tcsetattr(io::stdin(), SetArg::TCSANOW, &found)?;
    let line = read?;
    if line.contains(&CTRL_C) {
        return Err(io::Error::other("interrupted"));
    }
    String::from_utf8(line).map_err(|_| io::Error::other("it is not text"))
}

/// Reads until the line ends, by a line break or by Ctrl-C.
fn read_line() -> io::Result<Vec<u8>> {
    let (mut line, mut byte) = (Vec::new(), [0]);
    let mut stdin = io::stdin().lock().take(MAX_READ_BYTES);
    while stdin.read(&mut byte)? > 0 && byte[0] != b'\n' {
        line.push(byte[0]);
        if byte[0] == CTRL_C {
            break;
        }
    }
    Ok(line)
}

fn table(secrets: &[SecretView], style: Style) -> String {
    let mut table = Table::new(&["NAME", "OWNER", "HOSTS", "SET"]);
    for secret in secrets {
        let hosts = if secret.hosts.is_empty() { "every host".to_owned() } else { secret.hosts.join(",") };
        table.row(vec![
            Cell::new(secret.name.as_str()),
            Cell::new(secret.owner.as_str()),
            Cell::new(escape_control(&hosts)),
            Cell::new(escape_control(&secret.updated_at)),
        ]);
    }
    table.render(style)
}

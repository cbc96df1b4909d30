//! `cove ports`: lists the servers in a session's sandbox, makes links to them, and takes links back.

use std::num::NonZeroU16;
use std::time::Duration;

use clap::Args;
use shared_protocol::api::PortUrlRequest;
use shared_protocol::runner::PortView;

use super::connect::DaemonArgs;
use super::exit::Failure;
use super::options::duration;
use super::output::{Style, escape_control, print, print_json};
use super::session_ref::SessionRef;
use super::table::{Cell, Table};

const EXAMPLES: &str = "\
Examples:
  cove ports 7183cb80-d6c
  cove ports 7183cb80-d6c --link 3000
  cove ports 7183cb80-d6c --link 3000 --ttl 8h
  cove ports 7183cb80-d6c --unlink 3000

A link opens one port in a browser. Whoever has it can use that port until the link expires, or until
--unlink takes all links to the port back.";

/// List the servers in a session, or make a link that opens one in a browser
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct PortsArgs {
    /// Id or name of the session
    session: SessionRef,
    /// Print a link to this port instead of the list
    #[arg(long, value_name = "PORT")]
    link: Option<NonZeroU16>,
    /// How long the link is good, for example 30m or 8h (default: 1h)
    #[arg(long, value_parser = duration, value_name = "TIME", requires = "link")]
    ttl: Option<Duration>,
    /// Take back all links to this port
    #[arg(long, value_name = "PORT", conflicts_with_all = ["link", "json"])]
    unlink: Option<NonZeroU16>,
    /// Print a JSON document
    #[arg(long, conflicts_with = "quiet")]
    json: bool,
    /// Print only the numbers of the ports
    #[arg(short = 'q', long, conflicts_with_all = ["link", "unlink"])]
    quiet: bool,
    #[command(flatten)]
    daemon: DaemonArgs,
}

pub async fn ports(args: PortsArgs) -> Result<u8, Failure> {
    let client = args.daemon.client()?;
    let session = &args.session.find(&client).await?;
    if let Some(port) = args.unlink {
        client.take_links_back(session, port.get()).await?;
        print(&format!("{port}\n"))?;
        return Ok(0);
    }
    if let Some(port) = args.link {
        let wanted = PortUrlRequest { ttl_seconds: args.ttl.map(|ttl| ttl.as_secs()) };
        let link = client.port_url(session, port.get(), &wanted).await?;
        if args.json {
            print_json(&link)?;
        } else {
            print(&format!("{}\n", escape_control(&link.url)))?;
        }
        return Ok(0);
    }
    let list = client.ports(session).await?;
    if args.json {
        print_json(&list)?;
    } else if args.quiet {
        print(&list.ports.iter().map(|port| format!("{}\n", port.port)).collect::<String>())?;
    } else {
        print(&table(&list.ports, Style::for_stdout()))?;
    }
    Ok(0)
}

fn table(ports: &[PortView], style: Style) -> String {
    let mut table = Table::new(&["PORT", "ADDRESS", "REACHABLE", "PID", "PROGRAM"]);
    for port in ports {
        table.row(vec![
            Cell::new(port.port.to_string()),
            Cell::new(escape_control(&port.address)),
            Cell::new(if port.reachable { "yes" } else { "no" }),
            Cell::new(port.pid.map(|pid| pid.to_string()).unwrap_or_default()),
            Cell::new(escape_control(port.program.as_deref().unwrap_or_default())),
        ]);
    }
    table.render(style)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_a_line() {
        let text = r#"[{"port":3000,"address":"127.0.0.1","reachable":true,"pid":7,"program":"python3"},
            {"port":3001,"address":"10.0.0.1","reachable":false}]"#;
        let ports: Vec<PortView> = serde_json::from_str(text).unwrap();
        let expected = "\
PORT  ADDRESS    REACHABLE  PID  PROGRAM
3000  127.0.0.1  yes        7    python3
3001  10.0.0.1   no
";
        let shown = table(&ports, Style::plain());
        assert_eq!(shown.lines().map(str::trim_end).collect::<Vec<_>>(), expected.lines().collect::<Vec<_>>());
    }
}

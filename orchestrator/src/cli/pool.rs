//! `cove pool`: shows the pools of sandboxes that are started in advance, and changes their size.

use clap::Args;
use shared_protocol::RuntimeName;
use shared_protocol::api::{PoolView, SetPoolRequest};

use super::connect::DaemonArgs;
use super::exit::Failure;
use super::list::ListForm;
use super::output::{Style, escape_control};
use super::table::{Cell, Table};

const EXAMPLES: &str = "\
Examples:
  cove pool
  cove pool python 3
  cove pool python 0";

/// Show pools, or set how many sandboxes of an image are started in advance
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct PoolArgs {
    /// Image of the pool
    #[arg(requires = "size")]
    image: Option<String>,
    /// How many sandboxes wait; 0 removes the pool. A restart of the daemon goes back to its configuration
    size: Option<u64>,
    /// Runtime of the pool (default: the daemon's)
    #[arg(long, requires = "image")]
    runtime: Option<RuntimeName>,
    #[command(flatten)]
    form: ListForm,
    #[command(flatten)]
    daemon: DaemonArgs,
}

pub async fn pool(args: PoolArgs) -> Result<u8, Failure> {
    let client = args.daemon.client()?;
    let pools = match (args.image, args.size) {
        (Some(image), Some(size)) => {
            vec![client.set_pool(&image, &SetPoolRequest { size, runtime: args.runtime }).await?]
        }
        _ => client.pools().await?,
    };
    args.form.show(&pools, |pool| escape_control(&pool.image), table)?;
    Ok(0)
}

fn table(pools: &[PoolView], style: Style) -> String {
    let mut table = Table::new(&["IMAGE", "RUNTIME", "SIZE", "IDLE", "STARTING", "HITS", "MISSES", "FAILURE"]);
    for pool in pools {
        table.row(vec![
            Cell::new(escape_control(&pool.image)),
            Cell::new(pool.runtime.as_str()),
            Cell::new(pool.size.to_string()),
            Cell::new(pool.idle.to_string()),
            Cell::new(pool.starting.to_string()),
            Cell::new(pool.hits.to_string()),
            Cell::new(pool.misses.to_string()),
            Cell::new(escape_control(pool.failure.as_deref().unwrap_or_default())),
        ]);
    }
    table.render(style)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_is_a_line() {
        let text = r#"{"image":"python","runtime":"local","size":3,"idle":2,"starting":1,"hits":7,"misses":0}"#;
        let pool: PoolView = serde_json::from_str(text).unwrap();
        let expected = "\
IMAGE   RUNTIME  SIZE  IDLE  STARTING  HITS  MISSES  FAILURE
python  local    3     2     1         7     0
";
        let shown = table(&[pool], Style::plain());
        assert_eq!(shown.lines().map(str::trim_end).collect::<Vec<_>>(), expected.lines().collect::<Vec<_>>());
    }
}

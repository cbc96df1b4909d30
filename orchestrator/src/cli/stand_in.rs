//! Until the daemon, the images and the probe of the host are there.

pub mod config {
    #[derive(clap::Args, Debug, Default)]
    pub struct ServeFlags {
        /// HOST:PORT to listen on
        #[arg(long)]
        pub listen: Option<String>,
        /// Where the daemon keeps what is its own
        #[arg(long)]
        pub data_dir: Option<std::path::PathBuf>,
        #[arg(long, hide = true)]
        pub until_stdin_closes: bool,
    }
    pub struct Config;
    #[derive(Debug, thiserror::Error)]
    #[error("no configuration")]
    pub struct ConfigError;
    impl Config {
        pub fn load(_flags: &ServeFlags) -> Result<Self, ConfigError> {
            Ok(Self)
        }
    }
}

pub mod app {
    pub async fn serve(_config: super::config::Config) -> anyhow::Result<std::process::ExitCode> {
        anyhow::bail!("there is no daemon in this build")
    }
}

pub mod image {
    use std::path::Path;
    #[derive(Debug, serde::Serialize)]
    pub struct ImportSummary {
        pub name: String,
        pub files: u64,
        pub bytes: u64,
    }
    #[derive(Debug, serde::Serialize)]
    pub struct ImageSummary {
        pub name: String,
        pub bytes: u64,
    }
    pub fn import(_: &Path, _: &str, _: &Path, _: &mut dyn FnMut(u64)) -> anyhow::Result<ImportSummary> {
        anyhow::bail!("there are no images in this build")
    }
    pub fn list(_: &Path) -> anyhow::Result<Vec<ImageSummary>> {
        Ok(Vec::new())
    }
    pub fn remove(_: &Path, name: &str) -> anyhow::Result<()> {
        anyhow::bail!("there is no image {name}")
    }
}

pub mod doctor {
    #[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
    #[serde(rename_all = "snake_case")]
    pub enum State {
        Enforced,
        Partial,
        Missing,
    }
    #[derive(Debug, serde::Serialize)]
    pub struct Finding {
        pub name: String,
        pub state: State,
        pub detail: String,
        pub remedy: Option<String>,
    }
    pub fn report() -> Vec<Finding> {
        [State::Missing, State::Partial, State::Enforced]
            .map(|state| Finding { name: "runtime".into(), state, detail: "none in this build".into(), remedy: None })
            .into()
    }
}

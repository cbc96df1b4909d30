//! The HTTP API: a file for each resource.

pub mod alive;
pub mod archive;
pub mod error;
pub mod events;
pub mod exec;
pub mod exec_stream;
pub mod execs;
pub mod extract;
pub mod files;
pub mod fs;
pub mod fs_read;
pub mod input;
pub mod intake;
pub mod output;
pub mod run;
pub mod shells;
pub mod target;
pub mod terminal;
pub mod upload;

use std::sync::Arc;

use axum::Router;
use axum::routing::{delete, get, post};

use crate::config::Config;
use crate::metrics::Metrics;
use crate::session::Registry;

#[derive(Clone)]
pub struct ApiState {
    pub sessions: Registry,
    pub config: Arc<Config>,
    pub metrics: Metrics,
}

pub fn router(state: ApiState) -> Router {
    let at = |path: &str| format!("/v1/sessions/{{id}}/{path}");
    Router::new()
        .route(&at("exec"), post(exec::exec))
        .route(&at("exec/stream"), post(exec_stream::exec_stream))
        .route(&at("execs"), get(execs::list))
        .route(&at("execs/{exec_id}"), get(execs::reattach))
        .route(&at("run"), post(run::run))
        .route(&at("run/stream"), post(run::run_stream))
        .route(&at("input"), post(input::input))
        .route(&at("signal"), post(input::signal))
        .route(&at("resize"), post(input::resize))
        .route(&at("shells"), get(shells::list).post(shells::open))
        .route(&at("shells/{name}"), delete(shells::close))
        .route(&at("shells/{name}/reset"), post(shells::reset))
        .route(&at("terminal"), get(terminal::terminal))
        .route(&at("files/{*path}"), get(files::get).put(files::put))
        .route(&at("fs"), delete(fs::delete))
        .route(&at("fs/read"), get(fs::read))
        .route(&at("fs/write"), post(fs::write))
        .route(&at("fs/upload"), post(upload::upload))
        .route(&at("fs/list"), get(fs::list))
        .route(&at("fs/stat"), get(fs::stat))
        .route(&at("fs/mkdir"), post(fs::mkdir))
        .route(&at("fs/move"), post(fs::rename))
        .route(&at("archive"), get(archive::get).put(archive::put))
        .with_state(state)
}

#[cfg(test)]
pub(crate) mod live;
#[cfg(test)]
mod live_test;

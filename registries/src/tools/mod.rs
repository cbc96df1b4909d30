//! The questions to each tool. A file per family; each function fills the `Inquiry` of one tool.

mod apt;
mod apt_sources;
mod cargo;
mod git;
mod go;
mod maven;
mod node;
mod npmrc;
mod pip;
mod pip_config;
mod simple_index;
mod uv;

use crate::inquiry::Inquiry;

/// Asks one tool.
pub type Question = fn(&mut Inquiry<'_>);

/// Every tool that is asked, by its name.
pub const ALL: [(&str, Question); 10] = [
    ("apt", apt::ask),
    ("cargo", cargo::ask),
    ("git", git::ask),
    ("go", go::ask),
    ("mvn", maven::ask),
    ("npm", node::ask_npm),
    ("pip", pip::ask),
    ("pnpm", node::ask_pnpm),
    ("uv", uv::ask),
    ("yarn", node::ask_yarn),
];

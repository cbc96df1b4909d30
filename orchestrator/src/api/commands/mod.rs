//! Commands, programs and shells of a session.

pub mod exec;
pub mod execs;
pub mod input;
pub mod run;
pub mod shells;
pub mod stdin;
pub mod terminal;

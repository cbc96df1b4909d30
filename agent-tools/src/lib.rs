//! The pure part of the file tools of agents: read, edit, diff, list, search and find. Bytes and lists in, text and values out.
//!
//! ```text
//! kind ─▶ text ─▶ view          read:  numbered lines, in pieces
//!              ├▶ edit          edit:  exact replacements, all or none
//!              ├▶ difference    diff:  a unified diff
//!              └▶ search        grep:  lines that match, by file
//! entry ─▶ tree                 ls:    a tree with counts and sizes
//!       └▶ find                 find:  entries by name, kind, size and age
//! ignore_rules, globs, types    which paths a walk visits
//! ```
//!
//! The text is for a language model: it says what was left out and how to get it, and an error says what to change.
//!
//! **Invariant:** nothing in this crate does I/O or reads the clock. Names, contents and patterns come from a hostile sandbox, so every
//! result has a bound, the work is linear in the input or has a bound of its own, and no input makes it panic.

pub mod difference;
pub mod edit;
pub mod entry;
pub mod find;
pub mod globs;
pub mod ignore_rules;
pub mod kind;
mod output;
pub mod search;
pub mod shown;
pub mod size;
pub mod text;
pub mod tree;
pub mod types;
pub mod view;
mod wildmatch;

//! Images of the `local` runtime: imports them, pulls them from registries, lists and removes them.
//!
//! A root file system that was imported is a directory, `images/NAME/rootfs` in the data directory. Everything else is in layers, in the
//! store. An image is there completely or not at all.

mod commit;
mod complete;
mod entries;
mod error;
#[cfg(any(test, fuzzing))]
#[path = "fuzz_test.rs"]
pub mod fuzz;
mod import;
mod layers;
mod layout;
mod listing;
mod pack;
mod pull;
mod puller;
mod stream;
mod unpack;
mod unpacker;
mod user;

pub use commit::{CommitSpec, check_name as check_commit_name, commit};
pub use error::ImageError;
pub use import::{ImportSummary, import};
pub use listing::{ImageDetails, ImageSource, ImageSummary, discard_leftovers, inspect, list, prune, remove};
pub use pack::main as pack_main;
pub use pull::{PullPhase, PullStatus};
pub use puller::{Asker, Puller, RunningPull};
pub use unpack::main as unpack_main;

pub use oci_registry::Reference;

pub use crate::image_store::Removed;

use crate::runtime::local::images::{BUILT_IN_IMAGES, HOST_IMAGE, is_name, names, rootfs};

/// The first character of directories that are not images: imports that are not complete, and images that are being removed.
const HIDDEN: char = '.';

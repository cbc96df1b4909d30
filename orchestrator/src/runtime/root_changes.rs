//! What a session has changed of its root, as a runtime describes it for whoever makes an image from it. No file is opened here.

use std::fs::File;

use serde::{Deserialize, Serialize};

use crate::image_store::ImageSettings;

/// An image to be: layers that exist, and directories that become layers over them.
#[derive(Debug)]
pub struct RootChanges {
    /// The layers in the store that the session's image has, the lowest first. Empty if it is no image in layers.
    pub layers: Vec<String>,
    /// What the session's image says about programs.
    pub settings: ImageSettings,
    /// What becomes a layer, the lowest first.
    pub added: Vec<LayerSource>,
}

/// Directories that become one layer.
#[derive(Debug)]
pub struct LayerSource {
    /// The directory that is the root of the process that reads them. Nothing outside is read, wherever links lead.
    pub directory: File,
    pub trees: Vec<TreeSource>,
    pub owners: OwnerMap,
}

/// A directory, and its place in the layer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeSource {
    /// Where it is, below the root of the process that reads it.
    pub from: String,
    /// Where it comes to be in the image. Empty for the root.
    pub to: String,
    /// Names below it that are left out, with everything in them: files that are the sandbox's own.
    pub left_out: Vec<String>,
    /// Names below it of which the directory stays and what is in it is left out: places that a sandbox mounts something on.
    pub emptied: Vec<String>,
}

/// Whose a file is in the image, by its owner on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnerMap {
    /// The user who had the files of root in the session: these two change places.
    pub root_was: Option<u32>,
    /// Who gets what belongs to an id that no sandbox has.
    pub others: u32,
}

/// How many ids a sandbox has.
const IDS: u32 = 65_536;

impl OwnerMap {
    pub fn of(&self, id: u32) -> u32 {
        match self.root_was {
            Some(user) if id == user => 0,
            Some(user) if id == 0 => user,
            _ if id >= IDS => self.others,
            _ => id,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_belongs_to_root_in_the_image_if_it_did_before_the_session() {
        let ordinary = OwnerMap { root_was: Some(1000), others: 0 };
        assert_eq!([0, 1000, 33, IDS].map(|id| ordinary.of(id)), [1000, 0, 33, 0]);
        let root = OwnerMap { root_was: None, others: 65_534 };
        assert_eq!([0, 1000, 33, IDS].map(|id| root.of(id)), [0, 1000, 33, 65_534]);
    }
}

//! Images: the root file systems from which sessions are created.

use serde::{Deserialize, Serialize};

use crate::{RuntimeName, SessionId};

/// An image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct ImageView {
    /// The name to give as `image` in a create.
    pub name: String,
    /// The runtime that has this image.
    pub runtime: RuntimeName,
    /// Where the image comes from: `host` for the host's own system, otherwise an imported root file system or a container image.
    pub source: String,
    /// Whether a create without `image` uses this one.
    pub default: bool,
}

/// A request to pull an image from a registry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PullImageRequest {
    /// The image, as `[HOST[:PORT]/]NAME[:TAG][@DIGEST]`.
    pub image: String,
    /// Whether to pull only what a create would pull: an image that is not here, if the daemon pulls unasked.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub if_missing: bool,
}

/// A request to make an image from what a session has changed of its root.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct CommitImageRequest {
    /// The session. It has a writable root.
    pub session_id: SessionId,
    /// The name of the new image.
    pub image: String,
}

/// How far a pull or a commit is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct PullProgress {
    /// What a pull does: `resolving`, `waiting` for another pull of the same layer, `downloading`, or `finishing`. What a commit
    /// does: `packing`.
    pub phase: String,
    /// How many layers have to be downloaded.
    pub layers: u64,
    /// How many of them are here.
    pub layers_done: u64,
    /// How many bytes of the layers are here.
    pub bytes: u64,
    /// How many bytes they have together. 0 for a commit: it is not known before.
    pub total_bytes: u64,
}

/// One line of the answer of a pull or a commit as JSON lines.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum PullFrame {
    /// How far it is.
    Progress(PullProgress),
    /// The image is here. This is the last line.
    Done(ImageDetailsView),
    /// It failed. This is the last line.
    Error(crate::ErrorBody),
}

/// One line of the answer to a create that pulls its image, as JSON lines.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum CreateFrame {
    /// How far the pull of the image is.
    Progress(PullProgress),
    /// The session is there. This is the last line.
    Done(Box<super::SessionView>),
    /// The pull or the create failed. This is the last line.
    Error(crate::ErrorBody),
}

/// An image of the `local` runtime that was pulled, imported or committed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct ImageDetailsView {
    /// The name to give as `image` in a create.
    pub name: String,
    /// The digest of the image's manifest, if it came from a registry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// The size of all files in it.
    pub bytes: u64,
    /// How much of that is in layers that another image has too.
    pub shared_bytes: u64,
    /// When the image was made, as it says itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<String>,
    /// The digests of its layers, the lowest first. Empty for a root file system that was imported.
    pub layers: Vec<String>,
    /// The variables that shells and runs get from it, as `NAME=VALUE`.
    pub env: Vec<String>,
    /// The directory in which shells and runs begin, if it names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub working_dir: Option<String>,
    /// The user that it names. Commands run as that one, unless it is root or not in the image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The session and the image that it was made from, if it was committed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub committed_from: Option<String>,
}

/// What a prune or a removal freed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct RemovedImagesView {
    /// How many layers were removed.
    pub layers: u64,
    /// How many leftovers of interrupted pulls were removed.
    pub leftovers: u64,
    /// How many bytes all of them had.
    pub bytes: u64,
}

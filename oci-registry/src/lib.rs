//! Reads images from OCI registries (the distribution API, version 2), over HTTP/1.1 and TLS by rustls.
//!
//! [`Reference`] is the name of an image, [`Client`] asks for its manifest and its blobs. Every document and every blob is checked
//! against its digest, every read has a bound of bytes and a bound of silence, and [`download`] continues a blob where an
//! earlier connection ended.
//!
//! It does not push, does not unpack, and decides nothing: what is pulled, where it goes and how much of it is allowed is up to
//! the caller.

mod challenge;
mod client;
mod credentials;
mod digest;
mod download;
mod error;
mod manifest;
mod reference;
mod transport;

pub use client::{Client, Options};
pub use credentials::CredentialFiles;
pub use digest::{Digest, Hasher};
pub use download::{Progress, download};
pub use error::RegistryError;
pub use manifest::{
    Compression, Descriptor, ImageConfig, Manifest, Platform, RootFs, RuntimeConfig, choose_platform, is_index,
    layer_compression,
};
pub use reference::{InvalidReference, Reference};

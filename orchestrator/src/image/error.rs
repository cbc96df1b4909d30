//! Why an image was not imported, pulled or removed.

use std::io;

use oci_registry::{InvalidReference, RegistryError};

#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    #[error("{0:?} is not a valid image name: use 1 to 64 of A-Z a-z 0-9 . _ - and begin with a letter or digit")]
    Name(String),
    #[error(transparent)]
    Reference(#[from] InvalidReference),
    #[error("there is already an image {0:?}; remove it first with: cove image rm {0}")]
    Exists(String),
    #[error("there is no image {0:?}")]
    Missing(String),
    /// Somebody else works on the store.
    #[error("{0}")]
    Busy(String),
    /// The operator's settings do not allow it.
    #[error("{0}")]
    Refused(String),
    /// What was given, or what a registry sent, is not an image that can be used.
    #[error("{0}")]
    Archive(String),
    #[error(transparent)]
    Registry(#[from] RegistryError),
    #[error("{step}")]
    Io {
        step: String,
        #[source]
        source: io::Error,
    },
}

impl ImageError {
    /// Whether a later attempt can succeed without anybody changing the image. Then the layers that are complete are kept.
    pub fn is_temporary(&self) -> bool {
        match self {
            Self::Registry(RegistryError::WrongDigest { .. } | RegistryError::TooLarge { .. }) => false,
            Self::Registry(error) => {
                error.is_transient()
                    || matches!(error, RegistryError::TooManyRequests { .. } | RegistryError::CutOff { .. })
            }
            Self::Busy(_) => true,
            _ => false,
        }
    }

    /// The error with its causes, in one line.
    pub fn whole(&self) -> String {
        let mut text = self.to_string();
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            text = format!("{text}: {error}");
            cause = error.source();
        }
        text
    }
}

/// Says at which step something failed.
pub fn at(step: impl Into<String>) -> impl FnOnce(io::Error) -> ImageError {
    let step = step.into();
    move |source| ImageError::Io { step, source }
}

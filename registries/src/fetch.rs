//! The way to the network: one bounded GET. Tests answer from a map; [`CommandFetch`](crate::CommandFetch) runs `curl`.

use std::time::Duration;

use crate::source_url::SourceUrl;

/// Redirects that a GET follows.
pub const MAX_REDIRECTS: usize = 3;

/// Gets pages. It is shared by the threads of all tools.
pub trait Fetch: Sync {
    /// Gets a page over HTTP or HTTPS, following at most [`MAX_REDIRECTS`] redirects.
    fn get(&self, request: &Request) -> Result<Fetched, FetchError>;
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    pub url: SourceUrl,
    /// For all redirects together.
    pub timeout: Duration,
    pub max_bytes: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetched {
    /// The URL that was asked for, and those that it was redirected to. It is never empty, and the last one has the body.
    pub visited: Vec<SourceUrl>,
    pub body: Body,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body {
    Whole(Vec<u8>),
    /// It is longer than asked for. The visited hosts are known nevertheless.
    TooLarge,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FetchError {
    #[error("neither curl nor python3 is installed")]
    NoProgram,
    #[error("it answered with the status {0}")]
    Status(u16),
    #[error("it redirected more than {MAX_REDIRECTS} times")]
    TooManyRedirects,
    #[error("it redirected to something that is not HTTP")]
    BadRedirect,
    #[error("it did not answer in time")]
    TimedOut,
    /// A constant text: what went wrong below HTTP.
    #[error("{0}")]
    Connection(&'static str),
}

//! Stories of the daemon: real `cove serve`, real sandboxes of the `local` runtime, asked over HTTP as its users do.
//! One program, since each links the whole harness.

mod bombs;
mod many;
mod probe;

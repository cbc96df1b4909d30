//! The seam to the kernel: every `unsafe` block of the runner is below this folder, each with its reason.
//!
//! Nothing here decides anything. Functions take plain values, make one or a few system calls, and return.
#![allow(unsafe_code, reason = "the one place where the runner talks to libc directly")]

pub mod fork;
pub mod identity;
pub mod inherited;
pub mod pipe;
pub mod poll;
pub mod proc;
pub mod sched;
pub mod signal;
pub mod spawn;
pub mod tty;
pub mod wait;

/// 128 bits from the kernel, as 32 hexadecimal digits: names and nonces that cannot be guessed.
pub fn random_hex() -> String {
    let mut bytes = [0u8; 16];
    // SAFETY: a live buffer and its exact length. Up to 256 bytes are always given whole once the pool is ready.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    if got != 16 {
        // A kernel without getrandom is older than anything bash and cgroups ask for; a guessable nonce is worse than none.
        std::process::abort();
    }
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

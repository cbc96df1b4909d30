//! Calls to the kernel: every `unsafe` block of the runner is in this folder, each with its reason.
//!
//! Nothing here decides anything. Functions take plain values, make one or a few system calls, and return. If nix or rustix
//! has a safe wrapper, it is used; the rest is `unsafe` because it forks, runs code between fork and exec, or takes a
//! descriptor by its number.
#![allow(unsafe_code, reason = "the one place where the runner talks to libc directly")]

pub mod cgroup;
pub mod environ;
pub mod fd;
pub mod fork;
pub mod identity;
pub mod init_command;
pub mod pidfd;
pub mod pipe;
pub mod poll;
pub mod proc;
pub mod sched;
pub mod signal;
pub mod spawn;
pub mod tracer;
pub mod tty;
pub mod user_namespace;
pub mod wait;

/// The number of bytes in a random name or nonce.
const RANDOM_BYTES: usize = 16;

/// 128 random bits from the kernel, as 32 hexadecimal digits, for names and nonces that nobody can guess.
pub fn random_hex() -> String {
    let mut bytes = [0u8; RANDOM_BYTES];
    // The kernel fills requests of up to 256 bytes completely. A kernel without this call is too old for the cgroups and
    // bash that the runner needs, and a nonce that can be guessed is worse than none.
    if rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()) != Ok(RANDOM_BYTES) {
        std::process::abort();
    }
    let digit = |value: u8| char::from_digit(value.into(), 16).unwrap_or('0');
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 0xf)]).collect()
}

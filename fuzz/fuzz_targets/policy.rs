//! The rules of a network policy, and its decisions.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| network_policy::fuzz::policy(bytes));

//! The configuration file.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| orchestrator::config::fuzz::config(bytes));

//! The frames of a hostile runner.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| orchestrator::runner_client::fuzz::runner_stream(bytes));

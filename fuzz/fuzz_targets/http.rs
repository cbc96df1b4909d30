//! The parts of an HTTP request: who may come in, address, query, range, JSON.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| orchestrator::api::fuzz::http(bytes));

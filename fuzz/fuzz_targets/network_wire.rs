//! The readers of what sandboxes send to the network: TLS hellos, HTTP heads, DNS queries, proxy requests.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| network_wire::fuzz::network_wire(bytes));

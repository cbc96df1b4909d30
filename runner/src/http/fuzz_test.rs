//! What the fuzzer of requests asserts; see `fuzz/`. The test replays its inputs.

use std::fmt::Debug;

use serde::Serialize;
use serde::de::DeserializeOwned;
use shared_protocol::runner::{ExecRequest, InputRequest, OpenShellRequest, ResizeRequest, RunRequest, SignalRequest};

use super::decode;

/// Any bytes give a request or an error, and what was decoded is the same when it is sent again.
pub fn request(bytes: &[u8]) {
    survives::<ExecRequest>(bytes);
    survives::<RunRequest>(bytes);
    survives::<InputRequest>(bytes);
    survives::<SignalRequest>(bytes);
    survives::<ResizeRequest>(bytes);
    survives::<OpenShellRequest>(bytes);
}

fn survives<T: Serialize + DeserializeOwned + PartialEq + Debug>(bytes: &[u8]) {
    if let Ok(request) = decode::<T>(bytes) {
        let again = serde_json::to_vec(&request).expect("a request can be written");
        assert_eq!(decode::<T>(&again).expect("and read again"), request);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fuzzers_inputs_are_replayed() {
        corpus::replay("request", request);
    }
}

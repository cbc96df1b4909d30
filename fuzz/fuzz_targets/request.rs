//! The decoder of requests: any bytes give a request or an error, and what was decoded is the same when sent again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use runner::http::decode;
use shared_protocol::runner::{ExecRequest, InputRequest, OpenShellRequest, ResizeRequest, RunRequest, SignalRequest};

fn survives<T: serde::Serialize + serde::de::DeserializeOwned + PartialEq + std::fmt::Debug>(bytes: &[u8]) {
    if let Ok(request) = decode::<T>(bytes) {
        let again = serde_json::to_vec(&request).expect("a request can be written");
        assert_eq!(decode::<T>(&again).expect("and read again"), request);
    }
}

fuzz_target!(|bytes: &[u8]| {
    survives::<ExecRequest>(bytes);
    survives::<RunRequest>(bytes);
    survives::<InputRequest>(bytes);
    survives::<SignalRequest>(bytes);
    survives::<ResizeRequest>(bytes);
    survives::<OpenShellRequest>(bytes);
});

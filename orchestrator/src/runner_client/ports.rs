//! Ports: the list of servers in the sandbox, and connections to them.

use std::net::IpAddr;

use hyper::StatusCode;
use shared_protocol::runner::{MAX_LISTED_PORTS, MAX_PROGRAM_BYTES, PortList, PortView, TCP_PROTOCOL};

use super::{Attached, Call, RunnerClient, RunnerError};

/// What it means for the server inside when the client ends its side of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndOfClient {
    /// It sends no more, and still reads.
    HalfClose,
    /// It is gone.
    Gone,
}

impl RunnerClient {
    /// Lists the TCP servers that listen in the sandbox.
    pub async fn ports(&self) -> Result<PortList, RunnerError> {
        let list: PortList = self.document(Call::get("/v1/ports"), StatusCode::OK).await?;
        check(&list).map_err(RunnerError::hostile)?;
        Ok(list)
    }

    /// Connects to a port on the sandbox's loopback.
    pub async fn connect(&self, port: u16, end_of_client: EndOfClient) -> Result<Attached, RunnerError> {
        let half_close = u8::from(end_of_client == EndOfClient::HalfClose);
        let target = format!("/v1/ports/{port}/connect?half_close={half_close}");
        self.upgraded(&target, TCP_PROTOCOL, "connection to the port").await
    }
}

fn check(list: &PortList) -> Result<(), &'static str> {
    if list.ports.len() > MAX_LISTED_PORTS {
        return Err("it lists more ports than it may");
    }
    let is_plain = |view: &PortView| {
        view.address.parse::<IpAddr>().is_ok()
            && view.program.as_ref().is_none_or(|name| name.len() <= MAX_PROGRAM_BYTES)
    };
    if list.ports.iter().all(is_plain) { Ok(()) } else { Err("it lists a port that cannot be one") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(address: &str, program: &str) -> PortView {
        let (address, program) = (address.to_owned(), Some(program.to_owned()));
        PortView { port: 80, address, reachable: true, pid: None, program }
    }

    #[test]
    fn a_list_that_cannot_be_true_is_refused() {
        let of = |ports: Vec<PortView>| check(&PortList { ports });
        assert_eq!(of(vec![view("127.0.0.1", "python3"), view("::1", "")]), Ok(()));
        assert!(of(vec![view("127.0.0.1\n<script>", "x")]).is_err());
        assert!(of(vec![view("::", &"x".repeat(MAX_PROGRAM_BYTES + 1))]).is_err());
        assert!(of(vec![view("::", "x"); MAX_LISTED_PORTS + 1]).is_err());
    }
}

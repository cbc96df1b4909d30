//! `expose_port`, `snapshot`, `restore`, `network_request`: what a model may do with its computer as a whole.

use serde_json::json;
use shared_protocol::api::{CreateSessionRequest, CreateSnapshotRequest, NetworkRule, PortUrlRequest};

use super::arguments::{ExposePortArguments, NetworkRequestArguments, RestoreArguments, SnapshotArguments};
use super::reply::{ToolReply, for_model_of_session};
use super::{Following, On, Tools};
use crate::service::CallError;
use crate::service::ports::{LinkSpec, Port, PortAddress};

impl Tools {
    pub(super) fn expose_port(
        &self,
        on: On<'_>,
        arguments: &ExposePortArguments,
        following: &Following,
    ) -> Result<ToolReply, CallError> {
        let Some(link_url) = &following.link_url else {
            return Ok(ToolReply::failure("links to ports are not available here"));
        };
        let spec = LinkSpec::new(&PortUrlRequest { ttl_seconds: arguments.ttl_seconds });
        let checked = Port::parse(&arguments.port.to_string()).and_then(|port| Ok((port, spec?)));
        let (port, spec) = match checked {
            Ok(checked) => checked,
            Err(error) => return Ok(ToolReply::failure(error.to_string())),
        };
        let address = PortAddress { session: on.id.clone(), port };
        let link = self.parts.ports.link(on.caller, &address, spec)?;
        let url = link_url(&address, &link.token);
        let text = format!("{url}\nThe link is good until {}, and whoever has it can open it.", link.expires_at);
        Ok(ToolReply::text(text, json!({ "url": url, "expires_at": link.expires_at })))
    }

    pub(super) async fn snapshot(&self, on: On<'_>, arguments: SnapshotArguments) -> Result<ToolReply, CallError> {
        let request = CreateSnapshotRequest { name: arguments.name };
        match self.parts.snapshots.create(on.caller, on.id, request).await {
            Ok(view) => {
                let text = format!("Snapshot {}. restore with this snapshot_id goes back to it.", view.id);
                Ok(ToolReply::text(text, json!({ "snapshot_id": view.id })))
            }
            Err(error) => for_model_of_session(error),
        }
    }

    /// Makes a session from a snapshot, with the network and the labels of this one. This session stays as it is.
    pub(super) async fn restore(&self, on: On<'_>, arguments: RestoreArguments) -> Result<ToolReply, CallError> {
        let now = self.parts.sessions.get(on.caller, on.id)?;
        let network = self.parts.networks.get(on.caller, on.id)?;
        let request = CreateSessionRequest {
            snapshot: Some(arguments.snapshot_id),
            network: Some(network.network),
            labels: now.labels,
            ..CreateSessionRequest::default()
        };
        match self.parts.sessions.create(on.caller, request, /* idempotency_key */ None).await {
            Ok(view) => {
                let text = format!("The session {} has the files and shells of the snapshot. Continue there.", view.id);
                let reply = ToolReply::text(text, json!({ "session_id": view.id }));
                Ok(ToolReply { moved_to: Some(view.id), ..reply })
            }
            Err(error) => for_model_of_session(error),
        }
    }

    pub(super) async fn network_request(
        &self,
        on: On<'_>,
        arguments: NetworkRequestArguments,
    ) -> Result<ToolReply, CallError> {
        let hosts = arguments.hosts.iter().map(|host| NetworkRule::Text(host.clone())).collect();
        match self.parts.networks.request(on.caller, on.id, hosts).await {
            Ok(_) => {
                let text = format!("Allowed: {}.", arguments.hosts.join(", "));
                Ok(ToolReply::text(text, json!({ "allowed": arguments.hosts })))
            }
            Err(error) => for_model_of_session(error),
        }
    }
}

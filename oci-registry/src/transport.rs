//! HTTP/1.1 over TCP and TLS. TLS is rustls with ring, and trusts what the host trusts.

use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::{Request, Response, body::Incoming};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::{ClientConfig, RootCertStore};

use crate::error::RegistryError;

/// The most idle connections that are kept for each host, and for how long.
const MAX_IDLE_CONNECTIONS: usize = 4;
const IDLE_CONNECTION: Duration = Duration::from_secs(30);

type HttpClient = hyper_util::client::legacy::Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

pub struct Transport {
    http: HttpClient,
    /// The longest wait for the head of an answer, connecting included.
    head_timeout: Duration,
}

impl Transport {
    /// It reads the host's certificates, and so the disk.
    pub fn new(connect_timeout: Duration, idle_timeout: Duration) -> Result<Self, RegistryError> {
        let failed = |cause: String| RegistryError::Unreachable { host: "TLS".into(), cause };
        let mut roots = RootCertStore::empty();
        // A certificate of the host that is broken does not keep the others from being used. If there is none at all, the
        // first handshake says so.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| failed(error.to_string()))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_connect_timeout(Some(connect_timeout));
        tcp.set_nodelay(true);
        let connector =
            HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1().wrap_connector(tcp);
        let http = hyper_util::client::legacy::Client::builder(TokioExecutor::new())
            .pool_max_idle_per_host(MAX_IDLE_CONNECTIONS)
            .pool_timer(hyper_util::rt::TokioTimer::new())
            .pool_idle_timeout(IDLE_CONNECTION)
            .build(connector);
        Ok(Self { http, head_timeout: connect_timeout + idle_timeout })
    }

    /// Sends a request and returns the head of the answer.
    pub async fn send(&self, request: Request<Full<Bytes>>, host: &str) -> Result<Response<Incoming>, RegistryError> {
        match tokio::time::timeout(self.head_timeout, self.http.request(request)).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) => {
                let mut cause = error.to_string();
                let mut inner = error.source();
                while let Some(error) = inner {
                    cause = format!("{cause}: {error}");
                    inner = error.source();
                }
                Err(RegistryError::Unreachable { host: host.to_owned(), cause })
            }
            Err(_) => Err(RegistryError::TimedOut { host: host.to_owned(), after: self.head_timeout }),
        }
    }
}

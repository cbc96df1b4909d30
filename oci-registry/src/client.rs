//! Asks a registry for manifests and blobs: mirrors first, with a token where one is wanted, through redirects.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::header::{
    ACCEPT, AUTHORIZATION, CONTENT_RANGE, CONTENT_TYPE, HeaderValue, LOCATION, RANGE, RETRY_AFTER, USER_AGENT,
    WWW_AUTHENTICATE,
};
use hyper::{Method, Request, Response, StatusCode, Uri};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;

use crate::challenge::Challenge;
use crate::credentials::{Credential, CredentialFiles};
use crate::digest::Digest;
use crate::error::RegistryError;
use crate::manifest::{self, Descriptor, Manifest, Platform};
use crate::reference::{DEFAULT_HOST, Reference};
use crate::transport::Transport;

/// Where the default registry answers; its name is not an address.
const DEFAULT_ADDRESS: &str = "registry-1.docker.io";

const MAX_MANIFEST_BYTES: u64 = 4 << 20;
const MAX_TOKEN_BYTES: u64 = 64 << 10;
const MAX_REDIRECTS: usize = 5;
/// An index may name an index; more would be a joke.
const MAX_INDEX_DEPTH: usize = 2;
/// The longest wait that a registry may ask for and that we repeat to people.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(24 * 60 * 60);

#[derive(Debug, Clone)]
pub struct Options {
    /// Registries that are spoken to without TLS, as `HOST` or `HOST:PORT`. Loopback addresses always are.
    pub insecure: Vec<String>,
    /// A mirror for each of these registries, which is asked first.
    pub mirrors: BTreeMap<String, String>,
    pub credentials: CredentialFiles,
    pub connect_timeout: Duration,
    /// The longest silence of a registry.
    pub idle_timeout: Duration,
    pub agent: String,
}

pub struct Client {
    transport: Transport,
    options: Options,
    /// What `Authorization` says for each registry and repository, once it is known.
    authorizations: Mutex<HashMap<(String, String), HeaderValue>>,
}

/// A registry or a mirror of it.
struct Endpoint<'a> {
    host: &'a str,
}

impl Endpoint<'_> {
    fn address(&self) -> &str {
        if self.host == DEFAULT_HOST { DEFAULT_ADDRESS } else { self.host }
    }
}

/// The bytes of a blob from an offset on.
pub struct BlobStream {
    body: Incoming,
    host: String,
    idle_timeout: Duration,
    /// Where the bytes begin: where they were asked for, or at 0 if the registry sends everything.
    pub from: u64,
}

impl BlobStream {
    pub async fn next(&mut self) -> Result<Option<Bytes>, RegistryError> {
        next_bytes(&mut self.body, &self.host, self.idle_timeout).await
    }
}

impl Client {
    /// It reads the host's certificates, and so the disk.
    pub fn new(options: Options) -> Result<Self, RegistryError> {
        let transport = Transport::new(options.connect_timeout, options.idle_timeout)?;
        Ok(Self { transport, options, authorizations: Mutex::default() })
    }

    /// The manifest of an image for a platform, with its digest.
    pub async fn manifest(
        &self,
        reference: &Reference,
        platform: &Platform,
    ) -> Result<(Digest, Manifest), RegistryError> {
        let what = format!("image {}", reference.short());
        let mut version = reference.version();
        let mut wanted = reference.digest.clone();
        for _ in 0..=MAX_INDEX_DEPTH {
            let path = format!("manifests/{version}");
            let headers = [(ACCEPT, manifest::accepted())];
            let (host, response) = self.get(reference, &path, &headers, &what).await?;
            let said = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
            let said = said.map(|value| value.split(';').next().unwrap_or_default().trim().to_owned());
            let bytes = self.read_all(response.into_body(), &host, MAX_MANIFEST_BYTES, &what).await?;
            let found = Digest::of(&bytes);
            verify(&what, wanted.as_ref(), &found)?;
            if !manifest::is_index(&bytes, said.as_deref(), &what)? {
                return Ok((found, Manifest::parse(&bytes, &what)?));
            }
            let chosen = manifest::choose_platform(&bytes, platform, &what)?;
            version = chosen.digest.to_string();
            wanted = Some(chosen.digest);
        }
        Err(RegistryError::NotUnderstood { what, cause: "an index names an index, and that another one".into() })
    }

    /// A whole blob that is a small document, such as an image's configuration.
    pub async fn document(
        &self,
        reference: &Reference,
        blob: &Descriptor,
        limit: u64,
    ) -> Result<Vec<u8>, RegistryError> {
        let what = format!("blob {}", blob.digest.short());
        if blob.size > limit {
            return Err(RegistryError::TooLarge { what, limit });
        }
        let (host, response) = self.get(reference, &format!("blobs/{}", blob.digest), &[], &what).await?;
        let bytes = self.read_all(response.into_body(), &host, limit, &what).await?;
        verify(&what, Some(&blob.digest), &Digest::of(&bytes))?;
        Ok(bytes)
    }

    /// The bytes of a blob from an offset on, as they come. The caller verifies them.
    pub async fn blob(&self, reference: &Reference, blob: &Descriptor, from: u64) -> Result<BlobStream, RegistryError> {
        let what = format!("layer {}", blob.digest.short());
        let headers = if from > 0 { vec![(RANGE, format!("bytes={from}-"))] } else { Vec::new() };
        let (host, response) = self.get(reference, &format!("blobs/{}", blob.digest), &headers, &what).await?;
        let from = match response.status() {
            StatusCode::PARTIAL_CONTENT => {
                let range =
                    response.headers().get(CONTENT_RANGE).and_then(|value| value.to_str().ok()).unwrap_or_default();
                let start = start_of_range(range).filter(|start| *start == from);
                start.ok_or_else(|| RegistryError::NotUnderstood { what, cause: format!("its range is {range:?}") })?
            }
            _ => 0,
        };
        Ok(BlobStream { body: response.into_body(), host, idle_timeout: self.options.idle_timeout, from })
    }

    /// Asks the mirror, if there is one, and then the registry. The answer is a success.
    async fn get(
        &self,
        reference: &Reference,
        path: &str,
        headers: &[(hyper::header::HeaderName, String)],
        what: &str,
    ) -> Result<(String, Response<Incoming>), RegistryError> {
        if let Some(mirror) = self.options.mirrors.get(&reference.host) {
            let endpoint = Endpoint { host: mirror };
            match self.get_from(&endpoint, reference, path, headers, what).await {
                Ok(response) => return Ok((mirror.clone(), response)),
                Err(error) => tracing::info!(%mirror, %error, "mirror is passed over"),
            }
        }
        let endpoint = Endpoint { host: &reference.host };
        let response = self.get_from(&endpoint, reference, path, headers, what).await?;
        Ok((reference.host.clone(), response))
    }

    async fn get_from(
        &self,
        endpoint: &Endpoint<'_>,
        reference: &Reference,
        path: &str,
        headers: &[(hyper::header::HeaderName, String)],
        what: &str,
    ) -> Result<Response<Incoming>, RegistryError> {
        let host = endpoint.host;
        let scheme = if self.is_plain(host) { "http" } else { "https" };
        let uri = address(&format!("{scheme}://{}/v2/{}/{path}", endpoint.address(), reference.repository), host)?;
        let key = (host.to_owned(), reference.repository.clone());
        let known = self.authorizations.lock().unwrap_or_else(PoisonError::into_inner).get(&key).cloned();
        let response = self.follow(&uri, headers, known.as_ref(), host).await?;
        if response.status() != StatusCode::UNAUTHORIZED {
            return checked(response, host, what);
        }
        // A token may have expired since it was given; so a new one is asked for once, in any case.
        let unauthorized = || RegistryError::Unauthorized { host: host.to_owned(), what: what.to_owned() };
        let challenges = response.headers().get_all(WWW_AUTHENTICATE).iter().filter_map(|value| value.to_str().ok());
        let challenge = challenges.filter_map(Challenge::parse).next().ok_or_else(unauthorized)?;
        drop(response);
        let authorization = self.authorize(&challenge, host, &reference.repository, what).await?;
        let response = self.follow(&uri, headers, Some(&authorization), host).await?;
        let response = checked(response, host, what)?;
        self.authorizations.lock().unwrap_or_else(PoisonError::into_inner).insert(key, authorization);
        Ok(response)
    }

    /// Sends a GET and follows redirects. What proves who we are stays with the registry that it is for.
    async fn follow(
        &self,
        uri: &Uri,
        headers: &[(hyper::header::HeaderName, String)],
        authorization: Option<&HeaderValue>,
        host: &str,
    ) -> Result<Response<Incoming>, RegistryError> {
        let mut at = uri.clone();
        for _ in 0..=MAX_REDIRECTS {
            let mut request = self.request(Method::GET, &at, Bytes::new(), host)?;
            for (name, value) in headers {
                request.headers_mut().insert(name, header_value(value, host)?);
            }
            if let Some(authorization) = authorization.filter(|_| at.authority() == uri.authority()) {
                request.headers_mut().insert(AUTHORIZATION, authorization.clone());
            }
            let response = self.transport.send(request, host).await?;
            if !response.status().is_redirection() || response.status() == StatusCode::NOT_MODIFIED {
                return Ok(response);
            }
            at = redirected(&at, &response, host)?;
        }
        Err(RegistryError::NotUnderstood {
            what: host.to_owned(),
            cause: format!("more than {MAX_REDIRECTS} redirects"),
        })
    }

    fn request(
        &self,
        method: Method,
        uri: &Uri,
        body: Bytes,
        host: &str,
    ) -> Result<Request<Full<Bytes>>, RegistryError> {
        let request = Request::builder().method(method).uri(uri.clone()).header(USER_AGENT, &self.options.agent);
        request
            .body(Full::new(body))
            .map_err(|error| RegistryError::NotUnderstood { what: host.to_owned(), cause: error.to_string() })
    }

    /// What `Authorization` has to say after a challenge.
    async fn authorize(
        &self,
        challenge: &Challenge,
        host: &str,
        repository: &str,
        what: &str,
    ) -> Result<HeaderValue, RegistryError> {
        let credential = self.options.credentials.find(host, repository).await;
        let unauthorized = || RegistryError::Unauthorized { host: host.to_owned(), what: what.to_owned() };
        let text = match (challenge, credential) {
            (Challenge::Basic, Some(Credential::Password { user, secret })) => basic(&user, &secret),
            (Challenge::Basic, _) => return Err(unauthorized()),
            (Challenge::Bearer { realm, service, scope }, credential) => {
                let pull = format!("repository:{repository}:pull");
                let wanted = Token { realm, service: service.as_deref(), scope: scope.as_deref().unwrap_or(&pull) };
                format!("Bearer {}", self.token(&wanted, credential, host, what).await?)
            }
        };
        let mut value = header_value(&text, host)?;
        value.set_sensitive(true);
        Ok(value)
    }

    async fn token(
        &self,
        wanted: &Token<'_>,
        credential: Option<Credential>,
        host: &str,
        what: &str,
    ) -> Result<String, RegistryError> {
        let realm = address(wanted.realm, host)?;
        if realm.scheme_str() != Some("https") && !self.is_plain(host) {
            let cause = "its token server would be asked without TLS".to_owned();
            return Err(RegistryError::NotUnderstood { what: host.to_owned(), cause });
        }
        let encoded = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        let mut query = format!("scope={}", encoded(wanted.scope));
        if let Some(service) = wanted.service {
            query.push_str(&format!("&service={}", encoded(service)));
        }
        let request = match credential {
            Some(Credential::RefreshToken(token)) => {
                let form = format!("grant_type=refresh_token&client_id=cove&{query}&refresh_token={}", encoded(&token));
                let mut request = self.request(Method::POST, &realm, form.into(), host)?;
                let form = HeaderValue::from_static("application/x-www-form-urlencoded");
                request.headers_mut().insert(CONTENT_TYPE, form);
                request
            }
            other => {
                let sign = if wanted.realm.contains('?') { '&' } else { '?' };
                let uri = address(&format!("{}{sign}{query}", wanted.realm), host)?;
                let mut request = self.request(Method::GET, &uri, Bytes::new(), host)?;
                if let Some(Credential::Password { user, secret }) = other {
                    let mut value = header_value(&basic(&user, &secret), host)?;
                    value.set_sensitive(true);
                    request.headers_mut().insert(AUTHORIZATION, value);
                }
                request
            }
        };
        let response = checked(self.transport.send(request, host).await?, host, what)?;
        let what = format!("the token of {host}");
        let bytes = self.read_all(response.into_body(), host, MAX_TOKEN_BYTES, &what).await?;
        let answer: TokenAnswer = serde_json::from_slice(&bytes)
            .map_err(|_| RegistryError::NotUnderstood { what: what.clone(), cause: "it is not JSON".into() })?;
        answer
            .token
            .or(answer.access_token)
            .filter(|token| !token.is_empty())
            .ok_or_else(|| RegistryError::NotUnderstood { what, cause: "there is none in the answer".into() })
    }

    async fn read_all(&self, mut body: Incoming, host: &str, limit: u64, what: &str) -> Result<Vec<u8>, RegistryError> {
        let mut bytes = Vec::new();
        while let Some(piece) = next_bytes(&mut body, host, self.options.idle_timeout).await? {
            bytes.extend_from_slice(&piece);
            if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > limit {
                return Err(RegistryError::TooLarge { what: what.to_owned(), limit });
            }
        }
        Ok(bytes)
    }

    /// Whether a registry is spoken to without TLS.
    fn is_plain(&self, host: &str) -> bool {
        self.options.insecure.iter().any(|known| known == host) || is_loopback(host)
    }
}

struct Token<'a> {
    realm: &'a str,
    service: Option<&'a str>,
    scope: &'a str,
}

#[derive(Deserialize)]
struct TokenAnswer {
    #[serde(default)]
    token: Option<String>,
    #[serde(default)]
    access_token: Option<String>,
}

fn basic(user: &str, secret: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("{user}:{secret}")))
}

/// Whether a host, with or without a port, is this machine.
fn is_loopback(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    name == "localhost" || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn verify(what: &str, wanted: Option<&Digest>, found: &Digest) -> Result<(), RegistryError> {
    match wanted.filter(|wanted| *wanted != found) {
        None => Ok(()),
        Some(wanted) => Err(RegistryError::WrongDigest {
            what: what.to_owned(),
            wanted: wanted.to_string(),
            found: found.to_string(),
        }),
    }
}

async fn next_bytes(body: &mut Incoming, host: &str, idle_timeout: Duration) -> Result<Option<Bytes>, RegistryError> {
    loop {
        let frame = tokio::time::timeout(idle_timeout, body.frame())
            .await
            .map_err(|_| RegistryError::TimedOut { host: host.to_owned(), after: idle_timeout })?;
        match frame {
            None => return Ok(None),
            Some(Ok(frame)) => {
                if let Ok(bytes) = frame.into_data() {
                    return Ok(Some(bytes));
                }
            }
            Some(Err(error)) => {
                return Err(RegistryError::Broken { host: host.to_owned(), cause: error.to_string() });
            }
        }
    }
}

/// Turns an answer that is no success into the error that it means.
fn checked(response: Response<Incoming>, host: &str, what: &str) -> Result<Response<Incoming>, RegistryError> {
    let (host, what) = (host.to_owned(), what.to_owned());
    match response.status() {
        status if status.is_success() => Ok(response),
        StatusCode::UNAUTHORIZED => Err(RegistryError::Unauthorized { host, what }),
        StatusCode::FORBIDDEN => Err(RegistryError::Forbidden { host, what }),
        StatusCode::NOT_FOUND => Err(RegistryError::NotFound { host, what }),
        StatusCode::TOO_MANY_REQUESTS => {
            let retry = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.trim().parse().ok());
            let retry_after = retry.map(Duration::from_secs).map(|wait| wait.min(MAX_RETRY_AFTER));
            Err(RegistryError::TooManyRequests { host, retry_after })
        }
        status => Err(RegistryError::Status { host, what, status: status.as_u16() }),
    }
}

fn address(text: &str, host: &str) -> Result<Uri, RegistryError> {
    let uri: Option<Uri> = text.parse().ok();
    let is_address = |uri: &Uri| matches!(uri.scheme_str(), Some("http" | "https")) && uri.authority().is_some();
    uri.filter(is_address).ok_or_else(|| RegistryError::NotUnderstood {
        what: host.to_owned(),
        cause: format!("{:?} is not an address", text.chars().take(200).collect::<String>()),
    })
}

fn header_value(text: &str, host: &str) -> Result<HeaderValue, RegistryError> {
    let cause = "a header would have characters that HTTP does not allow".to_owned();
    HeaderValue::try_from(text).map_err(|_| RegistryError::NotUnderstood { what: host.to_owned(), cause })
}

/// Where a redirect leads. It does not lead from TLS to plain HTTP.
fn redirected(from: &Uri, response: &Response<Incoming>, host: &str) -> Result<Uri, RegistryError> {
    let location = response.headers().get(LOCATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let whole = match location.strip_prefix('/') {
        Some(path) if !path.starts_with('/') => {
            let (scheme, authority) = (from.scheme_str().unwrap_or_default(), from.authority());
            format!("{scheme}://{}/{path}", authority.map(ToString::to_string).unwrap_or_default())
        }
        _ => location.to_owned(),
    };
    let to = address(&whole, host)?;
    if from.scheme_str() == Some("https") && to.scheme_str() != Some("https") {
        let cause = "it redirects to an address without TLS".to_owned();
        return Err(RegistryError::NotUnderstood { what: host.to_owned(), cause });
    }
    Ok(to)
}

/// The first number of `bytes FIRST-LAST/TOTAL`.
fn start_of_range(range: &str) -> Option<u64> {
    range.strip_prefix("bytes ")?.split('-').next()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_is_plain_without_being_asked_for() {
        for host in ["localhost", "localhost:5000", "127.0.0.1", "127.9.9.9:80", "[::1]:5000"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in ["127.0.0.1.example.com", "localhost.example.com:5000", "10.0.0.1:5000", "[2001:db8::1]:5000"] {
            assert!(!is_loopback(host), "{host}");
        }
    }

    #[test]
    fn a_range_begins_where_it_says() {
        assert_eq!(start_of_range("bytes 100-199/200"), Some(100));
        assert_eq!(start_of_range("bytes */200"), None);
        assert_eq!(start_of_range("items 1-2/3"), None);
    }
}

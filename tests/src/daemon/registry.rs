//! Images that stories make, and registries that have them: Debian's `docker-registry`, and one of the story's own that can be told to
//! do everything wrong.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use crate::{DEADLINE, wait_until};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::Semaphore;

pub const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
pub const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";

pub fn digest(bytes: &[u8]) -> String {
    let hex: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).expect("memory");
    encoder.finish().expect("memory")
}

pub fn zstd(bytes: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
}

/// A layer as an image has it.
#[derive(Clone)]
pub struct Layer {
    pub media_type: String,
    pub blob: Vec<u8>,
    pub diff_id: String,
}

impl Layer {
    pub fn plain(tar: &[u8]) -> Self {
        Self { media_type: LAYER.into(), blob: tar.to_vec(), diff_id: digest(tar) }
    }

    pub fn gzip(tar: &[u8]) -> Self {
        Self { media_type: format!("{LAYER}+gzip"), blob: gzip(tar), diff_id: digest(tar) }
    }

    pub fn zstd(tar: &[u8]) -> Self {
        Self { media_type: format!("{LAYER}+zstd"), blob: zstd(tar), diff_id: digest(tar) }
    }
}

/// An image: its documents and blobs by digest.
#[derive(Clone)]
pub struct Image {
    pub manifest: Vec<u8>,
    pub blobs: BTreeMap<String, Vec<u8>>,
}

impl Image {
    pub fn new(layers: &[Layer], config: Value) -> Self {
        let diff_ids: Vec<&String> = layers.iter().map(|layer| &layer.diff_id).collect();
        let config = json!({
            "architecture": "amd64", "os": "linux", "created": "2026-01-02T03:04:05Z", "config": config,
            "rootfs": { "type": "layers", "diff_ids": diff_ids },
        });
        let config = serde_json::to_vec(&config).expect("JSON");
        let descriptor = |media_type: &str, blob: &[u8]| json!({ "mediaType": media_type, "digest": digest(blob), "size": blob.len() });
        let manifest = json!({
            "schemaVersion": 2, "mediaType": MANIFEST,
            "config": descriptor("application/vnd.oci.image.config.v1+json", &config),
            "layers": layers.iter().map(|layer| descriptor(&layer.media_type, &layer.blob)).collect::<Vec<_>>(),
        });
        let manifest = serde_json::to_vec(&manifest).expect("JSON");
        let blobs = layers.iter().map(|layer| layer.blob.clone()).chain([config]);
        Self { manifest, blobs: blobs.map(|blob| (digest(&blob), blob)).collect() }
    }
}

/// Debian's `docker-registry` on loopback.
pub struct DebianRegistry {
    child: Child,
    pub address: String,
    _directory: TempDir,
}

impl DebianRegistry {
    /// Starts a registry. `None` if it is not installed.
    pub async fn start() -> Option<Self> {
        let directory = tempfile::tempdir().expect("a temporary directory");
        // The registry cannot choose a port itself. This one was free a moment ago.
        let address = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a free port");
        let address = address.to_string();
        let config = json!({
            "version": 0.1,
            "storage": { "filesystem": { "rootdirectory": directory.path() } },
            "http": { "addr": address },
        });
        let path = directory.path().join("config.yml");
        std::fs::write(&path, config.to_string()).expect("our own directory");
        let mut command = Command::new("docker-registry");
        command.arg("serve").arg(path).stdout(Stdio::null()).stderr(Stdio::null());
        let child = match command.spawn() {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
            child => child.expect("the registry can be started"),
        };
        let registry = Self { child, address, _directory: directory };
        wait_until("the registry answers", DEADLINE, async || {
            tokio::net::TcpStream::connect(&registry.address).await.ok().map(drop)
        })
        .await;
        Some(registry)
    }

    /// Pushes an image by plain HTTP, and returns its name.
    pub fn push(&self, repository: &str, tag: &str, image: &Image) -> String {
        for (digest, blob) in &image.blobs {
            let begun = self.send("POST", &format!("/v2/{repository}/blobs/uploads/"), "", &[]);
            let location = begun.lines().find_map(|line| line.strip_prefix("Location: ")).expect("a location").trim();
            let path = location.strip_prefix(&format!("http://{}", self.address)).unwrap_or(location);
            let done = self.send("PUT", &format!("{path}&digest={digest}"), "application/octet-stream", blob);
            assert!(done.starts_with("HTTP/1.1 201"), "{done}");
        }
        let done = self.send("PUT", &format!("/v2/{repository}/manifests/{tag}"), MANIFEST, &image.manifest);
        assert!(done.starts_with("HTTP/1.1 201"), "{done}");
        format!("{}/{repository}:{tag}", self.address)
    }

    fn send(&self, method: &str, path: &str, content_type: &str, body: &[u8]) -> String {
        let mut stream = std::net::TcpStream::connect(&self.address).expect("the registry listens");
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            self.address,
            body.len()
        );
        stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body)).expect("the registry reads");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("an answer");
        String::from_utf8_lossy(&answer).into_owned()
    }
}

impl Drop for DebianRegistry {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One request, as the story's own registry sees it.
#[derive(Debug, Clone)]
pub struct Request {
    pub path: String,
    pub headers: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Default)]
pub struct Reply {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// Sends only so many bytes of the body, and then closes the connection.
    pub cut_after: Option<usize>,
    /// Sends nothing more, and keeps the connection.
    pub hangs: bool,
    /// Sends the answer when there is a permit.
    pub after: Option<Arc<Semaphore>>,
}

impl Reply {
    pub fn of(status: u16) -> Self {
        Self { status, ..Self::default() }
    }

    pub fn ok(body: &[u8]) -> Self {
        Self { status: 200, body: body.to_vec(), ..Self::default() }
    }

    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }
}

/// A registry of the story's own on loopback, which answers as it is told.
pub struct OwnRegistry {
    pub address: String,
    pub seen: Arc<Mutex<Vec<Request>>>,
    task: tokio::task::JoinHandle<()>,
}

impl OwnRegistry {
    pub async fn start(answer: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound").to_string();
        let seen: Arc<Mutex<Vec<Request>>> = Arc::default();
        let (answer, record) = (Arc::new(answer), seen.clone());
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (answer, record) = (answer.clone(), record.clone());
                tokio::spawn(async move { serve(stream, &*answer, &record).await });
            }
        });
        Self { address, seen, task }
    }

    /// A registry that has an image as `story/image:1`, and lets `change` replace answers.
    pub async fn of(image: Image, change: impl Fn(&Request) -> Option<Reply> + Send + Sync + 'static) -> Self {
        Self::start(move |request| change(request).unwrap_or_else(|| good(&image, request))).await
    }

    pub fn name(&self) -> String {
        format!("{}/story/image:1", self.address)
    }

    /// The paths that were asked for.
    pub fn paths(&self) -> Vec<String> {
        self.seen.lock().expect("no panic").iter().map(|request| request.path.clone()).collect()
    }
}

impl Drop for OwnRegistry {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What an honest registry answers.
pub fn good(image: &Image, request: &Request) -> Reply {
    let manifest = digest(&image.manifest);
    if request.path == "/v2/story/image/manifests/1" || request.path == format!("/v2/story/image/manifests/{manifest}")
    {
        return Reply::ok(&image.manifest).header("Content-Type", MANIFEST);
    }
    let blob = request.path.strip_prefix("/v2/story/image/blobs/").and_then(|digest| image.blobs.get(digest));
    let Some(blob) = blob else { return Reply::of(404) };
    match request.headers.get("range").and_then(|range| range.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok()) {
        Some(from) => {
            let range = format!("bytes {from}-{}/{}", blob.len() - 1, blob.len());
            Reply { status: 206, ..Reply::ok(&blob[from..]) }.header("Content-Range", &range)
        }
        None => Reply::ok(blob),
    }
}

async fn serve(
    mut stream: tokio::net::TcpStream,
    answer: &(impl Fn(&Request) -> Reply + Sync),
    seen: &Mutex<Vec<Request>>,
) -> Option<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    let text = String::from_utf8_lossy(&head).into_owned();
    let mut lines = text.lines();
    let path = lines.next()?.split(' ').nth(1)?.to_owned();
    let pairs = lines.filter_map(|line| line.split_once(": "));
    let headers = pairs.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned())).collect();
    let request = Request { path, headers };
    let reply = answer(&request);
    seen.lock().expect("no panic").push(request);
    if let Some(gate) = &reply.after {
        gate.acquire().await.ok()?.forget();
    }
    if reply.hangs && reply.status == 0 {
        std::future::pending::<()>().await;
    }
    let mut head =
        format!("HTTP/1.1 {} X\r\nContent-Length: {}\r\nConnection: close\r\n", reply.status, reply.body.len());
    for (name, value) in &reply.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    stream.write_all(head.as_bytes()).await.ok()?;
    let sent = &reply.body[..reply.cut_after.unwrap_or(reply.body.len()).min(reply.body.len())];
    stream.write_all(sent).await.ok()?;
    if reply.hangs {
        std::future::pending::<()>().await;
    }
    stream.shutdown().await.ok()
}

//! Tests of connections over a real socket: slow ones, too many, and open ones when the server stops.

use axum::routing::get;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::config::{Config, ServeFlags};

struct World {
    address: std::net::SocketAddr,
    stop: watch::Sender<bool>,
    remaining: tokio::task::JoinHandle<Remaining>,
    go: Arc<Semaphore>,
}

/// A server that answers `/` at once, and `/slow` when the test allows it.
async fn world(change: impl FnOnce(&mut ServerConfig)) -> World {
    let flags = ServeFlags { data_dir: Some("/nowhere".into()), ..ServeFlags::default() };
    let mut config = Config::load(&flags).unwrap().server;
    change(&mut config);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let go = Arc::new(Semaphore::new(0));
    let wait = go.clone();
    let slow = move || async move {
        wait.acquire().await.unwrap().forget();
        "slow"
    };
    let router = Router::new().route("/", get(|| async { "fast" })).route("/slow", get(slow));
    let (stop, stopped) = watch::channel(false);
    let listener = Listener { tcp: listener, socket: None };
    let server = Server { listener, router, config, metrics: Metrics::new() };
    let remaining = tokio::spawn(server.run(stopped));
    World { address, stop, remaining, go }
}

impl World {
    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }
}

async fn ask(stream: &mut TcpStream, path: &str) {
    stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n").as_bytes()).await.unwrap();
}

/// Reads until the other side closes. A reset counts as a close.
async fn rest(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes).await;
    String::from_utf8_lossy(&bytes).into_owned()
}

async fn one_answer(stream: &mut TcpStream, body: &str) -> String {
    let mut text = String::new();
    while !text.ends_with(body) {
        let mut buffer = [0; 1024];
        let count = stream.read(&mut buffer).await.unwrap();
        assert!(count > 0, "closed after {text:?}");
        text.push_str(&String::from_utf8_lossy(&buffer[..count]));
    }
    text
}

#[tokio::test]
async fn a_client_that_never_ends_its_first_request_is_hung_up_on() {
    let w = world(|config| config.first_request_timeout = Duration::from_millis(50)).await;
    let mut stream = w.connect().await;
    stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\nx-").await.unwrap();
    assert_eq!(rest(&mut stream).await, "");
}

#[tokio::test]
async fn a_connection_without_a_further_request_is_closed_and_a_request_in_flight_is_not() {
    let w = world(|config| {
        config.first_request_timeout = Duration::from_millis(20);
        config.idle_timeout = Duration::from_millis(50);
    })
    .await;
    let mut idle = w.connect().await;
    let mut busy = w.connect().await;
    ask(&mut busy, "/slow").await;
    ask(&mut idle, "/").await;
    assert!(rest(&mut idle).await.ends_with("fast"));
    w.go.add_permits(1);
    assert!(rest(&mut busy).await.ends_with("slow"), "it outlived both timeouts");
}

#[tokio::test]
async fn one_connection_too_many_is_told_so_in_the_error_shape() {
    let w = world(|config| config.max_connections = 1).await;
    let mut first = w.connect().await;
    ask(&mut first, "/").await;
    one_answer(&mut first, "fast").await;
    let mut second = w.connect().await;
    let answer = rest(&mut second).await;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 429 "), "{head}");
    assert!(head.contains(&format!("content-length: {}", body.len())), "{head}");
    let error: shared_protocol::ErrorBody = serde_json::from_str(body).unwrap();
    assert_eq!(error.error_code, shared_protocol::ErrorCode::LimitReached);
}

#[tokio::test]
async fn a_head_that_is_too_large_is_refused() {
    let w = world(|_| {}).await;
    let mut stream = w.connect().await;
    let long = "x".repeat(64 << 10);
    let _ = stream.write_all(format!("GET / HTTP/1.1\r\nhost: x\r\nbig: {long}\r\n\r\n").as_bytes()).await;
    let answer = rest(&mut stream).await;
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431 "), "{answer}");
    ask(&mut w.connect().await, "/").await;
}

#[tokio::test]
async fn at_the_end_a_request_in_flight_is_answered_and_nobody_comes_in() {
    let w = world(|_| {}).await;
    let mut busy = w.connect().await;
    ask(&mut busy, "/slow").await;
    let mut idle = w.connect().await;
    ask(&mut idle, "/").await;
    one_answer(&mut idle, "fast").await;
    w.stop.send_replace(true);
    let mut remaining = w.remaining.await.unwrap();
    assert_eq!(rest(&mut idle).await, "", "an idle one is closed at once");
    assert!(TcpStream::connect(w.address).await.is_err());
    assert!(!remaining.finish(Duration::from_millis(20)).await);
    w.go.add_permits(1);
    assert!(rest(&mut busy).await.ends_with("slow"));
    assert!(remaining.finish(Duration::from_secs(5)).await);
}

#[tokio::test]
async fn one_client_does_not_get_all_connections() {
    let w = world(|config| config.max_connections_per_client = 2).await;
    let (mut first, mut second) = (w.connect().await, w.connect().await);
    for stream in [&mut first, &mut second] {
        ask(stream, "/").await;
        one_answer(stream, "fast").await;
    }
    let refused = rest(&mut w.connect().await).await;
    assert!(refused.starts_with("HTTP/1.1 429 ") && refused.contains("retry-after: 1"), "{refused}");
    // Another address is another client.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
    let mut other = socket.connect(w.address).await.unwrap();
    ask(&mut other, "/").await;
    one_answer(&mut other, "fast").await;
}

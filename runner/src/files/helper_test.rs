//! Tests with real helpers that the test forks. There is no reaper, because it would collect the children of other tests.

use std::rc::Rc;

use http_body_util::Full;

use super::*;
use crate::files::fixture::Fixture;

const OURSELVES: Identity = Identity { uid: 0, gid: 0, switch: false };

fn on_one_thread<T>(test: impl AsyncFnOnce() -> T) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, test())
}

async fn run<B>(fixture: &Fixture, job: Job, body: B) -> Result<(u16, Result<Vec<u8>, String>), ErrorBody>
where
    B: http_body::Body<Data = Bytes> + Unpin,
{
    let (head, data) = run_in_slot(&Reaper::default(), OURSELVES, &fixture.roots, (), job, body).await?;
    let data = StreamedBody(data).collect().await.map_err(|error| error.to_string());
    Ok((head.status, data.map(|data| data.to_bytes().to_vec())))
}

/// A body whose chunks come from a channel, like a client's.
struct StreamedBody(DataStream);

impl http_body::Body for StreamedBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<io::Result<http_body::Frame<Bytes>>>> {
        self.0.poll_recv(cx).map(|next| next.map(|chunk| chunk.map(http_body::Frame::data)))
    }
}

fn nothing() -> Full<Bytes> {
    Full::new(Bytes::new())
}

#[test]
fn a_file_goes_in_and_comes_out_through_helpers() {
    on_one_thread(async || {
        let fixture = Fixture::new();
        let content: Vec<u8> = (0..1_000_000u32).map(|n| n.to_le_bytes()[0]).collect();
        let path = || b"a/f".to_vec();
        let body = Full::new(Bytes::from(content.clone()));
        let (status, said) = run(&fixture, Job::Write { path: path(), mode: None }, body).await.unwrap();
        assert_eq!((status, said.unwrap().as_slice()), (201, &b"{\"bytes\":1000000}"[..]));
        let (status, said) = run(&fixture, Job::Read { path: path(), range: None }, nothing()).await.unwrap();
        assert_eq!(status, 200);
        assert!(said.unwrap() == content);
    });
}

#[test]
fn a_failure_is_an_error_with_its_code() {
    on_one_thread(async || {
        let fixture = Fixture::new();
        let job = Job::Read { path: b"nothing".to_vec(), range: None };
        assert_eq!(run(&fixture, job, nothing()).await.unwrap_err().error_code, ErrorCode::FileNotFound);
        // The failure is known before the body is read. The body is still read from the connection.
        let job = Job::Write { path: b"..".to_vec(), mode: None };
        let body = Full::new(Bytes::from(vec![0; 100_000]));
        assert_eq!(run(&fixture, job, body).await.unwrap_err().error_code, ErrorCode::InvalidRequest);
    });
}

#[test]
fn an_upload_that_fails_in_the_middle_is_answered_while_it_is_being_sent() {
    on_one_thread(async || {
        let fixture = Fixture::new();
        // This is no tar stream, so it is refused at its first block; the client would send forever.
        let endless = without_end(Bytes::from(vec![b'x'; MAX_FRAME]));
        let error = run(&fixture, Job::Unpack { path: b"to".to_vec() }, endless).await.unwrap_err();
        assert!(error.message.contains("not a tar stream"), "{error}");
    });
}

#[test]
fn an_upload_that_is_cut_leaves_the_old_file() {
    on_one_thread(async || {
        let fixture = Fixture::new();
        fixture.file("f", b"old");
        let (sender, receiver) = mpsc::channel(1);
        sender.send(Ok(Bytes::from_static(b"new"))).await.unwrap();
        tokio::task::spawn_local(async move { sender.send(Err(io::Error::other("cut"))).await });
        let error = run(&fixture, Job::Write { path: b"f".to_vec(), mode: None }, StreamedBody(receiver)).await;
        assert!(error.unwrap_err().message.contains("cut"));
        assert_eq!(fixture.content("f"), b"old");
        // The helper sees the end of its input and removes the unfinished file.
        let deadline = Instant::now() + Duration::from_secs(20);
        while fixture.names() != ["f"] {
            assert!(Instant::now() < deadline, "{:?}", fixture.names());
            tokio::task::yield_now().await;
        }
    });
}

#[test]
fn a_helper_that_stands_still_is_given_up_and_told_to_end() {
    on_one_thread(async || {
        // This helper sends nothing and holds its pipes open.
        let (child_input, input) = input_pipe().unwrap();
        let (output, child_output) = output_pipe().unwrap();
        let (stop, end) = oneshot::channel();
        let mut helper = Helper {
            job: "test",
            reaper: Reaper::default(),
            input: pipe::Sender::from_owned_fd(input).unwrap(),
            output: pipe::Receiver::from_owned_fd(output).unwrap(),
            buffer: BytesMut::new(),
            stall: Duration::from_millis(20),
            stop: Some(stop),
        };
        let error = helper.head().await.unwrap_err();
        assert!(error.message.contains("no progress for 20ms"), "{error}");
        assert_eq!(end.await, Ok(()), "to be killed now");
        drop((child_input, child_output));
    });
}

#[test]
fn a_helper_that_the_runner_holds_is_not_given_up() {
    on_one_thread(async || {
        let (child_input, input) = input_pipe().unwrap();
        let (output, child_output) = output_pipe().unwrap();
        let reaper = Reaper::default();
        reaper.ignore_stops(true);
        let mut helper = Helper {
            job: "test",
            reaper: reaper.clone(),
            input: pipe::Sender::from_owned_fd(input).unwrap(),
            output: pipe::Receiver::from_owned_fd(output).unwrap(),
            buffer: BytesMut::new(),
            stall: Duration::from_millis(3),
            stop: None,
        };
        let held = timeout(Duration::from_millis(100), helper.head()).await;
        assert!(held.is_err(), "it was given up: {held:?}");
        reaper.ignore_stops(false);
        assert!(helper.head().await.unwrap_err().message.contains("no progress"));
        drop((child_input, child_output));
    });
}

#[test]
fn watches_and_other_operations_have_places_of_their_own() {
    let places = Rc::default();
    let taken: Vec<Slot> = (0..MAX_WATCHES).map(|_| Slot::take(&places, MAX_WATCHES, "watches").unwrap()).collect();
    let refused = Slot::take(&places, MAX_WATCHES, "watches").err().unwrap();
    assert_eq!(refused.error_code, ErrorCode::LimitReached);
    assert!(refused.message.starts_with("16 watches"), "{refused}");
    drop(taken);
    assert!(Slot::take(&places, MAX_WATCHES, "watches").is_ok());
}

#[test]
fn a_slot_lives_until_the_process_is_collected_and_not_until_the_answer() {
    on_one_thread(async || {
        let fixture = Fixture::new();
        let slot = Rc::new(());
        let job = Job::Stat { path: b".".to_vec(), last: crate::files::resolve::FinalLink::Follow };
        let held = Rc::clone(&slot);
        let (_, data) = run_in_slot(&Reaper::default(), OURSELVES, &fixture.roots, held, job, nothing()).await.unwrap();
        StreamedBody(data).collect().await.unwrap();
        assert_eq!(Rc::strong_count(&slot), 2, "nobody has reaped the helper");
    });
}

/// A body that repeats the same chunk forever.
fn without_end(chunk: Bytes) -> impl http_body::Body<Data = Bytes, Error = io::Error> + Unpin {
    let (sender, receiver) = mpsc::channel(1);
    tokio::task::spawn_local(async move { while sender.send(Ok(chunk.clone())).await.is_ok() {} });
    StreamedBody(receiver)
}

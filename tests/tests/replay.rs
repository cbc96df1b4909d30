//! Clients that come and go get every byte exactly once, and the runner's memory stays bounded.

use std::time::Duration;

use e2e::{Ask as _, Runner, ask, is_soak, wait_until};
use shared_protocol::runner::{ExecState, StreamMode};

/// The limit of the runner's memory, whatever a command prints.
const MAX_RSS_KIB: u64 = 32 << 10;

const GIB: u64 = 1 << 30;

/// A command that prints numbered lines slowly, so that a reader can leave in the middle.
const NUMBERED: &str = "for i in {1..400}; do echo \"line $i\"; sleep 0.005; done";

fn numbered() -> String {
    (1..=400).map(|i| format!("line {i}\n")).collect()
}

#[tokio::test]
async fn a_client_that_comes_and_goes_gets_every_byte_once() {
    let runner = Runner::start().await;
    let mut stream = runner.exec_stream(ask(NUMBERED).with_id("coming-and-going")).await;
    let (mut received, mut visits) = (Vec::new(), 0);
    let outcome = loop {
        // Each visit reads three frames and then disconnects.
        let mut end = None;
        for _ in 0..3 {
            match stream.next_frame().await {
                Some(shared_protocol::runner::Frame::Exit(outcome)) => end = Some(outcome),
                Some(_) => {}
                None => break,
            }
        }
        received.extend_from_slice(&stream.seen.output);
        if let Some(outcome) = end {
            break outcome;
        }
        let offset = stream.next_offset();
        drop(stream);
        visits += 1;
        stream = runner.reattach("coming-and-going", offset, true).await.unwrap();
    };
    assert_eq!(String::from_utf8(received).unwrap(), numbered());
    assert_eq!((outcome.exit_code, outcome.output_bytes), (0, numbered().len() as u64));
    assert!(visits > 10, "only {visits} visits: nothing was interrupted");
}

#[tokio::test]
async fn a_command_goes_on_without_its_client() {
    let runner = Runner::start().await;
    let mut stream = runner.exec_stream(ask(NUMBERED).with_id("left-alone")).await;
    stream.until_output("line 1\n").await;
    drop(stream);
    wait_until("the command ends by itself", Duration::from_secs(20), async || {
        (runner.exec_view("left-alone").await.state == ExecState::Ended).then_some(())
    })
    .await;
    let done = runner.reattach("left-alone", 0, false).await.unwrap().finish().await;
    assert_eq!(done.text(), numbered());
}

#[tokio::test]
async fn an_ended_command_can_be_read_again_from_any_offset() {
    let runner = Runner::start().await;
    let first = runner.exec(ask("echo out; echo err >&2; exit 0").split().with_id("again")).await;
    for from in 0..=8 {
        let again = runner.reattach("again", from, true).await.unwrap().finish().await;
        let skipped = usize::try_from(from).unwrap();
        assert_eq!(again.output, first.output[skipped..], "from {from}");
        assert_eq!(again.outcome, first.outcome);
    }
}

#[tokio::test]
async fn looking_without_following_gives_what_there_is_and_is_cut() {
    let runner = Runner::start().await;
    let mut stream = runner.exec_stream(ask("echo so far; sleep 1000").with_id("peek")).await;
    stream.until_output("so far").await;
    let (seen, outcome) = runner.reattach("peek", 0, false).await.unwrap().drain().await;
    assert_eq!((seen.text().as_str(), outcome), ("so far\n", None));
}

#[tokio::test]
async fn several_readers_see_the_same() {
    let runner = Runner::start().await;
    let first = runner.exec_stream(ask(NUMBERED).with_id("shared")).await;
    let second = runner.reattach("shared", 0, true).await.unwrap();
    let third = runner.reattach("shared", 5, true).await.unwrap();
    let (first, second, third) = tokio::join!(first.finish(), second.finish(), third.finish());
    assert_eq!(first.text(), numbered());
    assert_eq!(second.output, first.output);
    assert_eq!(third.output, first.output[5..]);
}

#[tokio::test]
async fn a_slow_reader_stops_neither_the_command_nor_grows_the_runner() {
    let runner = Runner::start().await;
    let printing = "head -c 300000000 /dev/zero | tr '\\0' x; touch done";
    let stuck = runner.exec_stream(ask(printing).with_id("slow")).await;
    // The reader reads nothing until the command has ended.
    let view = wait_until("the command ends", Duration::from_secs(60), async || {
        Some(runner.exec_view("slow").await).filter(|e| e.state == ExecState::Ended)
    })
    .await;
    assert_eq!((view.output_bytes, view.outcome.unwrap().exit_code), (300_000_000, 0));
    assert!(runner.peak_rss_kib() < MAX_RSS_KIB, "{} KiB", runner.peak_rss_kib());
    let late = stuck.finish().await;
    let missed: u64 = late.gaps.iter().map(|(_, bytes)| bytes).sum();
    assert_eq!(late.received + missed, 300_000_000, "what it missed is told to the byte");
    assert!(missed > 0 && late.received > 0);
    assert!(late.output.iter().all(|b| *b == b'x'));
}

#[tokio::test]
async fn a_slow_reader_does_not_slow_others() {
    let runner = Runner::start().await;
    let stuck = runner.exec_stream(ask("head -c 100000000 /dev/zero | tr '\\0' x").with_id("held")).await;
    runner.open("other").await;
    assert_eq!(runner.exec(ask("echo ok").in_shell("other")).await.text(), "ok\n");
    assert_eq!(runner.run(e2e::run(["echo", "ok"])).await.text(), "ok\n");
    drop(stuck);
}

#[tokio::test]
async fn gigabytes_of_output_are_counted_exactly_in_little_memory() {
    let runner = Runner::start().await;
    let bytes = if is_soak() { 10 * GIB } else { 2 * GIB };
    let cmd = format!("head -c {bytes} /dev/zero | tr '\\0' x");
    let stream = runner.exec_stream(ask(cmd)).await.counting();
    let done = stream.finish_within(Duration::from_secs(1200)).await;
    assert_eq!((done.outcome.output_bytes, done.received, done.gaps.len()), (bytes, bytes, 0));
    assert!(runner.peak_rss_kib() < MAX_RSS_KIB, "{} KiB", runner.peak_rss_kib());
}

#[tokio::test]
async fn gigabytes_that_nobody_reads_are_counted_as_well() {
    let runner = Runner::start().await;
    let bytes = if is_soak() { 10 * GIB } else { GIB };
    let cmd = format!("head -c {bytes} /dev/zero | tr '\\0' x");
    drop(runner.exec_stream(ask(cmd).with_id("unread")).await);
    wait_until("the command ends", Duration::from_secs(600), async || {
        (runner.exec_view("unread").await.state == ExecState::Ended).then_some(())
    })
    .await;
    assert_eq!(runner.exec_view("unread").await.output_bytes, bytes);
    assert!(runner.peak_rss_kib() < MAX_RSS_KIB, "{} KiB", runner.peak_rss_kib());
}

#[tokio::test]
async fn who_wants_the_ends_only_is_sent_no_more() {
    let runner = Runner::start().await;
    let ends = |cmd: &str, bytes| shared_protocol::runner::ExecRequest { ends_bytes: Some(bytes), ..ask(cmd) };
    let all: String = (1..=100_000).map(|n| format!("{n}\n")).collect();
    let done = runner.exec(ends("seq 100000", 1000)).await;
    assert_eq!(done.outcome.output_bytes, all.len() as u64);
    assert_eq!(done.text(), format!("{}{}", &all[..500], &all[all.len() - 500..]));
    assert_eq!(done.gaps, [(500, all.len() as u64 - 1000)]);
    // If the output fits, nothing is missing. A client that reattaches without a limit gets everything too.
    assert_eq!(runner.exec(ends("seq 100000", 1 << 20)).await.text(), all);
    assert_eq!(runner.exec(ends("printf abc", 3)).await.text(), "abc");
    assert_eq!(runner.exec(ends("printf abcd", 0)).await.gaps, [(0, 4)]);
    let brief = runner.exec(ends("seq 100000", 10).with_id("brief")).await;
    assert_eq!(brief.text(), "1\n2\n30000\n");
    assert_eq!(runner.reattach("brief", 0, true).await.unwrap().finish().await.text(), all);
}

#[tokio::test]
async fn bytes_that_are_no_text_arrive_as_they_are() {
    let runner = Runner::start().await;
    let all: Vec<u8> = (0..=255).collect();
    let printf = all.iter().map(|b| format!("\\x{b:02x}")).collect::<String>();
    for mode in [StreamMode::Merged, StreamMode::Split] {
        let done = runner
            .exec(shared_protocol::runner::ExecRequest { streams: mode, ..ask(format!("printf '{printf}'")) })
            .await;
        assert_eq!(done.output, all, "{mode:?}");
    }
    let run = runner.run(e2e::run(["printf", &printf])).await;
    assert_eq!(run.stdout, all);
}

#[tokio::test]
async fn a_megabyte_of_noise_arrives_as_it_is() {
    let runner = Runner::start().await;
    runner.sh("head -c 1000000 /dev/urandom >noise").await;
    let noise = std::fs::read(runner.workspace().join("noise")).unwrap();
    assert!(runner.sh("cat noise").await.output == noise, "merged differs");
    assert!(runner.split("cat noise; cat noise >&2").await.stderr == noise, "split differs");
    runner.sh("(stty raw -opost </dev/tty; true)").await;
    let tty = runner.tty("stty raw -opost; cat noise").await;
    assert!(tty.tty == noise, "tty differs: {} bytes", tty.tty.len());
}

#[tokio::test]
async fn a_character_cut_by_the_pipe_arrives_whole() {
    let runner = Runner::start().await;
    let done = runner.sh("printf '\\xe2'; sleep 0.05; printf '\\x82'; sleep 0.05; printf '\\xac'").await;
    assert_eq!(done.text(), "€");
    let cut = runner.sh("printf 'half \\xe2\\x82'").await;
    assert_eq!(cut.output, b"half \xe2\x82", "what never became one is not held back");
}

#[tokio::test]
async fn what_a_background_job_prints_late_belongs_to_its_command() {
    let runner = Runner::start().await;
    let begun = runner.exec(ask("(until [ -e go ]; do sleep 0.01; done; echo late) & echo early").with_id("job")).await;
    assert_eq!((begun.text().as_str(), begun.outcome.output_bytes), ("early\n", 6));
    let next = runner.sh("touch go; wait; echo next").await;
    // Bash may report that the job is done, which is not the job's output.
    assert!(next.text().ends_with("next\n") && !next.text().lines().any(|l| l == "late"), "{:?}", next.text());
    let late = wait_until("the late output is there", Duration::from_secs(10), async || {
        let (seen, _) = runner.reattach("job", 6, false).await.unwrap().drain().await;
        (!seen.output.is_empty()).then_some(seen)
    })
    .await;
    assert_eq!(late.text(), "late\n");
    assert_eq!(runner.exec_view("job").await.output_bytes, 11);
}

#[tokio::test]
async fn a_background_job_that_prints_forever_costs_no_memory() {
    let runner = Runner::start().await;
    runner.exec(ask("yes >&1 & job=$!").with_id("endless")).await;
    wait_until("half a gigabyte has come", Duration::from_secs(60), async || {
        (runner.exec_view("endless").await.output_bytes > GIB / 2).then_some(())
    })
    .await;
    assert!(runner.rss_kib() < MAX_RSS_KIB, "{} KiB", runner.rss_kib());
    assert_eq!(runner.output_of("kill $job; echo ok").await, "ok\n");
}

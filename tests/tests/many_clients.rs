//! Two hundred clients at once: each gets its own answer, in the order of requests, and no client waits for another client's
//! shell.

use std::time::Duration;

use e2e::{Ask as _, Runner, ask, run, wait_until};
use shared_protocol::ErrorCode;
use shared_protocol::runner::ExecState;

const CLIENTS: usize = 200;

/// A command that keeps its shell busy until the file `go` exists.
const UNTIL_GO: &str = "until [ -e go ]; do sleep 0.01; done";

#[tokio::test]
async fn two_hundred_clients_of_one_shell_are_served_in_the_order_they_came() {
    let runner = Runner::start().await;
    let blocker = runner.exec_stream(ask(UNTIL_GO)).await;
    let mut waiting = Vec::new();
    for i in 0..CLIENTS {
        let client = runner.client();
        waiting.push(tokio::spawn(async move {
            client
                .exec_stream(ask(format!("echo {i} | tee -a order")))
                .await
                .finish_within(Duration::from_secs(60))
                .await
        }));
        // The order is known only if each command is in the queue before the next is sent.
        wait_until("it is queued", Duration::from_secs(10), async || {
            (runner.shell("main").await.queued == i + 1).then_some(())
        })
        .await;
    }
    runner.run(run(["touch", "go"])).await;
    for (i, client) in waiting.into_iter().enumerate() {
        let done = client.await.unwrap();
        assert_eq!((done.text(), done.code()), (format!("{i}\n"), 0));
    }
    assert_eq!(blocker.finish().await.code(), 0);
    let order = (0..CLIENTS).map(|i| format!("{i}\n")).collect::<String>();
    assert_eq!(runner.output_of("cat order").await, order);
}

#[tokio::test]
async fn runs_and_other_shells_do_not_wait_for_a_busy_one() {
    let runner = Runner::start().await;
    let blocker = runner.exec_stream(ask(UNTIL_GO)).await;
    let queued: Vec<_> = (0..CLIENTS / 2)
        .map(|i| {
            let client = runner.client();
            tokio::spawn(async move { client.exec(ask(format!("echo {i}"))).await.text() })
        })
        .collect();
    let beside: Vec<_> = (0..CLIENTS / 2)
        .map(|i| {
            let client = runner.client();
            let word = i.to_string();
            tokio::spawn(async move { client.run(run(["echo", &word])).await.text() })
        })
        .collect();
    for (i, client) in beside.into_iter().enumerate() {
        assert_eq!(client.await.unwrap(), format!("{i}\n"));
    }
    runner.open("other").await;
    assert_eq!(runner.exec(ask("echo beside").in_shell("other")).await.text(), "beside\n");
    assert!(queued.iter().all(|q| !q.is_finished()), "a command ran beside the one before it");
    runner.run(run(["touch", "go"])).await;
    for (i, client) in queued.into_iter().enumerate() {
        assert_eq!(client.await.unwrap(), format!("{i}\n"));
    }
    assert_eq!(blocker.finish().await.code(), 0);
}

#[tokio::test]
async fn two_hundred_clients_at_once_on_many_shells_all_get_their_own() {
    let runner = Runner::start().await;
    for shell in 0..10 {
        runner.open(&format!("shell-{shell}")).await;
    }
    let clients: Vec<_> = (0..CLIENTS)
        .map(|i| {
            let client = runner.client();
            tokio::spawn(async move {
                let request = ask(format!("x={i}; echo out $x; echo err $x >&2; (exit {})", i % 256)).split();
                client.exec(request.in_shell(&format!("shell-{}", i % 10))).await
            })
        })
        .collect();
    for (i, client) in clients.into_iter().enumerate() {
        let done = client.await.unwrap();
        assert_eq!((done.stdout_text(), done.stderr_text()), (format!("out {i}\n"), format!("err {i}\n")));
        assert_eq!(done.code(), i32::try_from(i % 256).unwrap());
    }
}

#[tokio::test]
async fn clients_that_hang_up_in_the_queue_do_not_disturb_it() {
    let runner = Runner::start().await;
    let blocker = runner.exec_stream(ask(UNTIL_GO)).await;
    for i in 0..50 {
        drop(runner.exec_stream(ask(format!("echo {i} >>order")).with_id(&format!("gone-{i}"))).await);
    }
    runner.run(run(["touch", "go"])).await;
    blocker.finish().await;
    wait_until("the last of them ran", Duration::from_secs(20), async || {
        (runner.exec_view("gone-49").await.state == ExecState::Ended).then_some(())
    })
    .await;
    assert_eq!(runner.output_of("cat order").await, (0..50).map(|i| format!("{i}\n")).collect::<String>());
}

#[tokio::test]
async fn a_full_queue_refuses_and_loses_nothing() {
    let runner = Runner::start().await;
    let blocker = runner.exec_stream(ask(UNTIL_GO)).await;
    let mut accepted = 0;
    let refused = loop {
        // No client stays to read: queued commands need no connection.
        match runner.try_exec_stream(&ask("echo >>count")).await {
            Ok(stream) => drop(stream),
            Err(refused) => break refused,
        }
        accepted += 1;
        assert!(accepted < 100_000, "the queue has no bound");
    };
    assert_eq!((refused.status, refused.body.error_code), (409, ErrorCode::ShellBusy));
    assert!(accepted >= CLIENTS, "{accepted} is too few");
    runner.run(run(["touch", "go"])).await;
    blocker.finish().await;
    wait_until("all of them ran", Duration::from_secs(60), async || {
        (runner.shell("main").await.queued == 0).then_some(())
    })
    .await;
    assert_eq!(runner.output_of("wc -l <count").await.trim(), accepted.to_string());
}

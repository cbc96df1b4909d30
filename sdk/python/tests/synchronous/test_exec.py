# Generated from asynchronous/test_exec.py by tools/generate_sync.py: change that file instead.
"""Commands, runs, processes and shells."""

from __future__ import annotations

import pytest

from cove import CommandFailed, CommandTimedOut, Conflict, Cove, InvalidRequest, ShellBusy, ShellNotFound, WaitTimedOut


def test_the_shell_remembers(cove: Cove) -> None:
    with cove.session(env={"FROM": "create"}) as session:
        session.exec("cd /tmp && export WHO=agent; greet() { echo hello $1; }")
        result = session.exec("greet $WHO from $FROM in $PWD", check=True)
        assert (result.output, result.cwd, result.exit_code, result.ok) == ("hello agent\n", "/tmp", 0, True)
        again = session.exec("pwd; echo $X $WHO", env={"X": "once"}, cwd="/usr")
        assert again.output == "/usr\nonce agent\n"
        assert (session.exec("echo [$X]")).output == "[]\n"


def test_a_failure_is_a_result_or_an_exception_as_asked(cove: Cove) -> None:
    with cove.session() as session:
        result = session.exec("echo oops; cd /tmp; (exit 3)")
        assert (result.ok, result.exit_code) == (False, 3)
        with pytest.raises(CommandFailed) as failed:
            session.exec("echo oops; (exit 3)", check=True)
        assert (failed.value.exit_code, failed.value.output, failed.value.cwd) == (3, "oops\n", "/tmp")
        assert str(failed.value) == "'echo oops; (exit 3)' exited with 3\noops"
        with pytest.raises(CommandFailed, match="exited with 4"):
            session.run(["sh", "-c", "exit 4"], check=True)


def test_a_timeout_leaves_the_shell_usable(cove: Cove) -> None:
    with cove.session() as session:
        result = session.exec("export A=1; echo begin; sleep 100", timeout=0.5)
        assert (result.timed_out, result.exit_code, result.output) == (True, 124, "begin\n")
        with pytest.raises(CommandTimedOut, match="took too long") as late:
            session.exec("sleep 100", timeout=0.3, check=True)
        assert isinstance(late.value, TimeoutError)
        assert (session.exec("echo $A")).output == "1\n"
        with pytest.raises(ValueError, match="more than 0"):
            session.exec("true", timeout=0)


def test_input_streams_and_limits_of_output(cove: Cove) -> None:
    with cove.session() as session:
        assert (session.exec("cat", stdin="text ä")).output == "text ä"
        assert (session.exec("wc -c", stdin=b"\xff\x00x")).output.strip() == "3"
        exact = session.exec("printf '\\xff\\xfe'")
        assert exact.output_raw == b"\xff\xfe"
        split = session.exec("echo out; echo err >&2", streams="split")
        assert (split.stdout, split.stderr) == ("out\n", "err\n")
        short = session.exec("seq 1 10000", max_output_bytes=100)
        assert short.truncated
        assert short.output.startswith("1\n2\n")
        assert short.output.endswith("10000\n")
        run = session.run(["sh", "-c", "printf '\\377'; printf '\\376' >&2; cat >&2"], stdin="in", env={"A": "b"}, cwd="/tmp")
        assert (run.stdout_raw, run.stderr_raw) == (b"\xff", b"\xfein")
        assert (session.run(["pwd"], cwd="/usr")).output == "/usr\n"


def test_wrong_types_are_told_before_anything_is_sent(cove: Cove) -> None:
    with cove.session() as session:
        with pytest.raises(TypeError, match="list of str"):
            session.run("ls -l")
        with pytest.raises(TypeError, match="bash source"):
            session.exec(["ls", "-l"])  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="leave out `shell`"):
            session.spawn(["ls"], shell="main")
        with pytest.raises(ValueError, match="as a list"):
            session.spawn("cat", stdin_open=True)
        assert session.execs() == []
        with pytest.raises(InvalidRequest, match="exec id"):
            session.exec("true", exec_id="not an id")


def test_a_spawned_command_leaves_the_main_shell_free(cove: Cove) -> None:
    with cove.session() as session:
        session.exec("mkfifo gate; export COLOUR=blue")
        process = session.spawn("echo $COLOUR; read -t 30 < gate; echo end; (exit 5)")
        with pytest.raises(WaitTimedOut, match="still runs"):
            process.wait(0.2)
        assert (session.exec("echo free", queue_timeout=5)).output == "free\n"
        session.run(["sh", "-c", "echo go > gate"])
        result = process.wait(20)
        assert (result.output, result.exit_code) == ("blue\nend\n", 5)
        assert [shell.name for shell in session.shells()] == ["main"], "its shell is closed again"
        with pytest.raises(CommandFailed, match="exited with 5"):
            session.process(process.exec_id).wait(check=True)
        printed = [chunk.text for chunk in process.logs(offset=5)]
        assert "".join(printed) == "end\n"


def test_a_process_can_be_fed_and_killed(cove: Cove) -> None:
    with cove.session() as session:
        sort = session.spawn(["sort"], stdin_open=True)
        assert sort.write("b\n") == 2
        assert sort.write(b"a\n") == 2
        sort.close_stdin()
        assert (sort.wait(20)).output == "a\nb\n"
        with pytest.raises(Conflict):
            sort.write("late")
        script = session.spawn("trap '' INT; sleep 1000; echo not reached")
        script.kill()
        ended = script.wait(20)
        assert (ended.ok, ended.output) == (False, "")
        script.kill()  # again is fine
        program = session.spawn(["sleep", "1000"])
        program.signal("TERM")
        assert (program.wait(20)).signal == 15
        in_main = session.spawn("sleep 1000", shell="main")
        in_main.kill()
        assert (in_main.wait(20)).exit_code == 137
        states = {info.exec_id: (info.state, info.exit_code) for info in session.execs()}
        assert states[program.exec_id] == ("ended", 143)
        assert len(session.execs(limit=1)) == 1


def test_named_shells_have_their_own_state(cove: Cove) -> None:
    with cove.session() as session:
        session.exec("cd /tmp; export A=main")
        copy = session.open_shell("copy", copy_of="main")
        assert (copy.exec("echo $A in $PWD")).output == "main in /tmp\n"
        fresh = session.open_shell("fresh", cwd="/usr", env={"A": "fresh"}, cols=100, rows=40)
        assert (fresh.exec("echo $A in $PWD; tput cols 2>/dev/null || true", streams="tty")).output.startswith("fresh in /usr")
        assert fresh.stream("echo streamed").wait()
        fresh.resize(90, 30)
        sizes = {info.name: info.cols for info in session.shells()}
        assert sizes["fresh"] == 90
        process = copy.spawn("sleep 1000")
        with pytest.raises(ShellBusy, match="queue_timeout") as busy:
            copy.exec("true", queue_timeout=0)
        assert busy.value.running_exec_id == process.exec_id
        copy.signal("INT")
        assert (process.wait(20)).exit_code == 130
        with pytest.raises(Conflict):
            copy.input("nobody reads")
        assert (copy.reset()).name == "copy"
        copy.close()
        with pytest.raises(ShellNotFound, match="open_shell"):
            copy.exec("true")
        assert repr(session.shell("main")).endswith(f"'main' of session {session.id}>")


def test_a_terminal_is_for_a_person(cove: Cove) -> None:
    with cove.session() as session:
        session.exec("cd /tmp")
        with session.terminal(cols=100) as terminal:
            terminal.resize(120, 40)
            terminal.write("echo $((6*7)) in $PWD; exit 3\n")
            shown = b""
            for data in terminal:
                shown += data
            assert b"42 in /tmp" in shown
            assert terminal.exit_code == 3
        with session.terminal("named") as terminal:
            with pytest.raises(TimeoutError):
                while True:
                    terminal.read(timeout=0.5)
        with pytest.raises(InvalidRequest):
            session.terminal(cols=0)


def test_a_compact_view_is_short_and_says_what_it_left_out(cove: Cove) -> None:
    with cove.session() as session:
        command = "seq -f 'part %.0f' 5000; ls /nope"
        result = session.exec(command, view="compact", max_tokens=4000)
        assert result.exit_code == 2
        assert "cannot access '/nope'" in result.output
        assert len(result.output) < 1000
        assert result.compact is not None
        assert result.compact.original_bytes == result.output_bytes > 40_000
        assert result.compact.tokens < result.compact.original_tokens
        whole = "".join([chunk.text for chunk in session.attach(result.exec_id)])
        assert whole.startswith("part 1\npart 2\n")
        assert len(whole) == result.output_bytes
        assert (session.exec("echo full")).compact is None
        with pytest.raises(InvalidRequest):
            session.exec("true", view="compact", max_tokens=1)
        with pytest.raises(InvalidRequest):
            session.exec("true", view="compact", streams="split")

//! Sandkasten's own client, from PyPI, works unchanged.

use std::path::{Path, PathBuf};
use std::process::Command;

use e2e::daemon::Daemon;
use e2e::skipped;

const VERSION: &str = "0.3.0";

/// A Python with the client, made once below `target/`. The error says why there is none.
fn python() -> Result<PathBuf, String> {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("sandkasten-{VERSION}"));
    let python = place.join("bin/python");
    let has_client =
        || Command::new(&python).args(["-c", "import sandkasten"]).output().is_ok_and(|o| o.status.success());
    if has_client() {
        return Ok(python);
    }
    run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&place))?;
    let package = format!("sandkasten=={VERSION}");
    run(Command::new(&python).args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--retries",
        "1",
        &package,
    ]))?;
    if has_client() { Ok(python) } else { Err("it was installed but cannot be imported".into()) }
}

fn run(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|e| format!("{command:?}: {e}"))?;
    match output.status.success() {
        true => Ok(()),
        false => {
            Err(String::from_utf8_lossy(&output.stderr).lines().last().unwrap_or("it failed without a word").to_owned())
        }
    }
}

const SCRIPT: &str = r#"
import asyncio, io, os, sys, tempfile
from sandkasten import SandboxClient

async def main():
    async with SandboxClient(base_url=os.environ["URL"], api_key=os.environ["KEY"]) as client:
        session = await client.create_session(image="python", ttl_seconds=600, workspace_id="from-sdk")
        result = await session.exec("cd /tmp && export A=1 && echo hello")
        assert (result.exit_code, result.output, result.cwd, result.truncated) == (0, "hello\n", "/tmp", False), result
        result = await session.exec("echo $A; pwd; exit 3")
        assert (result.exit_code, result.output) == (3, "1\n/tmp\n"), result
        result = await session.exec("sleep 100", timeout_ms=200)
        assert result.exit_code == 124, result

        chunks = [chunk async for chunk in session.exec_stream("for i in 1 2 3; do echo $i; sleep 0.1; done; exit 5")]
        assert "".join(chunk.output for chunk in chunks) == "1\n2\n3\n", chunks
        assert chunks[-1].done and chunks[-1].exit_code == 5, chunks
        assert len(chunks) >= 3, chunks

        await session.write("text.txt", "line\n")
        await session.write("/workspace/binary", bytes(range(256)))
        await session.write("empty", b"")
        assert (await session.read("text.txt")).content == b"line\n"
        assert (await session.read("/workspace/binary")).content == bytes(range(256))
        assert (await session.read("empty")).content == b""
        cut = await session.read("text.txt", max_bytes=2)
        assert (cut.content, cut.truncated) == (b"li", True), cut

        with tempfile.NamedTemporaryFile(suffix=".bin") as file:
            file.write(b"uploaded"); file.flush()
            paths = await session.upload(file.name, dest_path="/workspace/up")
        assert len(paths) == 1 and (await session.read(paths[0])).content == b"uploaded", paths
        paths = await session.upload(io.BytesIO(b"from memory"), filename="memory.txt")
        assert (await session.read("memory.txt")).content == b"from memory", paths

        stats = await session.stats()
        assert stats.memory_bytes >= 0 and stats.cpu_usage_usec >= 0, stats
        info = await session.info()
        assert (info.id, info.status, info.image, info.workspace_id) == (session.id, "running", "python", "from-sdk"), info
        assert [listed.id for listed in await client.list_sessions()] == [session.id]
        again = await client.get_session(session.id)
        assert (await again.exec("echo $A")).output == "1\n"
        assert [workspace.id for workspace in await client.list_workspaces()] == ["from-sdk"]
        await session.destroy()
        assert await client.list_sessions() == []
        await client.delete_workspace("from-sdk")
        assert await client.list_workspaces() == []
        async with await client.create_session() as scoped:
            assert (await scoped.exec("echo scoped")).output == "scoped\n"

asyncio.run(main())
print("all of it works")
"#;

#[tokio::test]
async fn the_client_of_sandkasten_works_unchanged() {
    let python = match tokio::task::spawn_blocking(python).await.expect("no panic") {
        Ok(python) => python,
        Err(why) => return skipped("Sandkasten's client", &why),
    };
    let daemon = Daemon::start().await;
    let mut command = Command::new(python);
    command.args(["-c", SCRIPT]).env("URL", format!("http://{}", daemon.address));
    command.env("KEY", daemon.key.as_deref().expect("a key"));
    let output = tokio::task::spawn_blocking(move || command.output()).await.expect("no panic").expect("python runs");
    let (said, wrong) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && said.contains("all of it works"), "{said}{wrong}");
    daemon.stop().await;
}

"""What somebody tries first who has installed the wheel: a private daemon of an ordinary user, a shell that remembers, and a stream."""

from cove import CommandFailed, Cove

with Cove.embedded() as cove, cove.session() as s:
    s.exec("cd /workspace && python3 -m venv --without-pip .venv && . .venv/bin/activate", check=True)
    r = s.exec("python -c 'import sys; print(sys.prefix)'", check=True)
    assert (r.output, r.cwd, r.exit_code) == ("/workspace/.venv\n", "/workspace", 0), r
    chunks = "".join(chunk.text for chunk in s.stream("for i in 1 2 3; do echo line $i; done"))
    assert chunks == "line 1\nline 2\nline 3\n", chunks
    s.files.write("data.txt", "from the program")
    assert s.exec("cat /workspace/data.txt", check=True).output == "from the program"
    try:
        s.exec("exit 3", check=True)
        raise AssertionError("a failure was none")
    except CommandFailed as error:
        assert error.exit_code == 3, error
    assert s.exec("echo $VIRTUAL_ENV").output == "/workspace/.venv\n"
print("the Python program is done")

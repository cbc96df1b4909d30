"""The wheel: it carries the program, gives the command `cove`, and the program of the README works in a clean environment."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PROGRAM = """
from cove import Cove
with Cove.embedded() as cove, cove.session("python") as s:
    s.exec("cd /workspace && export GREETING=hello")
    r = s.exec("echo $GREETING", check=True)
    print(r.output, r.cwd, r.exit_code)
    for chunk in s.stream("seq 3"):
        print(chunk.text, end="")
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    program = os.environ["COVE_BIN"]
    if shutil.which("strip"):
        # A program of tests has debug information, which takes a minute to compress.
        subprocess.run(["strip", "-o", out / "cove", program], check=True)
        program = str(out / "cove")
    command = [ROOT / "scripts/wheel", program, out, "--allow-dynamic"]
    made = subprocess.run(command, capture_output=True, text=True)
    if made.returncode and "No matching distribution" in made.stderr:
        pytest.skip("hatchling cannot be installed here")
    assert made.returncode == 0, made.stderr
    return Path(made.stdout.strip())


def test_a_program_that_needs_a_libc_is_refused_unless_asked_for(tmp_path: Path) -> None:
    refused = subprocess.run([ROOT / "scripts/wheel", "/bin/true", tmp_path], capture_output=True, text=True)
    assert refused.returncode == 1
    assert "--allow-dynamic" in refused.stderr


def test_the_wheel_works_in_a_clean_environment(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        program = archive.getinfo("cove/_bin/cove")
        assert (program.external_attr >> 16) & 0o111, "the program is not executable"
        assert "cove/py.typed" in archive.namelist()
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "v"], check=True)
    python = tmp_path / "v/bin/python"
    installed = subprocess.run([python, "-m", "pip", "install", "--quiet", wheel], capture_output=True, text=True)
    if installed.returncode and "No matching distribution" in installed.stderr:
        pytest.skip("httpx cannot be installed here")
    assert installed.returncode == 0, installed.stderr
    environment = {"PATH": f"{tmp_path}/v/bin:{os.environ['PATH']}", "HOME": str(tmp_path)}
    version = subprocess.run(["cove", "--version"], env=environment, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert version.stdout.startswith("cove ")
    done = subprocess.run([python, "-c", PROGRAM], env=environment, capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "hello\n /workspace 0\n1\n2\n3\n"), done.stderr

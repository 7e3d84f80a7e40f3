"""What programs and native code may write inside the fence."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from holdfast.drill import write_fence

HAS_LANDLOCK = "import sys; from holdfast.drill import write_fence as w; print(w.raise_fence([]))"


def inside(folder: Path, script: str) -> subprocess.CompletedProcess[str]:
    command = write_fence.around(["bash", "-c", script], [f"{folder}/", "/not/there"])
    return subprocess.run(command, cwd=folder.parent, capture_output=True, text=True, check=False)


def test_a_program_changes_nothing_outside(tmp_path: Path) -> None:
    own, foreign = tmp_path / "own", tmp_path / "foreign"
    own.mkdir()
    foreign.mkdir()
    (foreign / "kept").write_text("kept")
    tried = ("echo x > foreign/kept", "echo x > foreign/new", "rm foreign/kept",
             "mv foreign/kept own/", "mkdir foreign/new", "truncate -s 0 foreign/kept",
             "ln -s kept foreign/new", "mkfifo foreign/new", "rmdir foreign")  # fmt: skip
    done = inside(own, "; ".join(tried))
    answer = subprocess.run([sys.executable, "-c", HAS_LANDLOCK], capture_output=True, check=True)
    if answer.stdout.strip() == b"True":
        assert [path.name for path in foreign.iterdir()] == ["kept"]
        assert (foreign / "kept").read_text() == "kept"
        assert done.stderr.count("Permission denied") == len(tried)


def test_inside_everything_works_as_ever(tmp_path: Path) -> None:
    """A save that is renamed from folder to folder, as checkpoints are."""
    own = tmp_path / "own"
    own.mkdir()
    done = inside(own, "cd own && mkdir a b && echo x > a/part && mv a/part b/whole && ln b/whole "
                       "a/again && rm a/again && echo > /dev/null && exit 3")  # fmt: skip
    assert (done.returncode, done.stderr) == (3, "")
    assert (own / "b" / "whole").read_text() == "x\n"


def test_the_command_keeps_its_process_and_its_environment(tmp_path: Path) -> None:
    command = write_fence.around(["bash", "-c", "echo $$ $GIVEN"], [str(tmp_path)])
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "GIVEN": "this"}
    )
    out, _ = process.communicate()
    assert out.split() == [str(process.pid), "this"]

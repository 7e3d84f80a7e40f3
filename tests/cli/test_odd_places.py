"""The table of odd places: in each a killed rank is named and the job finishes, and `check`, `lint`
and `explain` do their work.

One start is enough for both: the first attempt is killed, the second finishes. The ranks do not
import torch. With `-s` the table is printed.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.cli.odd_places import EVERY_READER_RAISES, PLACES, Place
from tests.system.sockets import free_port, needs, needs_root

PATIENCE = 100.0
"""generous: two cores may be shared by many"""
TRAIN = """
import os, signal, time
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    if os.environ["RANK"] == "1":
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(600)
print("finished", flush=True)
"""
ON_ONE_NODE = ("-m", "holdfast", "run", "--max-restarts", "1", "--nproc-per-node", "2")
NODE = ("run", "--max-restarts", "1", "--nnodes", "2", "--nproc-per-node", "1")
FOR_NODES = [p for p in PLACES if not p.refused and p.site != EVERY_READER_RAISES]
"""a node that knows none of its addresses can neither coordinate nor tell that it may not"""
TWO_LAUNCHERS = """
import subprocess, sys
nodes = [subprocess.Popen([sys.executable, "-m", "holdfast", *sys.argv[1:]]) for _ in range(2)]
sys.exit(max(node.wait() for node in nodes))
"""
OTHER_VERBS = """
import json, os, sys, tempfile
from holdfast.cli.main import main

def said(words):
    if sys.stdout is None:  # closed
        return main(words), ""
    with tempfile.TemporaryFile() as file:
        for number in (1, 2):
            os.dup2(file.fileno(), number)
        code = main(words)
        sys.stdout.flush()
        file.seek(0)
        return code, file.read().decode(errors="replace")

asked = (["check"], ["lint", "train.py"], ["explain", sys.argv[2]])
answers = {words[0]: said(words) for words in asked}
os.write(int(sys.argv[1]), json.dumps(answers).encode())
"""


class Visit(NamedTuple):
    """One place, with a folder in which every user may work."""

    place: Place
    folder: Path

    @property
    def work(self) -> Path:
        return self.folder / "work" / self.place.below

    def start(self, *words: str, **streams: Any) -> subprocess.Popen[bytes]:
        settings = {name: value for name, value in os.environ.items() if _is_neutral(name)}
        settings["TMPDIR"] = str(self.folder / "tmp")
        if self.place.site:
            settings["PYTHONPATH"] = str(self.folder / "site")
        for name, value in self.place.environment.items():
            settings.pop(name, None)
            settings.update({name: value} if value is not None else {})
        command = [*self.place.inside, sys.executable, *words]
        return subprocess.Popen(
            command, cwd=self.work, env=settings, start_new_session=True, **streams
        )

    def run(self, *words: str) -> tuple[int, str, str]:
        """`holdfast run` to its end: its code and what it wrote."""
        files = [self.folder / name for name in ("out", "err")]
        with files[0].open("wb") as out, files[1].open("wb") as err:
            process = self.start(*words, "train.py", stdout=out, stderr=err)
            try:
                code = process.wait(PATIENCE)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
        out_text, err_text = (file.read_text(errors="replace") for file in files)
        return code, out_text, err_text

    def ask_other_verbs(self) -> dict[str, tuple[int, str]]:
        """check, lint and explain, in one process: each costs a second to import."""
        read, write = os.pipe()
        with open(read, "rb") as answers:
            run = os.path.relpath(self.run_folder(), self.work)
            words = ("-c", OTHER_VERBS, str(write), run)
            process = self.start(*words, pass_fds=(write,), stderr=subprocess.PIPE)
            os.close(write)
            _, complaint = process.communicate(timeout=PATIENCE)
            assert process.returncode == 0, complaint.decode(errors="replace")
            found: dict[str, tuple[int, str]] = json.loads(answers.read())
            return found

    def run_folder(self) -> Path:
        """Beside the script, or where `run` keeps it when it may not write there."""
        found = [*self.work.glob("runs/latest"), *self.folder.glob("tmp/holdfast-runs-*/latest")]
        return found[0] if found else self.work / "runs" / "latest"

    def journal(self, *kinds: str) -> list[dict[str, Any]]:
        """Of the launcher that decides."""
        found = self.run_folder().parent.glob("*/journal.jsonl")
        files = {file.resolve() for file in found}  # `latest` is one of them
        journals = [list(map(json.loads, file.read_text().splitlines())) for file in files]
        return [r for records in journals for r in records if r["kind"] in kinds]


def _is_neutral(name: str) -> bool:
    return not name.startswith(("PET_", "TORCH", "NCCL_", "OMP_", "HOLDFAST", "PYTHON", "SLURM_"))


@contextlib.contextmanager
def visit(place: Place) -> Iterator[Visit]:
    if place.root:
        needs_root()
        needs("unshare")
        needs("setpriv")
    with tempfile.TemporaryDirectory(prefix="odd-", dir="/tmp") as name:
        found = Visit(place, Path(name))
        found.work.mkdir(parents=True)
        (found.work / "train.py").write_text(TRAIN)
        for beside in ("tmp", "site"):
            (found.folder / beside).mkdir()
        (found.folder / "site" / "sitecustomize.py").write_text(place.site)
        for folder in (found.folder, *found.folder.rglob("*")):
            folder.chmod(0o777)
        yield found


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.name)
def test_a_killed_rank_is_named_and_the_job_finishes(place: Place) -> None:
    before = os.times()
    with visit(place) as here:
        code, out, err = here.run(*ON_ONE_NODE)
        assert "Traceback" not in err, err
        if place.refused:
            assert (code, place.refused in err) == (1, True), err
        else:
            assert code == 0, err
            assert not _streams_are_open(place) or out.count("finished\n") == 2
            verdicts = [(r["slug"], r["ranks"]) for r in here.journal("verdict")]
            assert verdicts == [("rank-killed", [1])]
            assert [r["action"] for r in here.journal("action")] == ["restart"]
        answers = here.ask_other_verbs()
        for verb, (code, said) in answers.items():
            assert "Traceback" not in said, said
            assert "a bug in holdfast" not in said, said
            assert code in (0, 1) or (verb == "explain" and place.refused), said
        assert answers["lint"][0] == 0
        if not place.refused:
            assert answers["explain"][0] == 1
            assert "rank 1" in answers["explain"][1] or not _streams_are_open(place)
    after = os.times()
    spent = after.children_user + after.children_system
    spent -= before.children_user + before.children_system
    said = place.refused or "rank 1 named, the job finished"
    print(f"\n{place.name:50} {said:32} {spent:4.1f} s of CPU")


def _streams_are_open(place: Place) -> bool:
    return not re.search("closed$", place.name) or "stdin" in place.name


@pytest.mark.long
@pytest.mark.parametrize("place", FOR_NODES, ids=lambda place: place.name)
def test_two_launchers_name_it_and_finish_too(place: Place) -> None:
    """Two nodes of one job on the loopback of that place."""
    meet = ("--rdzv-endpoint", f"127.0.0.1:{free_port()}")
    with visit(place) as here:
        code, _, err = here.run("-c", TWO_LAUNCHERS, *NODE, *meet)
        assert "Traceback" not in err, err
        assert code == 0, err
        verdicts = {(r["slug"], *r["ranks"]) for r in here.journal("verdict")}
        assert verdicts == {("rank-killed", 1)}, err

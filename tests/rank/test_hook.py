"""Real ranks with a real torch: what their pages tell, and that their scripts notice nothing."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from holdfast.rank import delivery
from holdfast.rank.worker_server import without_lines
from tests.places import TARGETS
from tests.rank.ranks import PATIENCE, Rank, free_port, place, ran, started, wait_for
from tests.torch_version import needs_live_recorders


def trained(folder: Path, **others: str) -> list[Rank]:
    """Two ranks of an unmodified script, to their end."""
    port = free_port()
    with ExitStack() as stack:
        ranks = [
            stack.enter_context(
                started(
                    folder / f"rank{number}",
                    TARGETS / "train_ddp.py",
                    environment=place(number, 2, port, **others),
                )
            )
            for number in range(2)
        ]
        for rank in ranks:
            rank.finish()
            rank.remember()
    return ranks


def test_an_unmodified_script_is_seen_and_notices_nothing(tmp_path: Path) -> None:
    (tmp_path / "on").mkdir()
    (tmp_path / "off").mkdir()
    watched = trained(tmp_path / "on")
    alone = trained(tmp_path / "off", HOLDFAST="off")
    for rank in watched:
        beat = rank.last
        assert beat is not None
        assert beat.torch_imported
        assert beat.steps == 12
        assert 0 < beat.usual_step < 10
        assert beat.phase == "exit"
        assert not beat.group_ready, "destroy_process_group was seen"
        assert not rank.socket.exists(), "the worker server left its socket"
        assert not rank.words.exists()
        assert Path(delivery.crash_file(str(rank.words))).read_bytes() == b""
    for on, off in zip(watched, alone, strict=True):
        assert on.process.returncode == off.process.returncode == 0
        assert without_made_folders(on.out) == without_made_folders(off.out)
        assert on.err.read_bytes() == off.err.read_bytes()
        assert "step 11" in on.out.read_text()


def without_made_folders(file: Path) -> bytes:
    """torch 2.8 puts a temporary folder on sys.path, which the script prints."""
    return re.sub(rb"/tmp\w{8}\b", b"/tmp-folder", file.read_bytes())


def test_only_our_own_lines_are_kept_out_of_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    with without_lines(b"WorkerServer.cpp"):
        os.write(2, b"from a thread of the script\n[W WorkerServer.cpp:1] listening\nand more")
    os.write(2, b"!\n")
    assert capfd.readouterr().err == "from a thread of the script\nand more!\n"


def asked(path: Path) -> dict[str, object]:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(PATIENCE)
        client.connect(str(path))
        client.sendall(
            b"POST /handler/fr_trace_json HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n"
            b"Connection: close\r\n\r\n"
        )
        answer = b"".join(iter(lambda: client.recv(65536), b""))
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b" 200 " in head.splitlines()[0]
    found: dict[str, object] = json.loads(body)
    return found


@needs_live_recorders
def test_a_rank_that_holds_the_gil_is_still_an_open_book(tmp_path: Path) -> None:
    environment = place(0, 1, free_port())
    with started(tmp_path, TARGETS / "hold_the_gil.py", environment=environment) as rank:
        wait_for(lambda: rank.printed("holding"), "it holds the GIL")
        wait_for(lambda: time.monotonic() - rank.beat.beat_at > 1.0, "the beat stops")
        assert rank.beat.steps == 5
        assert rank.beat.group_ready
        assert rank.beat.group_timeout == 1800.0
        names = {
            Path(f"/proc/{rank.process.pid}/task/{task}/comm").read_text().strip()
            for task in os.listdir(f"/proc/{rank.process.pid}/task")
        }
        assert "holdfast-beat" in names
        entries = asked(rank.socket)["entries"]
        assert isinstance(entries, list)
        assert len(entries) == 5
        rank.process.send_signal(signal.SIGSEGV)
        assert rank.finish() == -signal.SIGSEGV
        crash = Path(delivery.crash_file(str(rank.words))).read_text()
        assert "hold_the_gil.py" in crash
        assert rank.err.read_text() == ""


def test_one_optimizer_per_parameter_is_one_step_an_iteration(tmp_path: Path) -> None:
    rank = ran(tmp_path, TARGETS / "step_in_backward.py")
    assert rank.last is not None
    assert rank.last.steps == 7


def test_what_the_scaler_skips_is_no_step(tmp_path: Path) -> None:
    rank = ran(tmp_path, TARGETS / "skip_steps.py")
    assert rank.last is not None
    assert rank.last.steps == 5


@pytest.mark.long
def test_data_workers_do_not_speak_for_their_rank_and_do_not_outlive_it(tmp_path: Path) -> None:
    with started(tmp_path, TARGETS / "load_data.py", "stay", environment={}) as rank:
        wait_for(lambda: rank.printed("worker"), "the workers have spoken")
        told = rank.out.read_text()
        assert len(re.findall(r"^(fork|spawn) \d+ page=None $", told, re.MULTILINE)) == 8
        assert rank.beat.steps == 1
        worker = psutil.Process(int(told.split()[-1]))
        rank.process.kill()
        rank.finish()
        # torch's workers look for their parent every 5 s; the parent-death signal is not
        # inherited, and giving it to processes of the script is not ours to decide.
        wait_for(lambda: not worker.is_running(), "the worker followed", seconds=20)


def test_what_was_raised_first_is_kept_with_what_was_raised_for_it(tmp_path: Path) -> None:
    script = """
try:
    try:
        raise OSError('the disk is gone')
    except OSError:
        raise KeyError('x')
except KeyError as problem:
    raise RuntimeError('stage 2 failed') from problem
"""
    words = ran(tmp_path, script).last_words()
    assert words is not None
    assert (words["kind"], words["text"]) == ("RuntimeError", "stage 2 failed")
    assert (words["root_kind"], words["root_text"]) == ("OSError", "the disk is gone")


def test_the_last_words_of_a_rank(tmp_path: Path) -> None:
    packages = tmp_path / "other" / "site-packages"  # of another environment than this one
    packages.mkdir(parents=True)
    (packages / "pack.py").write_text("import json\ndef read(text):\n    json.loads(text)\n")
    script = f"""
import sys; sys.path.append({str(packages)!r}); import pack
def load(path):
    return pack.read('{{')
load('x')
"""
    before = time.monotonic()
    rank = ran(tmp_path, script)
    words = rank.last_words()
    assert words is not None
    assert words["kind"] == "JSONDecodeError"
    assert words["text"].startswith("Expecting property name")
    assert words["where"] == "train.py:4 in load"  # not a package's line
    assert words["root_kind"] == ""
    assert before < words["at"] < time.monotonic()
    assert rank.process.returncode == 1
    assert rank.err.read_text().startswith("Traceback (most recent call last):")
    assert "holdfast" not in rank.err.read_text()


LOGS_IN_A_THREAD = """
import sys, threading
def work():
    try:
        1 / 0
    except Exception:
        sys.excepthook(*sys.exc_info())
thread = threading.Thread(target=work)
thread.start()
thread.join()
"""


@pytest.mark.parametrize(
    "script",
    [
        "import sys; sys.exit(3)",
        "print('done')",
        "import threading\nt = threading.Thread(target=lambda: 1/0)\nt.start()\nt.join()",
        "import sys\ntry:\n  1/0\nexcept Exception:\n  sys.excepthook(*sys.exc_info())",
        LOGS_IN_A_THREAD,
    ],
)
def test_no_words_where_nothing_was_raised_to_the_top(tmp_path: Path, script: str) -> None:
    assert ran(tmp_path, script).last_words() is None


def test_a_script_with_its_own_excepthook_is_heard_too(tmp_path: Path) -> None:
    script = "import sys\nsys.excepthook = lambda *a: print('mine')\nraise ValueError('x' * 9999)"
    rank = ran(tmp_path, script)
    words = rank.last_words()
    assert words is not None
    assert (words["kind"], len(words["text"])) == ("ValueError", 4096)
    assert rank.out.read_text() == "mine\n"


def test_words_that_cannot_be_written_cost_nothing(tmp_path: Path) -> None:
    script = (
        "import os, shutil, sys\nshutil.rmtree(os.path.dirname(sys.argv[0]))\nraise ValueError(1)"
    )
    folder = tmp_path / "rank"
    with started(folder, script) as rank:
        assert rank.finish() == 1
    assert rank.last_words() is None


def test_a_folder_that_is_missing_costs_no_steps(tmp_path: Path) -> None:
    script = "import holdfast\nholdfast.heartbeat()"
    rank = ran(tmp_path, script, {"TEST_WORDS": "/nowhere/words.json"})
    assert rank.process.returncode == 0
    assert rank.err.read_text().count("\n") == 1
    assert rank.last is not None
    assert rank.last.steps == 1


@pytest.mark.usefixtures("torch_not_imported")
def test_asking_whether_torch_exists_does_not_wear_the_hook_out(tmp_path: Path) -> None:
    package = tmp_path / "path" / "torch"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise ImportError('no driver')\n")
    script = """
import importlib.util, sys
print(importlib.util.find_spec('torch').origin)
for _ in range(2):
    try:
        import torch
    except ImportError as problem:
        print(problem)
print([type(f).__name__ for f in sys.meta_path if 'holdfast' in type(f).__module__])
"""
    rank = ran(tmp_path, script, {"PYTHONPATH": str(tmp_path / "path")})
    assert rank.out.read_text().splitlines()[1:] == ["no driver", "no driver", "[]"]
    assert rank.err.read_text() == ""
    assert rank.last is not None
    assert rank.last.beat_at > 0
    assert sys.modules.get("torch") is None

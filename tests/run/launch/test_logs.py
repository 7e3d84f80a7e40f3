"""Output of the ranks: unchanged on the screen, whole in the logs, whatever the disk does."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.analysis.job.run_paths import RunPaths
from holdfast.run.launch.log_file import RankLog
from holdfast.run.launch.log_places import NO_LIMIT, LogPlace, LogPlaces, line_prefix
from holdfast.run.launch.logs import Logs
from holdfast.run.launch.pump import OutputPump, RankStream, write_all
from holdfast.run.runs.folder_writer import FolderWriter
from holdfast.run.runs.writer_process import LogFile
from tests.cli.holdfast_command import wait_until
from tests.places import TARGETS
from tests.run.launching import launch
from tests.torch_version import TORCH

ODD = TARGETS / "print_oddly.py"
TEXT = b"bar 1\rbar 2\r\xff\xfe caf\xc3\xa9\r\n"


class Screen:
    """Stands where the terminal is, and keeps what was written."""

    def __init__(self) -> None:
        self.written = {1: b"", 2: b""}

    def write(self, screen: int, text: bytes) -> None:
        self.written[screen] += text


@contextlib.contextmanager
def pump(screen: Screen) -> Iterator[OutputPump]:
    made = OutputPump(write=screen.write)
    try:
        yield made
    finally:
        made.close()
    assert not made._thread.is_alive()


@contextlib.contextmanager
def rank_log(path: str | Path) -> Iterator[RankLog]:
    """All is written when this ends."""
    writer = FolderWriter(os.path.dirname(path), tell=lambda news: None)
    try:
        yield RankLog(writer, LogPlace(str(path)))
    finally:
        assert writer.close(30) == ""


def print_into(pump: OutputPump, stream: RankStream, *texts: bytes) -> None:
    """What a rank does: opens the path, writes, and ends."""
    with open(pump.open(stream), "wb", buffering=0) as file:
        pump.started()
        for text in texts:
            file.write(text)


def test_bytes_pass_unchanged_to_screen_and_file(tmp_path: Path) -> None:
    screen, path = Screen(), tmp_path / "stdout.log"
    with rank_log(path) as log, pump(screen) as made:
        stream = RankStream("rank 0", screen=1, log=log)
        print_into(made, stream, TEXT, b"no end")
        wait_until(lambda: screen.written[1] == TEXT + b"no end")
    assert path.read_bytes() == TEXT + b"no end"


def test_a_line_in_pieces_is_shown_before_it_ends() -> None:
    """A prompt or a progress bar: shown soon, though no newline comes."""
    screen = Screen()
    with (
        pump(screen) as made,
        open(made.open(RankStream("rank 0", screen=2)), "wb", buffering=0) as f,
    ):
        f.write(b"loading 7%\rloading 8%")
        wait_until(lambda: screen.written[2] == b"loading 7%\rloading 8%")


def test_lines_of_several_ranks_do_not_mix() -> None:
    screen = Screen()
    with pump(screen) as made:
        paths = [made.open(RankStream(f"rank {rank}", screen=1)) for rank in range(4)]
        with contextlib.ExitStack() as stack:
            files = [stack.enter_context(open(path, "wb", buffering=0)) for path in paths]
            for piece in (b"first half,", b" second half", b"\n"):
                for file in files:
                    file.write(piece)
        made.settle(seconds=30)
    assert sorted(screen.written[1].split(b"\n")) == [b"", *[b"first half, second half"] * 4]


def test_settle_waits_for_all_that_was_printed(tmp_path: Path) -> None:
    screen = Screen()
    with pump(screen) as made:
        print_into(made, RankStream("rank 0", screen=1), *[b"x" * 1000 + b"\n"] * 500, b"end")
        made.settle(seconds=30)
        assert len(screen.written[1]) == 500 * 1001 + 3


def test_a_full_disk_ends_the_log_and_not_the_rank(capsys: pytest.CaptureFixture[str]) -> None:
    """Even a stream that was to stay off the screen appears there then: nothing is lost."""
    screen, logs = Screen(), Logs()
    logs._write = screen.write
    with rank_log("/dev/full") as log, pump(screen) as made:
        stream = RankStream("rank 3 (stdout)", screen=1, shown=False, log=log)
        log.when_refused(functools.partial(logs._refused, stream))
        print_into(made, stream, b"one\n", b"two\n")
        made.settle(seconds=30)
    assert screen.written[1] == b"one\ntwo\n"
    said = capsys.readouterr().err
    assert said.count("cannot write the log of rank 3 (stdout) (No space left on device)") == 1


def test_a_full_disk_of_the_copies_loses_no_line() -> None:
    """--duplicate-stdout-filters: what cannot be copied is still on the screen."""
    screen = Screen()
    with rank_log("/dev/full") as full:
        stream = RankStream("rank 3", screen=1, copies=(full, (b"loss",)))
        stream.take(b"loss 1\nloss 2\n", screen.write)
    assert screen.written[1] == b"loss 1\nloss 2\n"


def test_the_pump_survives_a_bug_in_whatever_it_calls(capsys: pytest.CaptureFixture[str]) -> None:
    """Without it every rank would soon block in `print`."""
    screen, broken = Screen(), {"times": 3}

    def write(number: int, text: bytes) -> None:
        if broken["times"]:
            broken["times"] -= 1
            raise RuntimeError("a bug")
        screen.write(number, text)

    made = OutputPump(write=write)
    turn, bugs = made._turn, iter(["a bug", "the same"])
    made._turn = lambda: bool(int(next(bugs, "0"))) or turn()  # type: ignore[method-assign]
    for number in range(5):
        print_into(made, RankStream("rank 0", screen=1), b"line %d\n" % number)
        made.settle(seconds=30)
    made.close()
    assert not made._thread.is_alive()
    assert screen.written[1] == b"line 3\nline 4\n"
    said = capsys.readouterr().err
    assert said.count("the output of rank 0 is incomplete: RuntimeError: a bug") == 1
    assert said.count("the output of the ranks is incomplete: ValueError") == 1


def test_streams_come_and_go_while_the_pump_works() -> None:
    """A new attempt opens its streams while those of the last one are still emptied."""
    screen = Screen()
    with pump(screen) as made:
        for number in range(200):
            ends = [made.open(RankStream(f"rank {rank}", screen=1)) for rank in range(8)]
            with contextlib.ExitStack() as stack:
                files = [stack.enter_context(open(end, "wb", buffering=0)) for end in ends]
                made.started()
                for file in files:
                    file.write(b"%d\n" % number)
        made.settle(seconds=30)
    assert len(screen.written[1].splitlines()) == 200 * 8


def test_pipes_of_many_ranks_leave_the_users_other_programs_theirs() -> None:
    with pump(Screen()) as made:
        sizes = []
        for rank in range(40):
            with open(made.open(RankStream(f"rank {rank}", screen=1)), "wb") as end:
                sizes.append(fcntl.fcntl(end, fcntl.F_GETPIPE_SZ))
        assert sum(sizes) <= 12 << 20
        assert sizes[0] > sizes[-1]


def test_a_screen_that_is_gone_does_not_end_the_log(tmp_path: Path) -> None:
    """`holdfast run … | head`: the job goes on, and its log."""
    reading, writing = os.pipe()
    os.close(reading)
    path = tmp_path / "stdout.log"
    with rank_log(path) as log:
        made = OutputPump(write=lambda _, text: write_all(writing, text))
        try:
            print_into(made, RankStream("rank 0", screen=1, log=log), b"one\n", b"two\n")
        finally:
            made.close()
            os.close(writing)
    assert path.read_bytes() == b"one\ntwo\n"


def test_the_prefix_stands_before_each_line_once(tmp_path: Path) -> None:
    screen = Screen()
    with rank_log(tmp_path / "filtered.log") as copy:
        stream = RankStream("r", screen=1, prefix=b"[t0]:", copies=(copy, (b"loss",)))
        stream.take(b"one\nloss 1\npar", screen.write)
        stream.flush(screen.write)
        stream.take(b"tial\nlast\n", screen.write)
    assert screen.written[1] == b"[t0]:one\n[t0]:loss 1\n[t0]:partial\n[t0]:last\n"
    assert (tmp_path / "filtered.log").read_bytes() == b"[t0]:loss 1\n"


def test_a_log_keeps_its_start_and_its_end(tmp_path: Path) -> None:
    log = LogFile(str(tmp_path / "stdout.log"), limit=10)
    for number in range(6):
        log.write(b"line %d....\n" % number)
    log.close()
    kept = {path.name: path.read_bytes().strip(b".\n") for path in tmp_path.iterdir()}
    assert kept == {
        "stdout.first.log": b"line 0",
        "stdout.previous.log": b"line 4",
        "stdout.log": b"line 5",
    }


def test_a_log_is_never_overwritten(tmp_path: Path) -> None:
    for text in (b"one\n", b"two\n"):
        log = LogFile(str(tmp_path / "stdout.log"))
        log.write(text)
        log.close()
    assert (tmp_path / "stdout.log").read_bytes() == b"one\ntwo\n"


def test_torchruns_flags_say_what_is_shown_and_where_it_is_kept(tmp_path: Path) -> None:
    """--redirects keeps rank 0's stdout off the screen, --tee names rank 1 as the template says,
    rank 2 is filtered; --log-dir has torchrun's layout."""
    flags = ("--nproc-per-node", "3", "-r", "0:1", "-t", "1:1", "--local-ranks-filter", "0,1")
    elsewhere = ("--log-dir", str(tmp_path / "logs"), "--rdzv-id", "seven")
    prefix = ("--log-line-prefix-template", "${hostname}:${role_name}${rank}: ")
    label = f"{socket.gethostname()}:t1: "
    copies = ("--duplicate-stdout-filters", "ends") if TORCH >= (2, 10) else ()
    says = "echo rank ${LOCAL_RANK} ends; echo begins; echo why > $TORCHELASTIC_ERROR_FILE"
    code, out, err = launch(tmp_path, "", *flags, *elsewhere, *copies, *prefix, "--role", "t",
                            "--no-python", "sh", "-c", says)  # fmt: skip
    assert (code, out, err) == (0, f"{label}rank 1 ends\n{label}begins\n", "")
    (run,) = (tmp_path / "logs").glob("seven_????????")
    there = run / "attempt_0"
    if copies:
        assert (there / "filtered_stdout.log").read_text() == f"{label}rank 1 ends\n"
    for rank in range(3):
        assert (there / str(rank) / "stdout.log").read_text() == f"rank {rank} ends\nbegins\n"
        assert (there / str(rank) / "stderr.log").read_text() == ""
        assert (there / str(rank) / "error.json").read_text() == "why\n"
        ours = tmp_path / "run" / "attempt-0" / f"rank-{rank}" / "stdout.log"
        assert ours.resolve() == there / str(rank) / "stdout.log"


@pytest.mark.parametrize(
    ("template", "prefix"),
    [
        ("", b"[t1]:"),
        ("${hostname}:${rank}: ", b"node7:9: "),
        ("[$role_name/${local_rank}] ", b"[t/1] "),
        ("${nothing}$", b"${nothing}$"),
    ],
)
def test_what_tee_puts_before_a_line(template: str, prefix: bytes) -> None:
    env = {"ROLE_NAME": "t", "RANK": "9", "LOCAL_RANK": "1"}
    assert line_prefix(env, template, host="node7") == prefix


def test_who_names_a_folder_for_logs_gets_all_of_them() -> None:
    env = {"LOCAL_RANK": "1", "TORCHELASTIC_RUN_ID": "seven"}
    paths = RunPaths("/runs", "id")
    named = LogPlaces(paths, "/logs").log(2, 5, "stderr", env)
    assert (named.path, named.limit) == ("/runs/id/attempt-2/rank-5/stderr.log", NO_LIMIT)
    assert re.fullmatch(r"/logs/seven_\w{8}/attempt_2/1/stderr\.log", named.elsewhere)
    own = LogPlaces(paths, None)
    assert own.log(2, 5, "stderr", env).elsewhere == ""
    assert own.log(2, 5, "stderr", env).limit > 0
    assert own.error_file(2, env) == ""


IN_TURN = """
import os
for number in range(300):
    os.write(1, b"out %d\\n" % number)
    os.write(2, b"err %d\\r" % number)
"""


def test_the_order_is_kept_where_both_go_to_one_file(tmp_path: Path) -> None:
    """`> log 2>&1`: as under torchrun, whose ranks write into the file themselves. The log in the
    run's folder then has both as well."""
    (tmp_path / "in_turn.py").write_text(IN_TURN)
    launcher = [sys.executable, str(TARGETS / "launch_with.py"), str(tmp_path), ""]
    with (tmp_path / "screen").open("wb") as screen:
        subprocess.run([*launcher, str(tmp_path / "in_turn.py")], stdout=screen, stderr=screen,
                       check=True, timeout=120)  # fmt: skip
    expected = "".join(f"out {number}\nerr {number}\r" for number in range(300)).encode()
    assert (tmp_path / "screen").read_bytes() == expected
    folder = tmp_path / "run" / "attempt-0" / "rank-0"
    assert (folder / "stdout.log").read_bytes() == expected
    assert not (folder / "stderr.log").exists()


def test_an_unwritable_folder_leaves_the_screen(tmp_path: Path) -> None:
    """The folder is a file here, which stops root too. The job's output comes through whole."""
    (tmp_path / "run").write_text("in the way")
    code, out, err = launch(tmp_path, "", "--nproc-per-node", "2", str(ODD))
    assert code == 0
    assert out.count("ends without a newline") == 2
    assert err.count("complaint\n") == 2
    assert err.count("cannot write logs to") == 1


def test_the_screen_gets_the_same_bytes_as_without_us(tmp_path: Path) -> None:
    alone = subprocess.run(
        [sys.executable, str(ODD)], env={**os.environ, "LOCAL_RANK": "0"},
        capture_output=True, check=True, timeout=60,
    )  # fmt: skip
    launcher = [sys.executable, str(TARGETS / "launch_with.py"), str(tmp_path), ""]
    ours = subprocess.run([*launcher, str(ODD)], capture_output=True, check=True, timeout=120)
    assert (ours.stdout, ours.stderr) == (alone.stdout, alone.stderr)

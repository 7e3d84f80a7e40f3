"""`holdfast run` at a terminal: its ranks see one too, and share it with our status line."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import signal
import subprocess
import termios
from collections.abc import Iterator
from pathlib import Path

from holdfast.analysis.job.journal_records import RankRecord
from holdfast.run.runs import journal
from tests.cli.holdfast_command import HOLDFAST, wait_until
from tests.cli.jobs import PATIENCE, script
from tests.run.launching import lives
from tests.window import Window, window

BAR = b"".join(b"\r%3d%%|%s" % (n * 10, b"#" * n) for n in range(1, 11)) + b" \xe2\x9c\x93\n"
ERASED, LINE = b"\r          \r", b"{'loss': 0.5}\n"
WRITTEN_ABOVE = (ERASED + LINE) * 200
"""what tqdm.write does: the bar goes on stderr, the line comes on stdout"""
OUR_LINE = re.compile(rb"\r\033\[K(holdfast> [^\r\n]*)?")
DRAW = f"""
import os, time
rank = os.environ["RANK"]
seen = os.isatty(1) and os.get_terminal_size(1).columns, os.isatty(2)
print(rank, *seen)
def wait_for(name):
    while not os.path.exists(name):
        time.sleep(0.01)
wait_for("draw")
if rank == "0":
    for piece in {BAR!r}.split(b"\\r")[1:]:
        os.write(2, b"\\r" + piece)
        time.sleep(0.12)  # longer than a tick of the watcher, who would like to draw its line
    for _ in range(200):
        os.write(2, {ERASED!r})
        os.write(1, {LINE!r})
wait_for("end")
"""
LISTEN = """
import os, signal, time
def note(number, _):
    with open("heard." + os.environ["RANK"], "a") as file:
        file.write(signal.Signals(number).name + " ")
    if number != signal.SIGHUP:
        raise SystemExit(3)
for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
    signal.signal(number, note)
print("listening to you", flush=True)
time.sleep(600)
"""


TWO = ("--nproc-per-node", "2")


class AtTheTerminal:
    def __init__(self, folder: Path, made: Window, text: str, flags: tuple[str, ...]) -> None:
        self.folder = folder
        outer = ("PET_", "TORCH", "NCCL_", "OMP_", "HOLDFAST")
        environment = {k: v for k, v in os.environ.items() if not k.startswith(outer)}

        def as_a_shell_does() -> None:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # Ctrl-C in this window is for us

        self.process = subprocess.Popen(
            [*HOLDFAST, "run", "--no-check", *flags, script(folder, text)],
            cwd=folder, env={**environment, "TERM": "xterm"},
            stdin=made.far, stdout=made.far, stderr=made.far, start_new_session=True,
            preexec_fn=as_a_shell_does,  # noqa: PLW1509 - no threads here
        )  # fmt: skip

    def log(self, rank: int, stream: str) -> bytes:
        ranks = self.folder / "runs" / "latest" / "attempt-0"
        return (ranks / f"rank-{rank}" / f"{stream}.log").read_bytes()

    def pids(self) -> list[int]:
        records = journal.read(str(self.folder / "runs" / "latest" / "journal.jsonl"))
        return [r.pid for r in records if isinstance(r, RankRecord) and r.what == "started"]

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        for leader in self.pids():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(leader, signal.SIGKILL)


@contextlib.contextmanager
def at_the_terminal(folder: Path, made: Window, text: str, *flags: str) -> Iterator[AtTheTerminal]:
    started = AtTheTerminal(folder, made, text, flags)
    try:
        yield started
    finally:
        started.end()


def test_ranks_see_the_terminal_and_their_bars_stay_whole(tmp_path: Path) -> None:
    """All but rank 2, whose lines get a prefix: torchrun gives it a file."""
    flags = ("--nproc-per-node", "3", "--tee", "2:3", "--role", "t")
    printed = (b"0 123 True\n", b"1 123 True\n", b"2 False False\n")
    with window(columns=123) as made, at_the_terminal(tmp_path, made, DRAW, *flags) as job:
        for line in (*printed[:2], b"[t2]:" + printed[2]):
            made.shows(line, seconds=PATIENCE)
        made.shows(b"\r\033[Kholdfast> 3 ranks starting for ", seconds=PATIENCE)
        (tmp_path / "draw").touch()
        made.shows(BAR, seconds=PATIENCE)  # unbroken, though it took many ticks to draw
        # both streams, in the order of writing
        wait_until(lambda: WRITTEN_ABOVE in OUR_LINE.sub(b"", made.look()), seconds=PATIENCE)
        after = len(made.got)
        wait_until(lambda: b"holdfast> 3 ranks starting" in made.look()[after:])
        (tmp_path / "end").touch()
        wait_until(lambda: bool(made.look()) and job.process.poll() is not None, seconds=PATIENCE)
        assert job.process.returncode == 0, made.look()
        assert job.log(0, "stdout") == printed[0] + BAR + WRITTEN_ABOVE
        assert tuple(job.log(rank, "stdout") for rank in (1, 2)) == printed[1:]
        assert not any(lives(pid) for pid in job.pids())


def test_no_pty_gives_ranks_a_pipe(tmp_path: Path) -> None:
    text = "import os; print(os.isatty(1), os.isatty(2))"
    with window() as made, at_the_terminal(tmp_path, made, text, "--no-pty") as job:
        made.shows(b"False False\n", seconds=PATIENCE)
        wait_until(lambda: bool(made.look()) and job.process.poll() is not None, seconds=PATIENCE)


def test_ctrl_c_reaches_the_ranks_once_and_by_us(tmp_path: Path) -> None:
    """No hang-up comes with it, though the terminals of the ranks go away."""
    with window(raw=False) as made, at_the_terminal(tmp_path, made, LISTEN, *TWO) as job:
        wait_until(lambda: made.look().count(b"listening to you") == 2, seconds=PATIENCE)
        made.type(b"\x03")
        wait_until(lambda: bool(made.look()) and job.process.poll() is not None, seconds=PATIENCE)
        assert job.process.returncode == 128 + signal.SIGINT, made.look()
        heard = [(tmp_path / f"heard.{rank}").read_text() for rank in (0, 1)]
        assert heard == ["SIGINT ", "SIGINT "]
        assert not any(lives(pid) for pid in job.pids())

"""`holdfast run` as a user starts it: how it ends, what it says, what it leaves behind.

The whole fault table is `python -m tools.fault_table`; here is a sample of it.
"""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path

import pytest

from tests.cli.holdfast_command import run, wait_until
from tests.cli.jobs import DDP, job, ran, script
from tests.memory_limit import CannotLimitError, memory_limit
from tests.places import TARGETS
from tests.run.launching import lives

FROM_ZERO: tuple[str, str, list[int]] = ("notice", "restart-from-zero", [])
"""these scripts keep nothing, and are told so after a restart"""
TWO_MORE = ("--max-restarts", "2")
"""nothing in them resumes, so that the flag is needed"""
WAIT = "import time\nprint('here', flush=True)\ntime.sleep(600)\n"


def test_a_job_that_ends_well_says_little_and_leaves_nothing(tmp_path: Path) -> None:
    done = ran(tmp_path, "--nproc-per-node", "2", str(DDP), "12")
    assert (done.process.returncode, done.out) == (0, b"step 0\nstep 10\n"), done.err
    assert done.said() == []
    assert done.actions() == []
    assert done.records("launch")[0]["world"] == 2
    assert done.records()[-1]["kind"] == "end"
    assert done.records("end")[0]["exit_code"] == 0
    assert done.records("end")[0]["steps"] == 12
    assert done.log(0, 0) == done.out
    assert done.err.splitlines()[-1].startswith("holdfast> done: 12 steps, 0 restarts")
    assert list(done.temporary.glob("holdfast*")) == []
    assert not any(lives(pid) for pid in done.pids())


def test_a_killed_rank_is_named_and_the_job_restarted(tmp_path: Path) -> None:
    words = ("--verify-replicas", "5", "--nproc-per-node", "3")
    done = ran(tmp_path, *TWO_MORE, *words, str(DDP), "22", "kill", "1")
    assert done.process.returncode == 0, done.err
    assert done.said() == [("verdict", "rank-killed", [1]), FROM_ZERO]
    assert done.records("verdict")[0]["victims"] == [0, 2]
    assert done.actions() == ["restart"]
    assert len(done.pids()) == 6
    exits = [record for record in done.records("rank") if record["what"] == "exited"]
    assert (exits[0]["rank"], exits[0]["code"]) == (1, -signal.SIGKILL)
    first, second = done.log(0, 0), done.log(1, 0)
    assert first.startswith(b"step 0\nstep 10\n")
    assert second == b"step 0\nstep 10\nstep 20\n"
    assert done.out == first + second
    assert "recovered from rank-killed on rank 1" in done.err.splitlines()[-1]
    replicas = [(r["attempt"], r["last_step"], r["different"]) for r in done.records("replicas")]
    assert replicas == [(0, 15, []), (1, 20, [])], "compared in both attempts, and equal"


RULES = r"""
[tool.holdfast.rules.too-far]
pattern = '^step (\d+)'
means = "it went too far"
above = 5

[tool.holdfast.rules.logs-steps]
pattern = "step"
means = "no steps are logged"
every = 1
"""


def test_a_rank_that_sleeps_is_noticed_and_ended_when_patience_is_over(tmp_path: Path) -> None:
    """The user's own rules speak meanwhile; nothing is done about what they say."""
    (tmp_path / "pyproject.toml").write_text(RULES)
    done = ran(
        tmp_path,
        *TWO_MORE,
        "--nproc-per-node",
        "2",
        "--patience",
        "3",
        str(DDP),
        "22",
        "sleep",
        "1",
    )
    assert done.process.returncode == 0, done.err
    assert done.said() == [
        ("notice", "rank-stuck", [1]),
        ("verdict", "rank-stuck", [1]),
        FROM_ZERO,
    ]
    own = [(r["rule"], r["what"], r["ranks"]) for r in done.records("rule") if r["attempt"] == 0]
    assert ("too-far", "number", [0]) in own
    assert ("logs-steps", "stopped", []) in own
    assert "notice[your rule] too-far (warning): it went too far: 10 is above 5" in done.err
    verdict = done.records("verdict")[0]
    assert verdict["victims"] == [0]
    assert "ddp.py" in verdict["reason"]
    assert done.actions() == ["restart"]
    assert done.records("action")[0]["reason"].startswith("waited longer than --patience 3")
    kept = {path.name for path in Path(verdict["evidence"]).iterdir()}
    assert {f"rank-{r}.{what}.json" for r in (0, 1) for what in ("stack", "recorder")} <= kept


def test_the_rank_with_another_size_is_the_culprit_not_the_one_that_aborts(tmp_path: Path) -> None:
    done = ran(tmp_path, *TWO_MORE, "--nproc-per-node", "3", str(DDP), "22", "size", "1")
    assert done.process.returncode == 0, done.err
    assert done.said() == [("verdict", "collective-mismatch", [1]), FROM_ZERO]
    assert done.actions() == ["restart"]


RAISE = """
import atexit, os, pathlib, signal, sys, time
attempt = os.environ["TORCHELASTIC_RESTART_COUNT"]
told, done = pathlib.Path(f"told.{attempt}"), pathlib.Path(f"done.{attempt}")
def save(*_):
    told.touch()
    sys.exit()
def upload():
    while not told.exists():
        time.sleep(0.01)
    done.touch()
if os.environ["RANK"] == "1":
    atexit.register(upload)
    raise ValueError("no data here")
signal.signal(signal.SIGTERM, save)
time.sleep(600)
"""


def test_a_script_that_always_raises_is_given_up(tmp_path: Path) -> None:
    """Its exit handlers outlast the verdict: what they wait for is an order to the other rank."""
    words = (f"TORCHELASTIC_ERROR_FILE={tmp_path}/error.json", *TWO_MORE, "--nproc-per-node", "2")
    done = ran(tmp_path, *words, script(tmp_path, RAISE))
    assert done.process.returncode == 1
    assert [(tmp_path / f"done.{attempt}").exists() for attempt in (0, 1)] == [True, True]
    left = json.loads((tmp_path / "error.json").read_text())["message"]
    assert (left["message"], left["errorCode"]) == ("ValueError: no data here", 1)
    assert done.actions() == ["restart", "stop"]
    assert ("verdict", "restart-loop", [1]) in done.said()
    last = done.err.splitlines()[-1]
    assert last.startswith("holdfast> root cause: python-exception: rank 1 ")
    assert "ValueError: no data here at train.py:14" in last
    assert not any(lives(pid) for pid in done.pids())


@pytest.mark.long
def test_where_nothing_resumes_the_first_failure_is_the_end(tmp_path: Path) -> None:
    text = "import os, sys, time\nif os.environ['RANK'] == '0': sys.exit(7)\ntime.sleep(600)\n"

    def by_a_careless_parent() -> None:
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # then the kernel keeps no exit code

    words = ("--nproc-per-node", "2", script(tmp_path, text))
    done = ran(tmp_path, *words, before_exec=by_a_careless_parent)
    assert "to restart it anyway: --max-restarts 3" in done.err
    assert done.process.returncode == 7, done.err
    assert done.actions() == ["stop"]
    assert done.said()[-1][2] == [0]
    assert not (done.run / "attempt-1").exists()
    assert done.records("end")[0]["exit_code"] == 7
    (found,) = done.records("diagnosis")
    assert (found["slug"], found["ranks"]) == done.said()[-1][1:], "explained from its own folder"
    *_, hint, cause = done.err.splitlines()
    assert re.fullmatch(r"holdfast> `holdfast explain \S+/runs/\S+` shows the evidence", hint)
    assert cause.startswith(f"holdfast> root cause: {found['slug']}: rank 0 ")


SAVES = """
import signal, sys, time
from torch.utils.data import DataLoader
def save(*_):
    time.sleep(1.5)  # longer than it takes the launcher to hear a second signal
    print("saved", flush=True)
    sys.exit()
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, save)
signal.signal(signal.SIGUSR1, lambda *_: print("warned", flush=True))
batches = iter(DataLoader(range(10**6), num_workers=1))  # its worker must not end before the rank
next(batches)
print("here", flush=True)
while True:
    time.sleep(0.1)
"""


@pytest.mark.parametrize(
    "sign", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.long)]
)
def test_a_signal_to_the_launcher_ends_all(tmp_path: Path, sign: signal.Signals) -> None:
    """SIGHUP with it, as from a session that ends, cuts no save off. SIGUSR1 is for the ranks."""
    with job(tmp_path, "--nproc-per-node", "2", script(tmp_path, SAVES)) as running:
        wait_until(lambda: running.out.count(b"here\n") == 2, seconds=60)
        pids = running.pids()
        running.process.send_signal(signal.SIGUSR2)
        running.process.send_signal(signal.SIGUSR1)
        wait_until(lambda: running.out.count(b"warned\n") == 2)
        running.process.send_signal(sign)
        running.process.send_signal(signal.SIGHUP)
        assert running.finish() == 128 + sign, running.err
        assert not any(lives(pid) for pid in pids)
        assert running.records("action")[0]["reason"] == sign.name
        assert running.out.count(b"saved\n") == 2
        signals = {r["signal"]: r["ranks"] for r in running.records("signal")}
        assert signals == {"SIGUSR1": [0, 1], "SIGUSR2": []}
        assert running.records()[-1]["kind"] == "end"
        assert running.records()[-1]["exit_code"] == 128 + sign
        assert list(running.temporary.glob("holdfast*")) == []


def test_no_rank_outlives_a_launcher_that_is_killed(tmp_path: Path) -> None:
    with job(tmp_path, "--nproc-per-node", "2", script(tmp_path, WAIT)) as running:
        wait_until(lambda: running.out.count(b"here\n") == 2, seconds=60)
        pids = running.pids()
        assert all(lives(pid) for pid in pids)
        running.process.kill()
        running.process.wait()
        wait_until(lambda: not any(lives(pid) for pid in pids), seconds=2)


def test_dry_run_starts_and_makes_nothing(tmp_path: Path) -> None:
    done = run("run", "--dry-run", "--nproc-per-node", "2", "train.py", "--lr", "1", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "would start 2 ranks" in done.stdout
    assert "train.py --lr 1" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_dry_run_of_several_nodes_says_where_they_meet(tmp_path: Path) -> None:
    typed = ("--nnodes", "2:4", "--rdzv-endpoint", "10.0.0.1:29400")
    done = run("run", "--dry-run", *typed, "train.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    wanted = "nodes      2 to 4, coordinated by the node that has 10.0.0.1:29400 (--rdzv-endpoint)"
    assert wanted in done.stdout
    assert "127.0.0.1" not in done.stdout


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--nproc-per-node", "two", "train.py"], "two"),
        (["--frobnicate", "train.py"], "--frobnicate"),
        (["train.py"], "no script at train.py"),
    ],
)
def test_bad_flags_are_a_sentence_and_code_2(
    tmp_path: Path, words: list[str], sentence: str
) -> None:
    done = run("run", "--no-check", *words, cwd=tmp_path)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_where_nothing_can_be_kept_the_job_still_runs(tmp_path: Path) -> None:
    """Root may write everywhere, but not below a file."""
    text = "print('fine')\n"
    blocked = tmp_path / "file"
    blocked.write_text("")
    done = ran(tmp_path, "--runs", str(blocked / "runs"), script(tmp_path, text))
    assert (done.process.returncode, done.out) == (0, b"fine\n")
    assert "cannot write" in done.err
    assert "this run is kept in" in done.err


def test_holdfast_off_stays_out_of_the_ranks(tmp_path: Path) -> None:
    text = "import sys\nprint([name for name in sys.modules if name.startswith('holdfast')])\n"
    done = ran(tmp_path, "HOLDFAST=off", script(tmp_path, text))
    assert (done.process.returncode, done.out) == (0, b"[]\n"), done.err


def test_the_users_own_pythonpath_still_counts(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "my_models.py").write_text("NAME = 'mine'\n")
    text = "import sys, my_models\nprint(my_models.NAME, 'holdfast' in sys.modules)\n"
    done = ran(tmp_path, f"PYTHONPATH={tmp_path / 'theirs'}", script(tmp_path, text))
    assert (done.process.returncode, done.out) == (0, b"mine True\n"), done.err


def test_output_passes_through_byte_for_byte(tmp_path: Path) -> None:
    text = (
        "import sys\n"
        "for number in range(5000): print(number)\n"
        "sys.stdout.flush()\n"
        "sys.stdout.buffer.write(b'\\x1b[1m\\xff\\x00half a line')\n"
    )
    done = ran(tmp_path, script(tmp_path, text))
    wanted = b"".join(b"%d\n" % number for number in range(5000)) + b"\x1b[1m\xff\x00half a line"
    assert (done.process.returncode, done.out) == (0, wanted)
    assert done.log(0, 0) == wanted


@pytest.mark.long
def test_two_jobs_at_once_just_work(tmp_path: Path) -> None:
    target = str(TARGETS / "sum_ranks.py")
    with (
        job(tmp_path / "a", "--nproc-per-node", "2", target) as one,
        job(tmp_path / "b", "--nproc-per-node", "2", target) as other,
    ):
        assert (one.finish(), other.finish()) == (0, 0), one.err + other.err
        assert one.said() == other.said() == []


@pytest.mark.lab
def test_a_rank_that_eats_the_memory_of_its_cgroup(tmp_path: Path) -> None:
    text = (
        "import os, time\n"
        "if os.environ['RANK'] == '1' and os.environ['TORCHELASTIC_RESTART_COUNT'] == '0':\n"
        "    hoard = []\n"
        "    while True: hoard.append(b'x' * (16 << 20))\n"
        "if os.environ['TORCHELASTIC_RESTART_COUNT'] == '0': time.sleep(600)\n"
    )
    try:
        with memory_limit(1 << 30) as enter:
            arguments = (*TWO_MORE, "--nproc-per-node", "2", script(tmp_path, text))
            done = ran(tmp_path, *arguments, before_exec=enter)
    except CannotLimitError as problem:
        pytest.skip(f"needs a cgroup of its own: {problem}")
    assert done.process.returncode == 0, done.err
    assert done.said() == [("verdict", "host-oom", [1])]
    assert done.actions() == ["restart"]

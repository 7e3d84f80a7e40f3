"""Whole jobs: what is started, restarted, stopped and left behind. Gloo where it matters."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.cli.holdfast_command import free_port, listener, wait_until
from tests.places import TARGETS
from tests.run.launching import calls, finish, launch, launched, lives, log
from tests.torch_version import TORCH, without_gloos_lines

SUM = str(TARGETS / "sum_ranks.py")


@pytest.mark.long
def test_the_group_forms_again_after_a_failure_on_the_same_port(tmp_path: Path) -> None:
    """What torchrun fails at: its second round reads the addresses of the first."""
    arguments = ("--nproc-per-node", "2", "--master-port", str(free_port()), SUM, "1=3")
    code, out, err = launch(tmp_path, "restart", *arguments)
    assert code == 0, err
    for attempt in (0, 1):
        for rank in (0, 1):
            line = f"attempt {attempt} rank {rank} sum 2 of 3 rank {rank}\n"
            assert line in out
            assert without_gloos_lines(log(tmp_path, attempt, rank)) == line
    assert [call["what"] for call in calls(tmp_path)] == [
        "started", "restart", "stopped", "started"
    ]  # fmt: skip
    assert [call["attempt"] for call in calls(tmp_path) if "attempt" in call] == [0, 1]
    assert "holdfast:" not in err
    assert "torch/distributed" not in err.replace("site-packages/torch/distributed", "")


@pytest.mark.parametrize(("ending", "code"), [("exit 7", 7), ("kill -9 $$", 137)])
def test_stop_ends_the_job_with_the_culprits_code(tmp_path: Path, ending: str, code: int) -> None:
    """The other rank is alive while the watcher looks, and gone afterwards."""
    script = tmp_path / "rank.sh"
    script.write_text(f'[ "$LOCAL_RANK" = 1 ] || exec sleep 600\n{ending}\n')
    arguments = ("--nproc-per-node", "2", "--max-restarts", "9", "--no-python", "sh", str(script))
    seen, out, err = launch(tmp_path, "stop", *arguments)
    started, stop, stopped = calls(tmp_path)
    assert seen == code
    assert (stop["what"], stop["living"], stopped["what"]) == ("stop", [0], "stopped")
    assert not any(lives(pid) for pid in started["pids"])
    assert (out, err) == ("", "")


def test_two_jobs_at_once(tmp_path: Path) -> None:
    """One a module, one no Python at all, on the first of up to two nodes; both read where to
    meet, and it differs."""
    package = tmp_path / "package"
    package.mkdir()
    (package / "__main__.py").write_text(
        "import os, sys\nprint(os.environ['MASTER_PORT'], sys.argv[1:], __name__)\n"
    )
    one, two = tmp_path / "one", tmp_path / "two"
    module = ("--standalone", "--nproc-per-node", "2", "-m", "package", "--x")
    elastic = ("--nnodes=1:2", "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0")
    echo = 'echo "$MASTER_PORT $DRESSED of $WORLD_SIZE"'
    shell = (*elastic, "--nproc-per-node=2", "--no-python", "sh", "-c", echo)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(tmp_path))
        with launched(one, "", *module) as first, launched(two, "", *shell) as second:
            ends = finish(first), finish(second)
    assert [code for code, _, _ in ends] == [0, 0]
    port, _, rest = log(one, 0, 0).partition(" ")
    assert rest == "['--x'] __main__\n"
    other, _, rest = log(two, 0, 1).partition(" ")
    assert rest == "rank 1 of 2\n"
    assert port != other
    low, high = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    assert not low <= int(port) <= high


def test_a_script_by_its_path(tmp_path: Path) -> None:
    """--run-path: as a command of its own, so that it can be watched like any other."""
    script = tmp_path / "train.py"
    script.write_text("import sys, __main__\nprint(sys.argv[1:], __name__, __main__.__file__)\n")
    code, out, err = launch(tmp_path, "", "--run-path", str(script), "--lr", "1")
    assert (code, err) == (0, "")
    assert out.startswith("['--lr', '1'] __main__")


def test_a_job_is_over_when_a_look_has_seen_that(tmp_path: Path) -> None:
    """The watcher tells other nodes so; what exits while it looks is seen at the next look."""
    assert launch(tmp_path, "slow", "--no-python", "sleep", "0.5")[0] == 0
    looks = [call["codes"] for call in calls(tmp_path) if call["what"] == "looked"]
    assert looks[0] == [None]
    assert looks[-1] == [0]


def test_a_signal_ends_everything_and_is_the_exit_code(tmp_path: Path) -> None:
    """Ranks and children that ignore SIGTERM go too, after the grace they are due."""
    notes = tmp_path / "pids"
    brood = str(TARGETS / "brood.py")
    arguments = ("--nproc-per-node", "2", "--grace", "1", brood, str(notes))
    with launched(tmp_path, "", *arguments) as launcher:
        wait_until(lambda: notes.exists() and notes.read_text().count("\n") == 4, seconds=60)
        launcher.send_signal(signal.SIGTERM)
        code, _, _ = finish(launcher)
    assert code == 128 + signal.SIGTERM
    pids = [int(line) for line in notes.read_text().split()]
    assert not any(lives(pid) for pid in pids)
    assert [call["what"] for call in calls(tmp_path)] == ["started", "told", "stopped"]
    assert calls(tmp_path)[1]["signal"] == "SIGTERM"


def test_a_fenced_node_gives_its_ranks_no_time(tmp_path: Path) -> None:
    """The other nodes may start again without it: the grace of ten minutes does not count."""
    ready = tmp_path / "ready"
    rank = (
        f"if [ $RANK = 0 ]; then while [ ! -e {ready} ]; do sleep 0.1; done; exit 3; fi; "
        f"trap '' TERM; touch {ready}; sleep 600"
    )
    arguments = ["--nproc-per-node", "2", "--grace", "600", "--no-python", "sh", "-c", rank]
    code, _, err = launch(tmp_path, "stop,fenced", *arguments)
    assert (code, calls(tmp_path)[-1]["what"]) == (3, "stopped"), err


def test_a_watcher_that_fails_does_not_end_the_job(tmp_path: Path) -> None:
    """Said once; while it fails as under torchrun, restarts within the user's number. It is asked
    again: what broke it may not come back."""
    script = 'echo "$TORCHELASTIC_RESTART_COUNT/$TORCHELASTIC_MAX_RESTARTS"; exit 4'
    arguments = ("--max-restarts", "1", "--no-python", "sh", "-c", script)
    code, out, err = launch(tmp_path, "break,break", *arguments)
    assert out == "0/1\n1/1\n"
    assert err.count("monitoring failed and is tried again") == 1
    asked = [call["what"] for call in calls(tmp_path)]
    assert asked == ["started", "break", "stopped", "started", "break", "stopped"]
    assert "ValueError: no plan for this" in err
    assert code != 0


def test_a_taken_port_is_named_with_its_owner(tmp_path: Path) -> None:
    port = free_port()
    with listener(port) as other:
        code, _, err = launch(tmp_path, "", "--master-port", str(port), SUM)
    assert code == 2
    assert f"port {port} is in use: pid {other.pid}" in err
    assert "Traceback" not in err
    assert calls(tmp_path) == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--no-python", "/nowhere/train"), "the ranks could not be started"),
        (("--no-python", "-m", "x"), "'--no-python'"),
        (("--nproc-per-node", "many", "x"), "many"),
        pytest.param(
            ("--signals-to-handle", "SIGNOPE", "x"),
            "SIGNOPE",
            marks=pytest.mark.skipif(TORCH < (2, 10), reason="no such flag of torchrun's"),
        ),
    ],
)
def test_what_cannot_start_is_one_sentence(
    tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    code, _, err = launch(tmp_path, "", *arguments)
    assert code == 2
    assert words in err
    assert "Traceback" not in err


def test_dry_run_says_what_and_starts_nothing(tmp_path: Path) -> None:
    arguments = (
        "--dry-run",
        "--standalone",
        "--nproc-per-node",
        "2",
        "train.py",
        "--api-key",
        "x1",
    )
    code, out, _ = launch(tmp_path, "", *arguments)
    assert code == 0
    assert "would start 2 ranks" in out
    assert "-u train.py --api-key <redacted>" in out
    assert "up to 3" in out
    assert "DRESSED=rank 0" in out
    assert "--standalone" in out
    assert list(tmp_path.iterdir()) == []

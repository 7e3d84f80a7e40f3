"""How the hook gets in, and that nothing else comes with it. Plain Python ranks, no torch."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from holdfast.rank import delivery
from tests.places import TARGETS
from tests.rank.ranks import ran, started, wait_for


def environment(base: dict[str, str]) -> dict[str, str]:
    return delivery.environment(base, page="/p", words="/w", socket="/s", launcher_pid=7)


def test_the_users_path_comes_after_ours() -> None:
    assert environment({"PYTHONPATH": "/a:/b"})["PYTHONPATH"] == f"{delivery.SITE}:/a:/b"
    assert environment({})["PYTHONPATH"] == delivery.SITE
    # An empty entry would put the working directory on the path.
    assert environment({"PYTHONPATH": ""})["PYTHONPATH"] == delivery.SITE


def test_off_adds_nothing() -> None:
    base = {"HOLDFAST": "off", "PYTHONPATH": "/a"}
    assert environment(base) == base


@pytest.mark.parametrize("name", ["TORCH_NCCL_ENABLE_TIMING", "NCCL_ENABLE_TIMING"])
def test_gpu_timing_is_on_unless_the_user_said_something_about_it(name: str) -> None:
    assert environment({})["TORCH_NCCL_ENABLE_TIMING"] == "1"
    made = environment({name: "0"})
    assert {n: made[n] for n in made if "TIMING" in n} == {name: "0"}


def test_off_leaves_no_trace_in_the_rank(tmp_path: Path) -> None:
    rank = ran(tmp_path, "print('fine')", {"HOLDFAST": "off"})
    assert rank.last is None
    assert (rank.out.read_text(), rank.err.read_text()) == ("fine\n", "")


LOOK = """
import os, sys, threading
print(sorted(k for k in os.environ if k.startswith('HOLDFAST')), os.environ.get('PYTHONPATH'))
print([p for p in sys.path if 'holdfast' in p and 'rank' in p], threading.active_count())
print(sys.modules['sitecustomize'].__file__ if 'user' in sys.argv else '')
"""


def test_the_rank_sees_its_own_environment(tmp_path: Path) -> None:
    rank = ran(tmp_path, LOOK, {"PYTHONPATH": "/nowhere"})
    assert rank.last is not None
    assert rank.out.read_text() == "[] /nowhere\n[] 1\n\n"
    assert rank.err.read_text() == ""


CHILDREN = """
import multiprocessing, os, subprocess, sys
LOOK = ("import os, sys; print([k for k in os.environ if k.startswith('HOLDFAST')], "
        "'holdfast.rank.own_page' in sys.modules)")

def child():
    own = sys.modules.get('holdfast.rank.own_page')
    print(multiprocessing.get_start_method(), getattr(own, 'page', None), flush=True)

if __name__ == '__main__':
    print(sys.modules['holdfast.rank.own_page'].page is not None, flush=True)
    subprocess.run([sys.executable, '-c', LOOK])
    for way in ('fork', 'spawn'):
        multiprocessing.set_start_method(way, force=True)
        process = multiprocessing.Process(target=child)
        process.start()
        process.join()
    if os.fork() == 0:
        raise ValueError('a child that fails has its own parent to tell')
    os.wait()
"""


def test_children_inherit_nothing(tmp_path: Path) -> None:
    rank = ran(tmp_path, CHILDREN)
    assert rank.out.read_text().splitlines() == ["True", "[] False", "fork None", "spawn None"]
    assert not rank.words.exists()
    assert rank.process.returncode == 0


def test_the_users_own_sitecustomize_still_runs(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("print('the user was here')\n")
    script = "import sitecustomize; print(sitecustomize.__file__)"
    rank = ran(tmp_path, script, {"PYTHONPATH": str(own)})
    assert rank.last is not None
    assert rank.out.read_text() == f"the user was here\n{own}/sitecustomize.py\n"


def test_a_broken_sitecustomize_breaks_as_it_would_have(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("raise KeyError('mine')\n")
    bare = {**os.environ, "PYTHONPATH": str(own)}
    without = subprocess.run(
        [sys.executable, "-c", "print(1)"], env=bare, capture_output=True, check=True
    )
    rank = ran(tmp_path, "print(1)", {"PYTHONPATH": str(own)})
    assert rank.last is not None
    assert rank.err.read_bytes() == without.stderr
    assert b"mine" in without.stderr


def test_a_hook_that_fails_prints_one_line_and_the_script_continues(tmp_path: Path) -> None:
    rank = ran(tmp_path, "print('trained')", {"TEST_PAGE": "/nowhere/at/all"})
    assert rank.process.returncode == 0
    assert rank.out.read_text() == "trained\n"
    said = rank.err.read_text()
    assert said.count("\n") == 1
    assert "training continues" in said
    assert "/nowhere/at/all" in said


def test_without_site_there_is_simply_no_hook(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("print('fine')")
    shim = delivery.command([sys.executable, "-I", str(script)])
    made = environment(dict(os.environ))
    done = subprocess.run(shim, env=made, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr, done.returncode) == ("fine\n", "", 0)


def test_the_shim_becomes_the_command() -> None:
    script = "import os, signal; print(os.getpid(), signal.getsignal(signal.SIGTERM))"
    process = subprocess.Popen(
        delivery.command([sys.executable, "-c", script]), stdout=subprocess.PIPE, text=True
    )
    out, _ = process.communicate(timeout=60)
    assert out.startswith(f"{process.pid} ")


def test_the_secret_of_the_launchers_stays_with_them() -> None:
    done = subprocess.run(
        delivery.command(["sh", "-c", 'echo "<$HOLDFAST_TOKEN>"']),
        env={**os.environ, "HOLDFAST_TOKEN": "x" * 32},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "<>\n"


def test_signals_that_python_ignores_are_not_ignored_in_the_command() -> None:
    """A rank that is not Python, writing into a closed pipe, must end."""
    done = subprocess.run(
        delivery.command(["sh", "-c", "grep SigIgn /proc/$$/status"]),
        capture_output=True,
        text=True,
        check=True,
    )
    ignored = int(done.stdout.split()[1], 16)
    assert not ignored >> (signal.SIGPIPE - 1) & 1
    assert not ignored >> (signal.SIGXFSZ - 1) & 1


@pytest.mark.parametrize(("command", "code"), [("/nowhere/python", 127), ("/etc/hosts", 126)])
def test_a_command_that_cannot_start_is_named(command: str, code: int) -> None:
    done = subprocess.run(delivery.command([command]), capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert command in done.stderr


def test_a_launcher_that_is_gone_already_starts_nothing() -> None:
    argv = delivery.command(["sh", "-c", "echo started"])
    argv[argv.index(str(os.getpid()))] = "1"  # as if we had died and init had taken over
    done = subprocess.run(argv, capture_output=True, check=False)
    assert done.returncode == 128 + signal.SIGKILL
    assert done.stdout == b""


@pytest.mark.parametrize("command", [["sleep", "600"], [sys.executable, "-c", "while True: pass"]])
def test_a_killed_launcher_takes_its_rank_along(tmp_path: Path, command: list[str]) -> None:
    launcher = subprocess.Popen(
        [sys.executable, str(TARGETS / "launch_one.py"), str(tmp_path), *command],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert launcher.stdout is not None
    rank = psutil.Process(int(launcher.stdout.readline().split()[1]))
    try:
        wait_for(lambda: "shim.py" not in " ".join(rank.cmdline()), "the shim became the rank")
        launcher.kill()
        launcher.wait()
        wait_for(lambda: not rank.is_running() or rank.status() == "zombie", "it died", seconds=2)
    finally:
        launcher.kill()
        launcher.wait()
        launcher.stdout.close()
        if rank.is_running():
            rank.kill()


def test_a_page_is_announced_before_the_script_runs(tmp_path: Path) -> None:
    with started(tmp_path, "print('up', flush=True)\nimport time\ntime.sleep(600)") as rank:
        wait_for(lambda: rank.printed("up"), "the script runs")
        assert rank.has_page()
        assert not rank.beat.torch_imported
        assert rank.beat.beat_at == 0  # one thread, as the script made it
        assert len(os.listdir(f"/proc/{rank.process.pid}/task")) == 1

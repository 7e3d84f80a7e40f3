"""`holdfast.init`: alone, under torchrun, and before a store that does not come."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from holdfast.errors import ConfigError, EnvironmentFailure
from holdfast.rank import init as init_module
from tests.places import TARGETS
from tests.rank.ranks import PATIENCE, free_port, place
from tests.torch_version import without_gloos_lines


def without_a_job() -> dict[str, str]:
    names = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK")
    return {name: value for name, value in os.environ.items() if name not in names}


def test_alone_it_is_the_whole_world() -> None:
    done = subprocess.run(
        [sys.executable, str(TARGETS / "join.py")],
        env=without_a_job(),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    assert without_gloos_lines(done.stdout) == "rank 0 of 1 on cpu: 1 True\n"
    assert re.fullmatch(r"holdfast> rank 0 of 1 on \S+, pid \d+, cpu, gloo\n", done.stderr)


@pytest.mark.long
def test_under_stock_torchrun_a_restart_forms_the_group_again() -> None:
    """torch 2.13 alone cannot: its second attempt reads the addresses of the first."""
    torchrun = os.path.join(os.path.dirname(sys.executable), "torchrun")
    options = ["--standalone", "--nproc-per-node", "2", "--max-restarts", "1"]
    process = subprocess.Popen(
        [torchrun, *options, "--monitor-interval", "0.1", str(TARGETS / "join.py")],
        env=without_a_job(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=120)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    assert process.returncode == 0, err
    assert sorted(without_gloos_lines(out).splitlines()) == [
        "rank 0 of 2 on cpu: 2 True",
        "rank 1 of 2 on cpu: 2 True",
    ]


def test_half_an_environment_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RANK", "0")
    with pytest.raises(ConfigError, match="WORLD_SIZE, MASTER_ADDR, MASTER_PORT") as caught:
        init_module._is_alone()
    assert "holdfast run" in caught.value.hint


def test_a_store_that_never_comes_is_named(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    port = free_port()
    for name, value in place(1, 2, port).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(init_module, "SAY_EVERY", 0.3)
    with pytest.raises(
        EnvironmentFailure, match=rf"127\.0\.0\.1:{port} after \d+ s: Connection ref"
    ):
        init_module._wait_for_listener(time.monotonic() + 1)
    assert f"rank 1 waits for the store at 127.0.0.1:{port}" in capfd.readouterr().err


def test_a_store_that_comes_late_is_met(monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    for name, value in place(1, 2, port).items():
        monkeypatch.setenv(name, value)
    met = threading.Event()

    def wait() -> None:
        init_module._wait_for_listener(time.monotonic() + PATIENCE)
        met.set()

    waiting = threading.Thread(target=wait)
    waiting.start()
    with socket.create_server(("127.0.0.1", port)):
        assert met.wait(PATIENCE)
        waiting.join()

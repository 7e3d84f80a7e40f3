"""Where the ranks meet: a fresh store in every round, on a port that is really ours."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.errors import EnvironmentFailure
from holdfast.run.launch import ports
from tests.cli.holdfast_command import free_port, listener
from tests.places import TARGETS
from tests.run.launching import surroundings
from tests.torch_version import without_gloos_lines


@pytest.mark.parametrize("fixed", [True, False], ids=["the user's port", "any port"])
def test_every_round_has_a_store_of_its_own(fixed: bool) -> None:
    port = free_port() if fixed else 0
    done = subprocess.run(
        [sys.executable, str(TARGETS / "two_rounds.py"), str(port)], env=surroundings(),
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["stale"] is False
    assert seen["waiting"] == [0, 1, 0]
    assert seen["place"] == [0, 1, "seven", "holdfast"]
    assert (seen["listening"], seen["after"]) == (True, False)
    assert (seen["closed"], seen["refused"]) == (True, "RendezvousClosedError")
    assert seen["agent_store"] is True
    assert seen["busy"] < 0.1
    assert done.stderr == ""
    one, two = seen["ports"]
    assert (one, two) == (port, port) if fixed else one != two


def test_stock_torchrun_restarts_with_our_handler_and_logs(tmp_path: Path) -> None:
    """`--rdzv-backend holdfast --logs-specs holdfast`: found through the entry points."""
    torchrun = [sys.executable, "-m", "torch.distributed.run"]
    ours = ["--rdzv-backend", "holdfast", "--rdzv-endpoint", "localhost:0"]
    logs = ["--logs-specs", "holdfast", "--log-dir", str(tmp_path)]
    job = ["--max-restarts", "1", "--nproc-per-node", "2", str(TARGETS / "sum_ranks.py"), "1=3"]
    done = subprocess.run(
        [*torchrun, *ours, *logs, *job], env=surroundings(),
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for attempt in (0, 1):
        for rank in (0, 1):
            line = f"attempt {attempt} rank {rank} sum 2 of 1 plain\n"
            assert line in done.stdout
            (log,) = tmp_path.glob(f"*/attempt-{attempt}/rank-{rank}/stdout.log")
            assert without_gloos_lines(log.read_text()) == line


def test_a_port_of_our_choice_is_held_and_outside_the_ephemeral_range() -> None:
    low, high = map(int, Path(ports.EPHEMERAL_RANGE).read_text().split())
    with ports.listen_anywhere() as one, ports.listen_anywhere() as two:
        chosen = one.getsockname()[1], two.getsockname()[1]
        assert chosen[0] != chosen[1]
        for port in chosen:
            assert not low <= port <= high
            with pytest.raises(
                EnvironmentFailure, match=rf"port {port} is in use: pid {os.getpid()}"
            ):
                ports.listen_on(port)


def test_a_listener_on_every_address_is_in_the_way_too() -> None:
    port = free_port()
    with listener(port, "0.0.0.0") as other, pytest.raises(EnvironmentFailure) as problem:
        ports.listen_on(port)
    assert f"pid {other.pid} `" in problem.value.sentence
    assert "omit the port" in problem.value.hint


def test_an_address_that_is_not_ours_is_said() -> None:
    with pytest.raises(EnvironmentFailure, match=r"cannot bind port \d+ on 192\.0\.2\.1"):
        ports.listen_on(free_port(), "192.0.2.1")
    with pytest.raises(EnvironmentFailure, match=r"cannot bind a port on 192\.0\.2\.1"):
        ports.listen_anywhere("192.0.2.1")

"""Real ranks, real ports, real deaths. Each launch takes some seconds: few, with much to see."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.analysis.machine import Plan, Smoke, Unread
from holdfast.check.smoke import conduct, endpoint
from holdfast.check.smoke.stages import LADDER
from holdfast.errors import ConfigError, EnvironmentFailure
from tests.check.smoke.smokes import LOOPBACK, failure
from tests.faults.machines import a_plan

FAKE_NCCL = Path(__file__).parents[2] / "fakes" / "nccl_over_gloo"

needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="needs torch: the ranks import it"
)

ODD_ONE_OUT = """
import os, signal, time
if os.environ.get("RANK") == "{rank}":
    {act}
"""

RUN_THE_PLAN = """
import sys
import msgspec
from holdfast.analysis.machine import Plan
from holdfast.check.readers.loopback import read_loopback
from holdfast.check.smoke import conduct
plan = msgspec.json.decode(sys.stdin.buffer.read(), type=Plan)
seen = conduct.run(plan, loopback=read_loopback(plan), say=lambda line: None)
print(msgspec.json.encode(seen).decode())
"""
"""for a parent of its own: a plan on stdin, what was seen on stdout"""


def job(**changes: Any) -> Plan:
    """A job that inherits this environment, on a port that the smoke test picks."""
    return msgspec.structs.replace(a_plan(port=0, environment=dict(os.environ)), **changes)


def smoke_of(plan: Plan, lines: list[str] | None = None) -> Smoke:
    said = lines if lines is not None else []
    return conduct.run(plan, loopback=LOOPBACK, say=said.append)


def with_sitecustomize(folder: Path, rank: int, act: str) -> Plan:
    """A job in whose environment one rank behaves oddly before it comes up."""
    (folder / "sitecustomize.py").write_text(ODD_ONE_OUT.format(rank=rank, act=act))
    path = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH", "")]))
    return job(environment={**os.environ, "PYTHONPATH": path})


def is_alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return condition()


def ranks_started_by_us() -> list[int]:
    """Every living process that looks like a rank of ours: there must be none afterwards."""
    found = []
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if (
                folder.name.isdigit()
                and b"holdfast.check.smoke.rank" in (folder / "cmdline").read_bytes()
            ):
                environment = (folder / "environ").read_bytes()
                if f"HOLDFAST_TEST_MARK={os.getpid()}".encode() in environment:
                    found.append(int(folder.name))
    return found


@pytest.fixture(autouse=True)
def no_process_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("HOLDFAST_TEST_MARK", str(os.getpid()))
    yield
    left = ranks_started_by_us()
    for pid in left:  # marked as ours: end them, so that a failed test leaves nothing either
        os.kill(pid, signal.SIGKILL)
    assert left == []


@needs_torch
def test_four_ranks_come_meet_and_add_up() -> None:
    lines: list[str] = []
    smoke = smoke_of(job(), lines)
    assert {stage.name: stage.status for stage in smoke.stages[:4]} == {
        "loopback": "ok",
        "start": "ok",
        "store": "ok",
        "gloo": "ok",
    }, smoke.stages
    assert [rank.rank for rank in smoke.ranks] == [0, 1, 2, 3]
    assert len({rank.pid for rank in smoke.ranks}) == 4
    assert {rank.exit_code for rank in smoke.ranks} == {0}, "they left by themselves"
    masters = {rank.master for rank in smoke.ranks}
    assert len(masters) == 1
    port = int(masters.pop().rpartition(":")[2])
    low, high = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    assert not low <= port <= high
    gloo = [rung for rung in smoke.ladder if rung.stage == "gloo"]
    assert [rung.size for rung in gloo] == list(LADDER)
    assert all(rung.correct and rung.seconds > 0 and rung.bandwidth > 0 for rung in gloo)
    for rank in smoke.ranks:
        told = rf"\[rank {rank.rank}/4\] pid {rank.pid} device \S+.* master 127.0.0.1:{port}\b"
        assert any(re.match(told, line) for line in lines), lines
    assert any(line.startswith("gloo: ok in") and "GB/s" in line for line in lines)
    if smoke.ranks[0].device == "cpu":
        assert smoke.stages[4].status == "skipped"
        assert smoke.stages[4].reason


def gpu_job(ranks: int, **more: str) -> Plan:
    """A job on a machine with GPUs and NCCL, as tests/fakes/nccl_over_gloo makes them up."""
    path = os.pathsep.join(filter(None, [str(FAKE_NCCL), os.environ.get("PYTHONPATH", "")]))
    fake = {"PYTHONPATH": path, "FAKE_GPUS": str(ranks), "NCCL_DEBUG_FILE": "/nowhere/%h", **more}
    return job(nproc=ranks, environment={**os.environ, **fake})


@pytest.mark.long
@needs_torch
def test_nccl_sums_by_every_transport_and_says_which_it_took() -> None:
    smoke = smoke_of(gpu_job(2, FAKE_NCCL_VERSION="2.31.1"))
    assert smoke.stages[-1].status == "ok", smoke.stages
    assert {link.name for link in smoke.links} == {"P2P/CUMEM"}
    assert [(one.name, one.status) for one in smoke.rounds] == [("shm", "ok"), ("net", "ok")]
    assert [{link.name for link in one.links} for one in smoke.rounds] == [{"SHM"}, {"NET/Socket"}]
    assert all(one.bandwidth > 0 for one in smoke.rounds)
    assert [rank.gpu[-1] for rank in smoke.ranks] == ["0", "1"]
    assert not isinstance(smoke.diagnostics, Unread)
    assert smoke.diagnostics[0].check == "p2p"


@pytest.mark.long
@needs_torch
@pytest.mark.parametrize("broken", ["p2p", "sums"])
def test_p2p_that_hangs_or_gives_wrong_sums_is_told_by_the_rounds(broken: str) -> None:
    plan = gpu_job(2, FAKE_NCCL_BROKEN=broken)
    smoke = conduct.run(plan, loopback=LOOPBACK, say=lambda _: None, seconds=10)
    failed = failure(smoke)
    assert (failed.name, failed.cause) == ("nccl", "p2p-acs-iommu")
    assert [one.status for one in smoke.rounds] == ["ok", "ok"]


@pytest.mark.long
@needs_torch
def test_pairs_of_gpus_are_timed_and_the_slow_one_shows() -> None:
    smoke = smoke_of(gpu_job(4, FAKE_SLOW_GPU="2", FAKE_SLOW_SECONDS="2", FAKE_NCCL_BROKEN="shm"))
    with_2 = {p.bandwidth for p in smoke.pairs if 2 in (p.first, p.second)}
    others = {p.bandwidth for p in smoke.pairs if 2 not in (p.first, p.second)}
    assert (len(with_2), len(others)) == (3, 3)
    assert max(with_2) < min(others)
    assert [(one.name, one.status) for one in smoke.rounds] == [("shm", "failed"), ("net", "ok")]
    assert "fake shm is broken" in smoke.rounds[0].reason


@needs_torch
def test_a_taken_port_fails_the_store_and_no_rank_talks_to_the_stranger() -> None:
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        stranger.setblocking(False)
        port = stranger.getsockname()[1]
        smoke = smoke_of(job(port=port, nproc=2))
        with pytest.raises(BlockingIOError):
            stranger.accept()
    failed = failure(smoke)
    assert (failed.name, failed.cause) == ("store", "port-in-use")
    assert f"rank 0 (pid {smoke.ranks[0].pid}): another program holds the port" in failed.reason
    assert "EADDRINUSE" in failed.reason
    assert [rank.reached for rank in smoke.ranks] == ["start", "start"]
    assert smoke.stages[3].reason == "not reached: stage 'store' failed"


@needs_torch
def test_a_rank_that_leaves_early_is_named_at_once(tmp_path: Path) -> None:
    began = time.monotonic()
    smoke = smoke_of(with_sitecustomize(tmp_path, 2, "os._exit(0)"))
    failed = failure(smoke)
    assert (failed.name, failed.cause) == ("start", "ranks-missing")
    assert failed.reason == (
        f"rank 2 (pid {smoke.ranks[2].pid}) ended with exit code 0 before it was done; "
        f"ranks 0-1,3 are not to blame"
    )
    assert time.monotonic() - began < 15, "not at the deadline of 60 s"


@needs_torch
def test_a_stopped_rank_is_named_long_before_the_deadline(tmp_path: Path) -> None:
    plan = with_sitecustomize(tmp_path, 1, "os.kill(os.getpid(), signal.SIGSTOP)")
    began = time.monotonic()
    smoke = smoke_of(msgspec.structs.replace(plan, nproc=2))
    failed = failure(smoke)
    assert (failed.name, failed.cause) == ("start", "ranks-missing")
    assert f"rank 1 (pid {smoke.ranks[1].pid}) does not run" in failed.reason
    assert "rank 0 is not to blame" in failed.reason
    assert time.monotonic() - began < 30


@needs_torch
def test_ranks_do_not_outlive_a_killed_parent(tmp_path: Path) -> None:
    """Not even one that is stopped, so that it could do nothing about it."""
    plan = with_sitecustomize(tmp_path, 1, "os.kill(os.getpid(), signal.SIGSTOP)")
    parent = subprocess.Popen(
        [sys.executable, "-c", RUN_THE_PLAN], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    try:
        assert parent.stdin
        parent.stdin.write(msgspec.json.encode(msgspec.structs.replace(plan, nproc=2)))
        parent.stdin.close()
        assert wait_until(lambda: len(ranks_started_by_us()) == 2, 20)
        ranks = ranks_started_by_us()
    finally:
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    assert wait_until(lambda: not any(map(is_alive, ranks)), 2)


@needs_torch
def test_ctrl_c_ends_every_rank() -> None:
    def interrupt_when_started(line: str) -> None:
        if line.startswith("start:"):
            assert len(ranks_started_by_us()) == 2
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        conduct.run(job(nproc=2), loopback=LOOPBACK, say=interrupt_when_started)
    assert ranks_started_by_us() == []


def smoke_behind(rule: str, plan: Plan) -> Smoke:
    """Run the whole thing in a network namespace of its own, where a packet filter is at work."""
    filters = (
        "ip link set lo up && nft add table inet t && "
        "nft 'add chain inet t in { type filter hook input priority 0; }' && "
        f'nft \'add rule inet t in {rule}\' && exec "$0" -c "$1"'
    )
    done = subprocess.run(
        ["unshare", "--net", "sh", "-c", filters, sys.executable, RUN_THE_PLAN],
        input=msgspec.json.encode(plan),
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return msgspec.json.decode(done.stdout, type=Smoke)


def need_a_packet_filter() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    for tool in ("nft", "ip", "unshare"):
        if shutil.which(tool) is None:
            pytest.skip(f"needs {tool}")


@pytest.mark.lab
@needs_torch
def test_loopback_dropped_by_a_firewall() -> None:
    need_a_packet_filter()
    failed = failure(smoke_behind("iif lo drop", job(port=29500)))
    assert (failed.name, failed.cause) == ("loopback", "loopback-blocked")
    assert "127.0.0.1: no reply: packets are dropped" in failed.reason


@pytest.mark.long
@pytest.mark.lab
@needs_torch
def test_only_the_stores_port_dropped_by_a_firewall() -> None:
    """torch itself says 'timed out' here for everything; the kernel's errno must come through."""
    need_a_packet_filter()
    smoke = smoke_behind("tcp dport 29500 drop", job(port=29500, nproc=2))
    failed = failure(smoke)
    assert (failed.name, failed.cause) == ("store", "peer-unreachable")
    assert "packets are dropped" in failed.reason
    assert "ETIMEDOUT" in failed.reason
    assert "connecting to 127.0.0.1:29500" in failed.reason


def test_without_torch_it_says_so_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setattr(sys, "path_importer_cache", {})
    with pytest.raises(EnvironmentFailure, match="needs torch") as caught:
        smoke_of(job())
    assert caught.value.hint


@needs_torch
def test_more_ranks_than_can_be_summed_exactly_are_refused() -> None:
    with pytest.raises(ConfigError, match="1 to 256 ranks"):
        smoke_of(job(nproc=257))


def test_the_parent_never_imports_torch() -> None:
    code = "import sys, holdfast.check.smoke.conduct; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_rank_needs_nothing_but_the_standard_library_and_torch() -> None:
    code = (
        "import sys; before = set(sys.modules); import holdfast.check.smoke.rank\n"
        "print(*{m.partition('.')[0] for m in set(sys.modules) - before} - sys.stdlib_module_names)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["holdfast"]


def test_ranks_inherit_the_jobs_environment_and_a_place_in_it() -> None:
    plan = job(nproc=2, environment={"NCCL_DEBUG": "INFO", "RANK": "7", "OMP_NUM_THREADS": "3"})
    first, second = conduct.rank_environments(plan, endpoint.Endpoint("10.0.0.5", 29500, ""))
    assert first["NCCL_DEBUG"] == "INFO"
    assert first["OMP_NUM_THREADS"] == "3"
    assert (first["RANK"], second["RANK"]) == ("0", "1")
    assert first["MASTER_ADDR"] == second["MASTER_ADDR"] == "10.0.0.5"
    assert first["HOLDFAST_SMOKE_TOKEN"] == second["HOLDFAST_SMOKE_TOKEN"]

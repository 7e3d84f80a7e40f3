"""Real ranks on lab hosts: one walled in and a link cut; all is well; one stopped.

The ranks stay from test to test, as they do from round to round: an import of torch costs seconds.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.analysis.machine import Unread
from holdfast.analysis.nodes.isolation import PairOutcome
from holdfast.analysis.nodes.smoke import SmokeBetween
from holdfast.check.nodes.smoke.coordinate import smoke
from holdfast.check.nodes.smoke.meeting import Ask, SmokeNode
from holdfast.check.nodes.smoke.messages import (
    Replies,
    Requests,
    SmokeEnd,
    SmokeEnded,
    SmokeWarm,
)
from holdfast.drill.lab import Host, Lab
from tests.check.nodes.smoke.member_process import MemberProcess
from tests.drill.lab.fixture import lab_or_skip

pytestmark = [
    pytest.mark.lab,
    pytest.mark.xdist_group("lab-smoke"),
    pytest.mark.skipif(
        importlib.util.find_spec("torch") is None, reason="needs torch: the ranks import it"
    ),
]


class FourHosts:
    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.hosts = lab.hosts(4)
        self.members = {host.name: MemberProcess(lab, host, {}) for host in self.hosts}

    def host(self, name: str) -> Host:
        return next(host for host in self.hosts if host.name == name)

    async def ask(self, name: str, request: Requests) -> Replies:
        if isinstance(request, SmokeEnd):
            return SmokeEnded()
        return await self.members[name].ask(request)

    def smoke(self, ask: Ask, *names: str, seconds: float) -> tuple[SmokeBetween, list[str]]:
        said: list[str] = []
        nodes = [SmokeNode(name, self.host(name).address) for name in names]
        return asyncio.run(smoke(nodes, ask, said.append, seconds=seconds)), said

    def ranks(self, *names: str) -> list[int]:
        """pids of the ranks on these hosts, as seen from outside"""
        networks = {os.readlink(f"/proc/{self.host(name).pid}/ns/net") for name in names}
        folders = (folder for folder in Path("/proc").iterdir() if folder.name.isdigit())
        return [int(folder.name) for folder in folders if _is_rank_in(folder, networks)]


def _is_rank_in(folder: Path, networks: set[str]) -> bool:
    try:
        begun = b"smoke.rank import main" in (folder / "cmdline").read_bytes()
        return begun and os.readlink(folder / "ns/net") in networks
    except OSError:  # it has ended meanwhile
        return False


@pytest.fixture(scope="module")
def four() -> Iterator[FourHosts]:
    with lab_or_skip() as lab:
        yield FourHosts(lab)


@pytest.mark.long
def test_a_host_behind_a_wall_is_bad_and_a_cut_link_is_a_link(four: FourHosts) -> None:
    """Four nodes, so no pair of the first round passes."""
    four.host("b").firewall("ip protocol tcp drop")
    four.lab.link(four.host("a"), four.host("c")).cut()
    try:
        seen, said = four.smoke(four.ask, "a", "b", "c", "d", seconds=3)
    finally:
        four.host("b").firewall()
        four.lab.restore()
    found = seen.isolation
    assert [bad.name for bad in found.bad] == ["b"], said
    assert [(link.first, link.second) for link in found.links] == [("a", "c")], said
    assert found.cleared == ("a", "c", "d")
    assert "timed out" in found.bad[0].why
    assert f"connecting to {four.host('a').address}" in found.links[0].why
    assert seen.group.outcome is PairOutcome.NOT_RUN


def test_healthy_hosts_are_cleared_in_one_round_and_pass_together(four: FourHosts) -> None:
    seen, said = four.smoke(four.ask, "a", "b", "c", "d", seconds=20)
    assert seen.isolation.cleared == ("a", "b", "c", "d")
    assert (seen.isolation.rounds, seen.left_out, seen.backend) == (1, (), "gloo")
    assert seen.group.outcome is PairOutcome.PASSED
    assert seen.group.nodes == ("a", "b", "c", "d")
    speeds = [one.speed for results in seen.rounds for one in results]
    assert all(speed is not None and speed > 1e6 for speed in speeds)
    assert isinstance(seen.diagnostics, Unread)
    assert "all together: 4 nodes" in said


@pytest.mark.long
def test_a_rank_that_is_stopped_is_named_with_its_state(four: FourHosts) -> None:
    """Two nodes: pairs cannot tell which of them it is, but what their ranks say does."""

    async def warm_then_stop(name: str, request: Requests) -> Replies:
        reply = await four.members[name].ask(request)
        if name == "d" and isinstance(request, SmokeWarm):
            for pid in four.ranks("d"):
                os.kill(pid, signal.SIGSTOP)
        return reply

    seen, _ = four.smoke(warm_then_stop, "a", "d", seconds=1)
    assert [one.name for one in seen.isolation.undecided] == ["a", "d"]
    assert "no third node" in seen.isolation.undecided[0].why
    (result,) = seen.rounds[0]
    assert "d: pid" in result.why
    assert "was stopped (state T)" in result.why
    assert four.ranks("a", "d") == []

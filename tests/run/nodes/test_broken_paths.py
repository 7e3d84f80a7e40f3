"""Real connections over paths that really break: what the kernel shows, and what is said of it.

No ranks: sockets of this process stand for theirs, and the scene around them is made.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator

import msgspec
import pytest

from holdfast.analysis.job import suspected_paths
from holdfast.analysis.nodes.pattern import Pair
from holdfast.analysis.scene.node_view import PathProbes
from holdfast.analysis.scene.scene import Scene
from holdfast.drill.lab import Host, Lab
from holdfast.findings import Verdict
from holdfast.nodes.probing.answer import open_listeners, try_paths
from holdfast.nodes.probing.messages import OpenListeners, TriedPaths, TryPaths
from holdfast.nodes.probing.plan import PATH_SECONDS
from holdfast.run.watch.rank_connections import RankConnections
from holdfast.run.watch.verdict import judge
from tests.faults.made_nodes import name_of
from tests.run.node_scenes import on_node, waiting_nodes
from tests.run.scenes import NOW

pytestmark = [pytest.mark.lab, pytest.mark.xdist_group("broken-paths")]

B, C = name_of(0), name_of(1)
MESSAGE = 1 << 18
LONGEST = 40.0
"""seconds until a test gives up; on a machine of its own a verdict takes less than ten"""


class Traffic:
    """Two ranks that exchange messages for ever, as a ring of two does; `reads` false: one of them
    is stopped."""

    def __init__(self, b: Host, c: Host) -> None:
        with c.inside(), socket.create_server((c.address, 0)) as server:
            with b.inside():
                self.b = socket.create_connection(server.getsockname())
            self.c, _ = server.accept()
        self.reads = threading.Event()
        self.reads.set()
        ends = [(self.b, self.c), (self.c, self.b)]
        self._threads = [
            threading.Thread(target=work, args=(one,), daemon=True)
            for one, _ in ends
            for work in (self._send, self._read)
        ]
        for thread in self._threads:
            thread.start()

    def _send(self, end: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                end.sendall(bytes(MESSAGE))
                time.sleep(0.05)

    def _read(self, end: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while end.recv(1 << 16):
                self.reads.wait()

    def close(self) -> None:
        self.reads.set()
        for end in (self.b, self.c):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


@contextlib.contextmanager
def traffic(b: Host, c: Host) -> Iterator[Traffic]:
    made = Traffic(b, c)
    try:
        yield made
    finally:
        made.close()


class Job:
    """Two nodes whose ranks wait since the path broke."""

    def __init__(self, b: Host, c: Host) -> None:
        self.hosts = {B: b, C: c}
        self.lookers = {B: RankConnections(), C: RankConnections()}
        self.probes: PathProbes | None = None
        self.trying: threading.Thread | None = None
        self.look()
        self.since = time.monotonic()

    def look(self) -> dict[str, object]:
        seen: dict[str, object] = {}
        for number, (name, host) in enumerate(self.hosts.items()):
            (other,) = self.hosts.keys() - {name}
            with host.inside():
                seen[name] = self.lookers[name].look(
                    {2 * number: os.getpid()},
                    {self.hosts[other].address: other},
                    time.monotonic(),
                )
        return seen

    def scene(self) -> Scene:
        now = time.monotonic()
        scene = waiting_nodes(now - self.since, nodes=2)
        for name, connections in self.look().items():
            scene = on_node(scene, name, connections=connections)
        probes = self.probes and msgspec.structs.replace(self.probes, at=NOW - now + self.probes.at)
        return msgspec.structs.replace(scene, probes=probes)

    def have_tried(self, pairs: tuple[Pair, ...]) -> None:
        if not pairs or (self.trying and self.trying.is_alive()):
            return
        self.trying = threading.Thread(target=self._try, args=(pairs, time.monotonic()))
        self.trying.start()

    def _try(self, pairs: tuple[Pair, ...], began: float) -> None:
        """As two launchers would: first both listen, then both try."""
        key, opened, barrier = secrets.token_bytes(32), {}, threading.Barrier(2)
        found: list[TriedPaths] = []

        async def one(name: str) -> None:
            loop = asyncio.get_running_loop()
            async with contextlib.AsyncExitStack() as stack:
                asked = OpenListeners(
                    node=name,
                    addresses=(("e0", self.hosts[name].address),),
                    master_port=0,
                    key=key,
                )
                opened[name] = (await open_listeners(asked, stack)).listening.targets
                await loop.run_in_executor(None, barrier.wait)
                others = tuple(to for source, to in pairs if source == name)
                targets = tuple(target for other in others for target in opened[other])
                request = TryPaths(
                    node=name, targets=targets, in_depth=others, key=key, seconds=PATH_SECONDS
                )
                found.append(await try_paths(request))
                await loop.run_in_executor(None, barrier.wait)

        threads = []
        for name, host in self.hosts.items():
            with host.inside():  # a thread stays on the network of its maker
                thread = threading.Thread(target=lambda name=name: asyncio.run(one(name)))
                thread.start()
                threads.append(thread)
        for thread in threads:
            thread.join()
        self.probes = PathProbes(
            at=began,
            reach=tuple(seen for each in found for seen in each.reach),
            sizes=tuple(seen for each in found for seen in each.sizes),
            losses=tuple(seen for each in found for seen in each.losses),
        )

    def watch(self, done: Callable[[Verdict | None, float], bool]) -> Verdict | None:
        """Until `done` says so of a verdict and the seconds since the path broke."""
        try:
            while True:
                scene = self.scene()
                self.have_tried(suspected_paths.find(scene))
                found, waited = judge(scene), time.monotonic() - self.since
                if done(found, waited) or waited > LONGEST:
                    return found
                time.sleep(0.3)
        finally:
            if self.trying:
                self.trying.join()


def said(found: Verdict | None, _: float) -> bool:
    return found is not None


def after(seconds: float) -> Callable[[Verdict | None, float], bool]:
    return lambda found, waited: found is not None or waited >= seconds


def broken(lab: Lab, how: Callable[[Lab, Host, Host, Traffic], object]) -> Verdict | None:
    b, c = lab.hosts(2, mtu=9000)
    with traffic(b, c) as connection:
        job = Job(b, c)
        how(lab, b, c, connection)
        return job.watch(said)


def test_large_packets_vanish_one_way(lab: Lab) -> None:
    found = broken(lab, lambda lab, b, c, _: lab.link(b, c).mtu(1500, to=c))
    assert found is not None
    assert (found.slug, found.paths, found.certain) == ("mtu-black-hole", ((B, C),), True)
    assert "1500 pass" in found.reason


def test_one_direction_is_dropped(lab: Lab) -> None:
    found = broken(lab, lambda lab, b, c, _: lab.link(b, c).drop(to=c))
    assert found is not None
    assert (found.slug, found.paths, found.certain) == ("peer-unreachable", ((B, C),), True)
    assert "one direction is broken" in found.reason


@pytest.mark.long
@pytest.mark.parametrize(
    ("how", "slug", "certain"),
    [
        (lambda lab, b, c, _: lab.link(b, c).drop(), "peer-unreachable", True),
        (lambda lab, b, c, _: c.firewall("meta l4proto tcp reject"), "peer-unreachable", True),
        (lambda lab, b, c, _: c.cut(), "peer-unreachable", True),
        (lambda lab, b, c, _: lab.link(b, c).mtu(1500), "mtu-black-hole", True),
        (lambda lab, b, c, _: lab.link(b, c).loss(30), "packet-loss", False),
    ],
    ids=["drop", "reject", "cut", "mtu", "loss"],
)
def test_a_path_that_breaks_is_named(
    lab: Lab, how: Callable[[Lab, Host, Host, Traffic], object], slug: str, *, certain: bool
) -> None:
    found = broken(lab, how)
    assert found is not None
    assert (found.slug, found.certain) == (slug, certain), found.reason
    assert found.about_hosts == (B, C)
    assert found.ranks == ()


@pytest.mark.long
@pytest.mark.parametrize(
    "how",
    [
        lambda lab, b, c, connection: connection.reads.clear(),
        lambda lab, b, c, _: lab.link(b, c).delay(100),
    ],
    ids=["a rank that does not read", "latency"],
)
def test_nothing_is_said_of_a_path_that_is_well(
    lab: Lab, how: Callable[[Lab, Host, Host, Traffic], object]
) -> None:
    b, c = lab.hosts(2, mtu=9000)
    with traffic(b, c) as connection:
        job = Job(b, c)
        how(lab, b, c, connection)
        found = job.watch(after(15.0))
    assert found is None, found.reason


@pytest.mark.long
def test_a_flap_that_tcp_survives_is_no_verdict(lab: Lab) -> None:
    b, c = lab.hosts(2)
    with traffic(b, c):
        job = Job(b, c)
        lab.link(b, c).drop()
        heals = threading.Timer(5.0, lab.restore)
        heals.start()
        found = job.watch(after(15.0))
        heals.join()
    assert found is None, found.reason

"""Hosts of a lab that probe each other: each has a thread on its network, with an event loop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Coroutine, Iterator, Sequence
from typing import Any, TypeVar

from holdfast.analysis.nodes import (
    Listening,
    PathLoss,
    PathSizes,
    PortKind,
    Reached,
    RouteTo,
    Target,
)
from holdfast.drill.lab import Host
from holdfast.system.paths import losses, probe_listeners, reach, routes, sizes

KEY = os.urandom(32)
PORT = 29500
T = TypeVar("T")


class Member:
    """One host that listens; what it asks of another is asked of all its addresses."""

    def __init__(self, host: Host) -> None:
        self.host, self.name = host, host.name
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._live)
        self._thread.start()
        self._context = probe_listeners(
            host.name,
            [(name, ip) for name, ips in host.addresses.items() for ip in ips],
            PORT,
            key=KEY,
        )
        self.listening: Listening = self.run(self._context.__aenter__())

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    def close(self) -> None:
        self.run(self._context.__aexit__(None, None, None))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)

    def targets(self, kind: PortKind | None = None) -> tuple[Target, ...]:
        return tuple(one for one in self.listening.targets if kind in (None, one.kind))

    def reach(self, *others: Member) -> tuple[Reached, ...]:
        """Both ports of each."""
        targets = [target for other in others for target in other.targets()]
        return self.run(reach(self.name, targets, key=KEY))

    def sizes(self, *others: Member) -> tuple[PathSizes, ...]:
        """To the first address of each, or to all of one."""
        return self.run(sizes(self.name, _measured(others), key=KEY))

    def losses(self, *others: Member) -> tuple[PathLoss, ...]:
        return self.run(losses(self.name, _measured(others), key=KEY))

    def all_at_once(
        self, *others: Member
    ) -> tuple[tuple[Reached, ...], tuple[PathLoss, ...], PathSizes]:
        """Sizes of the first only."""
        targets = _measured(others)

        async def probe() -> tuple[tuple[Reached, ...], tuple[PathLoss, ...], PathSizes]:
            reached, lost, (path,) = await asyncio.gather(
                reach(self.name, [one for other in others for one in other.targets()], key=KEY),
                losses(self.name, targets, key=KEY),
                sizes(self.name, targets[:1], key=KEY),
            )
            return reached, lost, path

        return self.run(probe())

    def routes(self, other: Member) -> tuple[RouteTo, ...]:
        async def ask() -> tuple[RouteTo, ...]:
            return routes(self.name, other.targets())

        return self.run(ask())

    def _live(self) -> None:
        with self.host.inside(), contextlib.closing(self._loop):
            self._loop.run_forever()


def _measured(others: Sequence[Member]) -> list[Target]:
    each = [other.targets(PortKind.EPHEMERAL) for other in others]
    return [target for targets in each for target in (targets[:1] if len(each) > 1 else targets)]


@contextlib.contextmanager
def members(hosts: Sequence[Host]) -> Iterator[list[Member]]:
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(contextlib.closing(Member(host))) for host in hosts]

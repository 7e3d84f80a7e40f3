"""Which of the other nodes' machines answer: asked once while all is well, and when the
coordinator is lost, so that a node can say who is still with it.

In a thread of its own: the agent's may not block, least of all when its ranks must end at once.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Mapping, Sequence

from holdfast.run.nodes.link.machine_probe import kernel_answers

AT_ONCE = 64
MOST_ASKED = 32
"""nodes: when the network is sick every node of a large job asks, and more would make it sicker"""


class Neighbours:
    def __init__(self, nodes: Mapping[str, Sequence[str]], port: int) -> None:
        """`nodes`: name -> addresses, of the others. `port`: one that no firewall between them need
        block; nothing listens there on most of them, and a machine that is up refuses it."""
        chosen = random.sample(sorted(nodes), min(MOST_ASKED, len(nodes)))
        self._all, self._port = dict(nodes), port
        self._nodes = {node: nodes[node] for node in chosen}
        self._before: dict[str, bool] = {}
        self._now: dict[str, bool] = {}
        self._thread: threading.Thread | None = None

    def ask_while_well(self, but: str) -> None:
        """All but one, the coordinator's, whose port is served."""
        self._nodes |= {but: self._all[but]} if but in self._all else {}
        self._start(self._before, [node for node in self._nodes if node != but])

    def ask(self) -> None:
        self._now = {}
        self._start(self._now, list(self._nodes))

    def answers(self, seconds: float) -> dict[str, bool | None]:
        """Of each node; waits so long for those that have not answered yet. Silence counts only
        where the same question was answered before."""
        if self._thread:
            self._thread.join(seconds)
        return {
            node: True if self._now.get(node) else False if self._before.get(node) else None
            for node in self._nodes
        }

    def _start(self, found: dict[str, bool], nodes: Sequence[str]) -> None:
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._ask(found, nodes)), name="holdfast-ask", daemon=True
        )
        self._thread.start()

    async def _ask(self, found: dict[str, bool], nodes: Sequence[str]) -> None:
        room = asyncio.Semaphore(AT_ONCE)

        async def one(node: str) -> None:
            async with room:
                tries = [kernel_answers(address, self._port) for address in self._nodes[node]]
                found[node] = any(await asyncio.gather(*tries))

        await asyncio.gather(*map(one, nodes))

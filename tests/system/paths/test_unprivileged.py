"""All probes as a common user."""

from __future__ import annotations

import pytest

from tests.system.sockets import BECOME_NOBODY, needs_root, run_python

CODE = """
import asyncio
from holdfast.analysis.nodes import PortKind
from holdfast.system.paths import boot_id, losses, probe_listeners, reach, routes, sizes
from holdfast.system.paths.neighbours import silent_neighbours
"""
PROBE = """
async def main():
    key = b"k" * 32
    async with probe_listeners("b", [("lo", "127.0.0.1")], None, key=key) as up:
        (reached,) = await reach("a", up.targets, key=key)
        (size,) = await sizes("a", up.targets, key=key)
        (loss,) = await losses("a", up.targets, key=key, count=2)
        (way,) = routes("a", up.targets)
    print(reached.outcome.value, all(one.arrived for one in size.datagrams + size.messages),
          size.messages[-1].acknowledged, loss.arrived, way.interface, len(boot_id()),
          "192.0.2.1" in silent_neighbours(), os.getuid())

asyncio.run(main())
"""


@pytest.mark.lab
def test_no_probe_needs_root() -> None:
    needs_root()
    assert run_python(CODE + BECOME_NOBODY + PROBE).split() == [
        "ok", "True", "262144", "2", "lo", "36", "False", "65534",
    ]  # fmt: skip

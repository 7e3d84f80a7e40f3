"""TORCHELASTIC_USE_AGENT_STORE is about one address: the store that the launcher serves.

torch reads it as a flag: with it no rank serves any store, not even one at an address that the
script chose itself (a MASTER_PORT of its own, `tcp://…`). Its ranks then wait for a store that
never comes. So the flag is answered for the address that is asked for; the variable stays as it is.
"""

from __future__ import annotations

import functools
import os
import socket
import sys
from collections.abc import Callable, Mapping
from typing import Any

from holdfast.rank import own_page

PROBE_SECONDS = 0.5

_given_port = ""


def remember(port: str) -> None:
    """The port that the launcher serves."""
    global _given_port  # noqa: PLW0603 - one process has one launcher
    _given_port = port


def is_agents(port: object) -> bool:
    """Whether the launcher serves the store at that port."""
    return os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True" and str(port) == _given_port


def follow() -> None:
    # torch.distributed has a function of the module's name.
    rendezvous: Any = sys.modules["torch.distributed.rendezvous"]
    agent_serves: Callable[[], bool] = rendezvous._torchelastic_use_agent_store  # noqa: SLF001

    @functools.wraps(agent_serves)
    def agent_serves_this() -> bool:
        answer = agent_serves()
        try:
            caller = sys._getframe(1)  # noqa: SLF001
            if answer and _given_port and caller.f_code.co_name == "_create_c10d_store":
                return not _rank_must_serve(caller.f_locals)
        except Exception as problem:  # noqa: BLE001
            own_page.complain(problem)
        return answer

    rendezvous._torchelastic_use_agent_store = agent_serves_this  # noqa: SLF001


def _rank_must_serve(asked: Mapping[str, Any]) -> bool:
    """Rank 0, at an address where nothing listens yet: the script may have started a store there,
    or a launcher of its own (torch.distributed.launcher) that serves one."""
    host, port, rank = asked["hostname"], asked["port"], asked["rank"]
    if rank != 0 or is_agents(port):
        return False
    try:
        with socket.create_connection((host, port), PROBE_SECONDS):
            return False
    except OSError:
        return True

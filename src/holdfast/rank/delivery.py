"""How the hook gets into a rank without an edit of its script (the launcher's side).

A folder at the head of PYTHONPATH holds a sitecustomize, which Python imports before the
script; a few variables say where to write. Both are taken back inside the rank, so that
what the rank starts inherits nothing.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

PAGE = "HOLDFAST_PAGE"
WORDS = "HOLDFAST_WORDS"
SOCKET = "HOLDFAST_SOCKET"
LAUNCHER = "HOLDFAST_LAUNCHER"
GRACE = "HOLDFAST_GRACE"
"""seconds between SIGTERM and SIGKILL; stays in the environment, it is no secret"""
EVENTS = "HOLDFAST_EVENTS"
SAVED = "HOLDFAST_SAVED"
"""the newest checkpoint that an earlier attempt of the run has saved; unset when there is none"""
NODES = "HOLDFAST_NODES"
"""'2:4' where the number of nodes, and so of ranks, may change from attempt to attempt"""
VERIFY = "HOLDFAST_VERIFY_REPLICAS"
"""every how many steps a rank reports a digest of its parameters; unset for never"""
PLACE = "HOLDFAST_PLACE"
"""rank, world size and port of our store, for what a wrapper starts: a launcher in between gives
others"""

TIMING = frozenset({"TORCH_NCCL_ENABLE_TIMING", "NCCL_ENABLE_TIMING"})
"""torch then records when a GPU starts a collective, for one more CUDA event each
(bench/nccl_timing.py): only so can a GPU that never comes be told from those that wait for it"""

_HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGE = os.path.dirname(_HERE)
SITE = os.path.join(_HERE, "site")
SHIM = os.path.join(_HERE, "shim.py")


def environment(
    base: Mapping[str, str],
    *,
    page: str,
    words: str,
    socket: str,
    launcher_pid: int,
    events: str = "",
) -> dict[str, str]:
    """A rank's environment: `base`, and what the hook needs unless HOLDFAST=off."""
    made = dict(base)
    if is_off(base):
        return made
    before = base.get("PYTHONPATH")
    made["PYTHONPATH"] = f"{SITE}{os.pathsep}{before}" if before else SITE
    made[PAGE] = page
    made[WORDS] = words
    made[SOCKET] = socket
    made[LAUNCHER] = str(launcher_pid)
    made[EVENTS] = events
    made[PLACE] = "/".join(base.get(name, "") for name in ("RANK", "WORLD_SIZE", "MASTER_PORT"))
    if not TIMING & base.keys():
        made["TORCH_NCCL_ENABLE_TIMING"] = "1"
    return made


def command(argv: list[str], *, lease: str = "") -> list[str]:
    """The same command, started so that it dies with this process; `lease` is the page of what it
    must not outlive either.

    Isolated mode: the shim must work whatever PYTHONPATH, PYTHONSTARTUP or a module of the
    same name beside it say.
    """
    return [sys.executable, "-I", "-S", SHIM, str(os.getpid()), lease, *argv]


def crash_file(words: str) -> str:
    """Where faulthandler writes the stacks of a rank that crashes; empty when it did not."""
    return f"{words}.crash"


def member_file(path: str, number: int) -> str:
    """The same for a process that the rank started, by its number in the group that those form."""
    return f"{path}.{number}"


def is_off(environment: Mapping[str, str]) -> bool:
    return environment.get("HOLDFAST", "").strip().lower() == "off"

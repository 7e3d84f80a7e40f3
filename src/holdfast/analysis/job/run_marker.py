"""holdfast-run.json: whose folder this is, and of which node where a run has several. Pure.

Every node of a run keeps a folder of its own. On disks of their own all have the run's id for a
name; on a shared disk only the coordinator's has, and the others add their node's name to it.
"""

from __future__ import annotations

import contextlib

import msgspec

SCHEMA = "holdfast/1"


class RunMarker(msgspec.Struct, frozen=True, kw_only=True):
    schema: str = SCHEMA
    run: str = ""
    """the folder's own name: a renamed copy is the user's"""
    started: float = 0.0
    of: str = ""
    """the id of the run, the same on all of its nodes; '' on one machine: `run`"""
    node: str = ""
    """what the nodes of the run call this one; '' on one machine"""
    coordinates: bool = False
    """its launcher decided for all nodes when the run began"""

    @property
    def run_id(self) -> str:
        return self.of or self.run


def decode(content: bytes) -> RunMarker | None:
    """None for what is none."""
    with contextlib.suppress(ValueError, RecursionError):  # msgspec's errors are ValueErrors
        return msgspec.json.decode(content, type=RunMarker)
    return None

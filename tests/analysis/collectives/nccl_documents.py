"""Documents of NCCL's flight recorder, as torch 2.11 wrote them on an H200, made by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.analysis.collectives.recorder import parse
from holdfast.analysis.scene.scene import Recorder

WALL = 1.7e9
"""when the script asked for the first of them; each one came a tenth of a second later"""
MEMBERS: Mapping[str, Sequence[int]] = {"0": (0, 1, 2, 3)}


class Written:
    """What one rank recorded, oldest first."""

    def __init__(
        self,
        members: Mapping[str, Sequence[int]] = MEMBERS,
        *,
        timed: bool = True,
        backend: str = "nccl",
    ):
        self.members, self.timed, self.backend = members, timed, backend
        self.entries: list[dict[str, Any]] = []
        self.sequences: dict[str, int] = {}
        self.messages: dict[str, int] = {}

    def collective(self, state: str, op: str = "all_reduce", *, group: str = "0") -> Written:
        self.sequences[group] = self.sequences.get(group, 0) + 1
        self._add(group, op, state, len(self.entries))
        return self

    def past(self, count: int, *, group: str = "0") -> Written:
        for _ in range(count):
            self.collective("retired", group=group)
        return self

    def batch(self, state: str, *messages: str, group: str = "0") -> Written:
        """Posted together: only the entry behind them has the state of all."""
        self.messages[group] = self.messages.get(group, 0) + 1
        for message in messages:
            self._add(group, message, "scheduled", len(self.entries), is_p2p=True)
        last = self.entries[-1]["op_id"]
        self._add(group, "coalesced", state, last)
        return self

    def message(self, state: str, message: str, *, group: str = "0") -> Written:
        """Posted alone."""
        self.messages[group] = self.messages.get(group, 0) + 1
        self._add(group, message, state, len(self.entries), is_p2p=True)
        return self

    def _add(self, group: str, op: str, state: str, op_id: int, *, is_p2p: bool = False) -> None:
        created = int((WALL + len(self.entries) * 0.1) * 1e9)
        over, begun = state in ("retired", "completed"), self.timed and state != "scheduled"
        if not self.timed and state == "started":
            state = "scheduled"
        self.entries.append(
            {
                "process_group": [group, "a group"],
                "collective_seq_id": self.sequences.get(group, 0),
                "p2p_seq_id": self.messages.get(group, 0),
                "op_id": op_id,
                "profiling_name": f"{self.backend}:{op}",
                "input_sizes": [[4]],
                "input_dtypes": ["Float"],
                "state": "completed" if state == "retired" else state,
                "retired": state == "retired",
                "is_p2p": is_p2p,
                "time_created_ns": created,
                "time_discovered_started_ns": created + 10**7 if begun else 0,
                "time_discovered_completed_ns": created + 2 * 10**7 if over else 0,
                "timeout_ms": 600_000,
            }
        )

    def document(self) -> bytes:
        config = {
            name: {"name": name, "desc": "", "ranks": str(list(ranks))}
            for name, ranks in self.members.items()
        }
        return json.dumps({"entries": self.entries, "pg_config": config}).encode()

    def recorder(self) -> Recorder:
        return parse(self.document())

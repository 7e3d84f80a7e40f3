"""Flight-recorder dumps as torch writes them, made by hand."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Mapping
from typing import Any

from holdfast.analysis.collectives import dump_file
from holdfast.analysis.scene.scene import Recorder

START = 1_700_000_000
LINES = [
    {
        "name": "all_reduce",
        "filename": "/env/lib/python3.12/site-packages/torch/distributed/distributed_c10d.py",
        "line": 3068,
    },
    {"name": "step", "filename": "/home/user/train.py", "line": 30},
]


def entry(sequence: int, group: str = "0", *, done: bool = True, **changes: Any) -> dict[str, Any]:
    return {
        "frames": LINES,
        "record_id": sequence,
        "pg_id": 0,
        "process_group": (group, "default_pg"),
        "collective_seq_id": sequence,
        "p2p_seq_id": 0,
        "op_id": sequence,
        "profiling_name": "nccl:all_reduce",
        "time_created_ns": (START + sequence) * 1_000_000_000,
        "input_sizes": [[4]],
        "input_dtypes": ["Float"],
        "state": "completed" if done else "scheduled",
        "retired": done,
        "timeout_ms": 600_000,
        "is_p2p": False,
        **changes,
    }


def message(
    sequence: int, name: str, group: str = "0", *, done: bool = True, **changes: Any
) -> dict[str, Any]:
    return entry(
        sequence,
        group,
        done=done,
        profiling_name=f"nccl:{name}",
        is_p2p=True,
        p2p_seq_id=sequence,
        collective_seq_id=0,
        **changes,
    )


def document(
    *entries: dict[str, Any], groups: Mapping[str, Iterable[int]] | None = None
) -> dict[str, Any]:
    return {
        "version": "2.10",
        "comm_lib_version": "2.28.9",
        "pg_config": {
            name: {"name": name, "desc": "", "ranks": str(list(ranks))}
            for name, ranks in (groups or {}).items()
        },
        "pg_status": {},
        "entries": list(entries),
    }


def recorder(
    *entries: dict[str, Any], groups: Mapping[str, Iterable[int]] | None = None
) -> Recorder:
    return dump_file.read(pickle.dumps(document(*entries, groups=groups), protocol=2))


def up_to(last: int, group: str = "0", *, waits: bool = False, **changes: Any) -> list[Any]:
    """Entries 1 to `last`, the last of them still open when the rank waits."""
    return [entry(n, group, done=not (waits and n == last), **changes) for n in range(1, last + 1)]

"""How much memory is left, from trees as other kernels have them."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.checkpoint.memory_room import memory_room

MiB = 1 << 20


def a_machine(root: Path, version: int, levels: dict[str, dict[str, str]]) -> str:
    files = {"proc/meminfo": "MemTotal: 9000000 kB\nMemAvailable:    8192 kB\n"}
    if version == 2:
        files["proc/self/cgroup"] = "0::/job/rank\n"
        files["proc/self/mountinfo"] = "30 23 0:26 / /cg rw - cgroup2 cgroup2 rw\n"
    else:
        files["proc/self/cgroup"] = "4:memory:/job/rank\n"
        files["proc/self/mountinfo"] = "30 23 0:26 / /cg rw - cgroup cgroup rw,memory\n"
    for folder, content in levels.items():
        files |= {f"cg/{folder}/{name}": text for name, text in content.items()}
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (root / "cg/job/rank").mkdir(parents=True, exist_ok=True)
    return str(root)


def v2(limit: str, used: int, cache: int) -> dict[str, str]:
    return {"memory.max": limit, "memory.current": str(used),
            "memory.stat": f"inactive_file {cache}\n"}  # fmt: skip


def v1(limit: int, used: int, cache: int) -> dict[str, str]:
    return {"memory.limit_in_bytes": str(limit), "memory.usage_in_bytes": str(used),
            "memory.stat": f"total_inactive_file {cache}\n"}  # fmt: skip


@pytest.mark.parametrize(
    ("version", "levels", "room"),
    [
        (2, {}, 8 * MiB),
        (2, {"job/rank": v2("max", 3 * MiB, 0)}, 8 * MiB),
        (2, {"job/rank": v2(str(4 * MiB), 3 * MiB, 0)}, 1 * MiB),
        (2, {"job/rank": v2(str(4 * MiB), 3 * MiB, 2 * MiB)}, 3 * MiB),
        (2, {"job/rank": v2("max", 3 * MiB, 0), "job": v2(str(5 * MiB), 5 * MiB, 0)}, 0),
        (1, {"job/rank": v1(4 * MiB, 3 * MiB, 1 * MiB)}, 2 * MiB),
        (1, {"job/rank": v1(1 << 62, 3 * MiB, 0)}, 8 * MiB),
    ],
)
def test_the_tightest_limit_counts(
    tmp_path: Path, version: int, levels: dict[str, dict[str, str]], room: int
) -> None:
    assert memory_room(a_machine(tmp_path, version, levels)) == room


def test_this_machine_has_some() -> None:
    assert (memory_room() or 0) > 0

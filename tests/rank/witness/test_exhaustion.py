"""How much is taken: enough for the limit, and never what the machine needs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from holdfast.rank.witness import exhaustion


@given(limit=st.none() | st.integers(1, 1 << 40), available=st.integers(0, 1 << 40))
def test_the_machine_keeps_half_of_what_it_has(limit: int | None, available: int) -> None:
    taken = exhaustion.bytes_to_take(limit, available)
    assert taken <= available // 2
    if limit is None:
        assert taken <= exhaustion.WITHOUT_LIMIT
    elif available > 2 * (limit + exhaustion.BEYOND_LIMIT):
        assert taken > limit


def test_the_smallest_limit_above_a_process_is_its_own(tmp_path: Path) -> None:
    two = "0::/job/rank\n"
    for number, (told, files, expected) in enumerate(
        [
            (two, {"job/memory.max": "1000", "job/rank/memory.max": "max"}, 1000),
            (two, {"job/memory.max": "1000", "job/rank/memory.max": "10"}, 10),
            (two, {"job/memory.max": "max"}, None),
            ("3:memory:/job\n", {"memory/job/memory.limit_in_bytes": "77"}, 77),
            ("3:memory:/\n", {"memory/memory.limit_in_bytes": str(2**63 - 4096)}, None),
            ("3:cpu:/job\n", {"cpu/job/memory.max": "5"}, None),
            ("", {}, None),
        ]
    ):
        root = tmp_path / str(number)
        root.mkdir()
        (root / "own").write_text(told)
        for name, text in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        assert exhaustion.memory_limit(str(root), str(root / "own")) == expected, (told, files)


PROGRAM = """
import errno, resource
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
from holdfast.rank.witness import exhaustion
for take in (exhaustion.open_files, lambda: open("/dev/null")):
    try:
        take()
    except OSError as problem:
        print(problem.errno == errno.EMFILE)
"""


def test_it_raises_when_no_file_can_be_opened_and_none_can_be_afterwards() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False
    )
    assert done.stdout == "True\nTrue\n", done.stderr

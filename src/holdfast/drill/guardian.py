"""A process that outlives the drill for a moment: it ends what the drill leaves if it is killed.

    python -m holdfast.drill.guardian FOLDER

Whatever launcher a job has, its processes carry a mark; they are ended when the pipe from the drill
closes, which the kernel does for a drill that was killed. Short names of its folders go as well.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from holdfast.drill import marked_processes
from holdfast.drill.short_path import remove_links_into


@contextlib.contextmanager
def watching(folder: Path) -> Iterator[None]:
    process = subprocess.Popen(
        [sys.executable, "-m", "holdfast.drill.guardian", str(folder)],
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        start_new_session=True,
        env={k: v for k, v in os.environ.items() if k != marked_processes.MARK},
    )  # fmt: skip
    try:
        yield
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(60)


def main() -> None:
    sys.stdin.buffer.read()
    marked_processes.end(sys.argv[1])
    remove_links_into(sys.argv[1])


if __name__ == "__main__":
    main()

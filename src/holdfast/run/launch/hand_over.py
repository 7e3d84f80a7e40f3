"""Output of what outlives a job that ended well: a TensorBoard is left alone, and prints on.

Its next line would end it by SIGPIPE once nothing reads it. The real stdout would not do: whatever
waits for the end of our output (`| tee`, a CI job) would then wait for the TensorBoard.
"""

from __future__ import annotations

import contextlib
import os
import subprocess


def keep_reading(source: int, log: str | None) -> None:
    """Carry on into this log, or into nothing, until no process can write to it any more."""
    os.set_blocking(source, True)
    with (
        contextlib.suppress(OSError),
        open(log or os.devnull, "ab") as into,
        open(os.devnull, "wb") as nothing,
    ):
        subprocess.Popen(
            ["/bin/cat"], stdin=source, stdout=into, stderr=nothing, cwd="/", env={},
            start_new_session=True,
        )  # fmt: skip

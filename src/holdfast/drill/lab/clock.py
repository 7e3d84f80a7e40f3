"""A host's own wall clock: time namespaces shift only clocks that cannot be set, so a small
library is loaded into the host's processes."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from holdfast.drill.lab.errors import LabUnavailableError

OFFSET = "WALL_CLOCK_OFFSET"
SOURCE = Path(__file__).with_name("wall_clock.c")


def build_wall_clock(folder: Path) -> dict[str, str]:
    """Builds it in that folder of a host, seen from outside; the environment of its processes."""
    if not (compiler := shutil.which("cc")):
        raise LabUnavailableError("a clock of a host's own needs a C compiler")
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-O1", "-o", folder / "wall_clock.so", SOURCE, "-ldl"],
        # what the compiler leaves if it is killed goes with the host
        env={**os.environ, "TMPDIR": str(folder)},
        check=True, timeout=60,
    )  # fmt: skip
    (folder / "offset").write_bytes(bytes(8))
    return {"LD_PRELOAD": "/run/lab/wall_clock.so", OFFSET: "/run/lab/offset"}

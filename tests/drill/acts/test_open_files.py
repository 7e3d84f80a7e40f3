"""A real limit on open files, set from outside."""

from __future__ import annotations

import errno
import resource
from pathlib import Path

from holdfast.analysis.drill.host_acts import LimitOpenFiles
from holdfast.drill.acts.registry import carrier_of
from tests.drill.acts.stand_in import SECONDS, a_stage, gate_program, started

OPEN = gate_program(
    "try:\n    open('/dev/null')\nexcept OSError as problem:\n    sys.exit(problem.errno)"
)


def test_the_next_file_cannot_be_opened(tmp_path: Path) -> None:
    stage, carrier, act = a_stage(tmp_path), carrier_of(LimitOpenFiles()), LimitOpenFiles()
    carrier.prepare(act, stage)
    ours = resource.getrlimit(resource.RLIMIT_NOFILE)
    with started(stage, OPEN) as rank:
        carrier.inject(act, stage)
        assert rank.wait(SECONDS) == errno.EMFILE
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == ours

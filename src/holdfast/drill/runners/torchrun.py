"""torchrun: what it says of ranks is on its screen, once it has ended them."""

from __future__ import annotations

import re
import sys

from holdfast.analysis.drill.outcome import Spoken
from holdfast.drill.layout import JobFolder
from holdfast.drill.runners import screens
from holdfast.drill.runners.runner import HeardOfRunner, ToStart

NAMES_A_RANK = re.compile(r"local_rank: (\d+) \(pid: (\d+)\)")
"""`failed (exitcode: -9) local_rank: 2 (pid: 4711) of binary: …`"""


class Torchrun:
    name = "torchrun"

    def command(self, start: ToStart) -> list[str]:
        return [
            sys.executable, "-m", "torch.distributed.run", *self.meets(start), *start.restarts,
            *start.options, *start.script,
        ]  # fmt: skip

    def meets(self, start: ToStart) -> list[str]:
        """Alone, on a port that is free, unless it was told where."""
        told = start.has("--nnodes", "--master-port", "--rdzv-endpoint", "--standalone")
        return [] if told else ["--standalone"]

    def heard(self, folder: JobFolder) -> HeardOfRunner:
        return HeardOfRunner(spoken=tuple(
            Spoken(t=line.t, kind="line", ranks=(int(found[1]),), reason=line.text)
            for line in screens.lines(folder) if (found := NAMES_A_RANK.search(line.text))
        ))  # fmt: skip


RUNNER = Torchrun()

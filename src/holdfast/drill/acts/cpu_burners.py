"""Other programs use the cores that the job needs."""

from __future__ import annotations

import os
import subprocess
import sys

from holdfast.analysis.drill.host_acts import BurnCpu
from holdfast.drill.acts.registry import Carrier, carries_out
from holdfast.drill.stage import Stage

# Ends with the pipe from us, by SIGKILL too.
_BURNER = """
import os, sys, threading
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
while True:
    pass
"""


@carries_out(BurnCpu)
class BurnCpuCarrier(Carrier):
    def inject(self, act: BurnCpu, stage: Stage) -> None:
        stage.afterwards(self._end)
        self.burners = [
            subprocess.Popen(
                [sys.executable, "-c", _BURNER], stdin=subprocess.PIPE, start_new_session=True
            )
            for _ in range(act.per_core * len(os.sched_getaffinity(0)))
        ]
        stage.release()

    def lift(self, act: BurnCpu, stage: Stage) -> None:  # noqa: ARG002
        self._end()

    def _end(self) -> None:
        while self.burners:
            burner = self.burners.pop()
            burner.kill()
            burner.communicate()

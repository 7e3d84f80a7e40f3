"""Whether the kernel's OOM killer ended a rank: its log, and the cgroup's counter. Pure."""

from __future__ import annotations

import re
import signal

from holdfast.analysis.job import phrases
from holdfast.analysis.scene.exits import Ending
from holdfast.analysis.scene.scene import Scene
from holdfast.findings import Evidence


def of_kill(scene: Scene, ending: Ending) -> list[Evidence]:
    """What shows that this SIGKILL came from the kernel's OOM killer; empty when nothing does."""
    if ending.signal != signal.SIGKILL:
        return []
    named = re.compile(rf"Killed process {ending.view.pid}\b")
    found = phrases.kernel_lines(scene, named)
    if scene.oom_kills > 0:
        found.append(Evidence(quote=f"oom_kill {scene.oom_kills} since the start", source="cgroup"))
    return found

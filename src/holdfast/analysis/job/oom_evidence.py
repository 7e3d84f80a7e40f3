"""Whether the kernel's OOM killer ended a rank: its log, and the cgroup's counter. Pure."""

from __future__ import annotations

import signal

from holdfast.analysis.job import phrases
from holdfast.analysis.scene import surroundings
from holdfast.analysis.scene.exits import Ending
from holdfast.analysis.scene.scene import Scene
from holdfast.findings import Evidence


def of_kill(scene: Scene, ending: Ending) -> list[Evidence]:
    """What shows that this SIGKILL came from the kernel's OOM killer; empty when nothing does."""
    if ending.signal != signal.SIGKILL:
        return []
    found = phrases.kernel_lines(scene, [ending.rank], lambda pids: rf"Killed process ({pids})\b")
    kills = surroundings.of_rank(scene, ending.rank).oom_kills
    if kills > 0:
        found.append(Evidence(quote=f"oom_kill {kills} since the start", source="cgroup"))
    return found

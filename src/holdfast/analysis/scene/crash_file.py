"""What faulthandler wrote when a process crashed: the Python line it was in. Pure."""

from __future__ import annotations

import re

from holdfast.analysis.scene.scene import Frame, Stack

THREAD = re.compile(
    r"(Current thread|Thread) 0x([0-9a-f]{1,16})(?: \[(.*)\])? \(most recent call first\):?"
)
FRAME = re.compile(r'\s*File "(.*)", line (\d{1,9}|\?\?\?)(?: in (.*))?')
_OURS = "/holdfast/rank/"
"""the heartbeat thread of the rank's hook is listed too"""


def frame(line: str) -> Frame | None:
    found = FRAME.fullmatch(line)
    if found is None:
        return None
    number = int(found[2]) if found[2].isdigit() else 0
    return Frame(function=found[3] or "", file=found[1], line=number)


def parse(text: str) -> Stack | None:
    """The thread that crashed, or, where that one runs no Python (a thread of Gloo, NCCL or
    autograd), the main thread: faulthandler lists the newest first."""
    threads: list[tuple[bool, list[Frame]]] = []
    for line in text.splitlines():
        if head := THREAD.fullmatch(line):
            threads.append((head[1].startswith("Current"), []))
        elif threads and (found := frame(line)) and _OURS not in found.file:
            threads[-1][1].append(found)
    shown = [(current, frames) for current, frames in threads if frames]
    if not shown:
        return None
    frames = next((frames for current, frames in shown if current), shown[-1][1])
    return Stack(frames=tuple(frames), active=False, holds_gil=False)

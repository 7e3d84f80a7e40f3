"""The exception inside an exception: what a DataLoader worker raised, a process that a rank
spawned, or a rank that saved. Pure.

torch raises it again in the process that waited, with the whole traceback of the other one as its
message: the point of it is at the end.
"""

from __future__ import annotations

import re

import msgspec

from holdfast.analysis.checkpoints import torch_advice
from holdfast.analysis.collectives import stacks
from holdfast.analysis.scene.scene import Frame

_WRAPPED = re.compile(
    r"Caught \w+ (?P<inside>in [^\n]{1,80})\.\s*Original Traceback \(most recent call last\)"
    r"|CheckpointException ranks:.*?Traceback \(most recent call last\): \(RANK (?P<rank>\d+)\)"
    r"|-- Process (?P<process>\d+) terminated with the following error:\s*Traceback \(most recent",
    re.DOTALL,
)
_NEXT = re.compile(r"^Traceback \(most recent call last\): \(RANK \d+\)", re.MULTILINE)
"""DCP lists the failures of several ranks one after the other"""
_FRAME = re.compile(
    r'^ *File "(?P<file>[^"]+)", line (?P<line>\d+)(?:, in (?P<function>.+))?$', re.M
)
# The lines of code under a frame are indented.
_RAISED = re.compile(r"^(?P<kind>(?:\w+\.)*[A-Za-z_]\w*)(?:: (?P<text>.*))?$", re.MULTILINE)


class InnerException(msgspec.Struct, frozen=True, kw_only=True):
    kind: str
    text: str
    """the first line of its message"""
    where: str
    """'in __getitem__() at data.py:31': the innermost line of the user's own code; '' unknown"""
    file: str
    """the name of the file in which it was raised; '' unknown"""
    inside: str
    """'in DataLoader worker process 1', 'in spawned process 1', 'as rank 3 saved or loaded a
    checkpoint'"""

    def words(self) -> str:
        """'IndexError: index 5 is out of range in __getitem__() at data.py:31, in DataLoader …'"""
        said = f"{self.kind}: {self.text}" if self.text else self.kind
        where = f" {self.where}" if self.where else ""
        return f"{said}{where}, {self.inside}"


def find(message: str) -> InnerException | None:
    """From the message of the exception around it; None where there is none, or it is cut off."""
    wrapped = _WRAPPED.search(message)
    if wrapped is None:
        return None
    told = message[wrapped.end() :]
    if following := _NEXT.search(told):
        told = told[: following.start()]
    frames = list(_FRAME.finditer(told))
    last = _RAISED.search(told, frames[-1].end() if frames else 0)
    if last is None:
        return None
    innermost_first = tuple(
        Frame(function=f["function"] or "", file=f["file"], line=int(f["line"]))
        for f in reversed(frames)
    )
    return InnerException(
        kind=last["kind"],
        text=torch_advice.without(told[last.start("text") :]).partition("\n")[0].strip()
        if last["text"]
        else "",
        where=stacks.raised_at(innermost_first),
        file=frames[-1]["file"].rpartition("/")[2] if frames else "",
        inside=_inside(wrapped),
    )


def _inside(wrapped: re.Match[str]) -> str:
    if wrapped["process"]:
        return f"in spawned process {wrapped['process']}"
    return wrapped["inside"] or f"as rank {wrapped['rank']} saved or loaded a checkpoint"

"""Launches of a script, as another file of the same lint would hold them."""

from __future__ import annotations

from holdfast.analysis.source.source import Flag, Launch, ShellWord
from holdfast.findings import Place

AT = Place(file="run.sh", line=3, column=1)


def launched(kind: str, *, given: str = "", **flags: str) -> tuple[Launch, ...]:
    """`launched("torchrun", max_restarts="3", given="--resume")`"""
    return (
        Launch(
            kind=kind,
            flags=tuple(
                Flag(name=name.replace("_", "-"), value=value, place=AT)
                for name, value in flags.items()
            ),
            place=AT,
            script="train.py",
            script_arguments=tuple(ShellWord(text=word, place=AT) for word in given.split()),
        ),
    )

"""Scripts in which ranks diverge: `#!` marks what is surely missed, `#?` what is likely to be."""

from __future__ import annotations

from holdfast.analysis.source.ranks import missed_collectives
from tests.analysis.source.made_sources import python

HEAD = "import sys, os, torch\nimport torch.distributed as dist\nrank = dist.get_rank()\n"


def scripts(text: str) -> list[str]:
    return text.strip().split("\n---\n")


def check(script: str) -> None:
    source = python(HEAD + script)
    assert source.program is not None
    found = missed_collectives.missed_collectives(source.program)
    lines = source.program.text.splitlines()
    marked = {
        (number, "#!" in line)
        for number, line in enumerate(lines, 1)
        if "#!" in line or "#?" in line
    }
    assert {(getattr(one.at, "lineno", 0), one.sure) for one in found} == marked, found

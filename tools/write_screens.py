"""Bring what the documents show of `lint`, `env` and `explain` up to date.

A console block is a session: `$ cat FILE` shows a file, which is written to an empty folder;
`$ holdfast lint …`, `$ holdfast explain …` and `$ NAME=value holdfast env …` are run there, and
their output is shown below.
A line `…` stands for lines left out: such a screen stays while the rest is still said in this
order, and is written out in full where it is not, to be cut again by hand. `make docs` writes; a
test compares.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from holdfast.cli import main as holdfast

ROOT = Path(__file__).parent.parent
PAGES = tuple(ROOT / name for name in ("docs/lint.md", "docs/settings.md", "docs/explain.md"))
BLOCK = re.compile(r"(?<=^```console\n).*?(?=^```$)", re.MULTILINE | re.DOTALL)
STEP = re.compile(r"^\$ (?P<typed>.*)\n(?P<shown>(?:(?!\$ ).*\n)*)", re.MULTILINE)
LEFT_OUT = re.compile(r"^…$", re.MULTILINE)
OPTIONS = {"lint": (), "explain": (), "env": ("--deadline", "30")}
"""a loaded machine must not look like one that hangs"""
KEPT = ("HOME", "LANG", "LC_ALL", "PATH")
"""of the environment: settings of the outer job do not belong on a screen"""


def refreshed(page: str) -> str:
    return BLOCK.sub(lambda found: _session(found.group()), page)


def screens(page: str) -> int:
    """How many screens of ours it has."""
    found = (step for block in BLOCK.findall(page) for step in STEP.finditer(block))
    return sum(1 for step in found if _verb(step["typed"]) and step["shown"].strip())


def _session(block: str) -> str:
    if not screens(f"```console\n{block}```"):
        return block
    with tempfile.TemporaryDirectory() as folder:
        return STEP.sub(lambda step: _step(step, Path(folder)), block)


def _step(step: re.Match[str], folder: Path) -> str:
    typed, shown = step["typed"], step["shown"]
    if typed.startswith("cat "):
        (folder / typed.split()[1]).write_text(shown.rstrip("\n") + "\n")
    if not _verb(typed) or not shown.strip():
        return step.group()
    said = _said(typed, folder)
    if LEFT_OUT.search(shown) and _still_said(shown, said):
        return step.group()
    gap = "\n" if shown.endswith("\n\n") else ""
    return f"$ {typed}\n{said}\n{gap}"


def _verb(typed: str) -> str:
    found = re.match(r"(?:\w+=\S* )*holdfast (lint|env|explain)\b", typed)
    return found[1] if found else ""


def _said(typed: str, folder: Path) -> str:
    words, verb = shlex.split(typed, comments=True), _verb(typed)
    at = words.index("holdfast")
    variables = dict(word.split("=", 1) for word in words[:at])
    with _alone(folder, variables), contextlib.redirect_stdout(io.StringIO()) as out:
        holdfast.main([verb, *OPTIONS[verb], *words[at + 2 :]])
    return out.getvalue().strip("\n")


@contextlib.contextmanager
def _alone(folder: Path, variables: dict[str, str]) -> Iterator[None]:
    """In this process: a new interpreter for each screen would take half a minute."""
    environment, here = dict(os.environ), os.getcwd()
    kept = {name: environment[name] for name in KEPT if name in environment}
    os.chdir(folder)
    try:
        os.environ.clear()
        os.environ.update(kept | {"COLUMNS": "100"} | variables)
        yield
    finally:
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(here)


def _still_said(shown: str, said: str) -> bool:
    for piece in filter(None, (part.strip("\n") for part in LEFT_OUT.split(shown))):
        _, found, said = said.partition(piece)
        if not found:
            return False
    return True


def main() -> int:
    for page in PAGES:
        page.write_text(refreshed(page.read_text()))
    print(f"screens: {', '.join(page.name for page in PAGES)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

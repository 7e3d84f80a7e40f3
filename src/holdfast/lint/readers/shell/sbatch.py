"""`#SBATCH` lines -> the launch they describe."""

from __future__ import annotations

import re
from collections.abc import Iterator

from holdfast.analysis.source.source import Launch, ShellWord
from holdfast.lint.readers.arguments import split
from holdfast.lint.readers.launch_options import SRUN
from holdfast.lint.readers.shell.nested_text import NestedText

LINE = re.compile(rb"#SBATCH[ \t]+(?P<options>[^\n]*)")
WORD = re.compile(rb"""(?:"[^"\n]*"|'[^'\n]*'|[^\s"'#]|(?<=\S)\#)+""")


def job(passage: NestedText) -> Launch | None:
    """Slurm reads them until the first line that is no comment."""
    words = list(_words(passage))
    if not words:
        return None
    # one option may have its value on no other line, so each line is split on its own
    flags = [flag for line in _by_line(words) for flag in split(line, SRUN).flags]
    return Launch(kind="sbatch", flags=tuple(flags), place=words[0].place)


def _words(passage: NestedText) -> Iterator[ShellWord]:
    at = 0
    for line in passage.data.split(b"\n"):
        bare = line.lstrip()
        if bare and not bare.startswith(b"#"):
            return
        if match := LINE.match(line):
            comment = re.search(rb"[ \t]#", match["options"])
            end = match.start("options") + (comment.start() if comment else len(match["options"]))
            for found in WORD.finditer(line, match.start("options"), end):
                text = found[0].decode("utf-8", "replace").replace('"', "").replace("'", "")
                place = passage.place(at + found.start())
                known = not re.search(r"<[\w ]+>|\.\.\.|…|\$", text)
                yield ShellWord(text=text, place=place, known=known)
        at += len(line) + 1


def _by_line(words: list[ShellWord]) -> list[list[ShellWord]]:
    lines: dict[int, list[ShellWord]] = {}
    for word in words:
        lines.setdefault(word.place.line, []).append(word)
    return list(lines.values())

"""The options in front of a script, as they were typed; torch is not asked, it may not be there.

So the options that take no value are listed here. Everything up to the first word that belongs to
no option is before the script; what follows is the script's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

ALONE = frozenset(
    {"-h", "--help", "--standalone", "-m", "--module", "--no-python", "--run-path"}
    | {"--virtual-local-rank", "--no-check", "--dry-run", "--no-pty"}
)
"""options without a value, of torchrun and of `holdfast run`"""


class TypedOption(NamedTuple):
    name: str
    value: str
    words: tuple[str, ...]


def before_the_script(argv: Sequence[str], *, alone: Iterable[str] = ()) -> Iterator[TypedOption]:
    """`alone`: further options without a value."""
    without_value = ALONE.union(alone)
    at = 0
    while at < len(argv) and argv[at].startswith("-") and argv[at] not in ("-", "--"):
        name, equals, value = argv[at].partition("=")
        name = name.replace("_", "-") if name.startswith("--") else name
        if equals or name in without_value or at + 1 == len(argv):
            yield TypedOption(name, value, (argv[at],))
            at += 1
        else:
            yield TypedOption(name, argv[at + 1], (argv[at], argv[at + 1]))
            at += 2

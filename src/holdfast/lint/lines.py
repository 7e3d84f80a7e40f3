"""Lines as editors, Python and GitHub count them."""

from __future__ import annotations


def lines(text: str) -> list[str]:
    """Of a text whose line ends are plain. `str.splitlines` would also end a line at a form feed
    or U+2028, and every number below would be wrong."""
    found = text.split("\n")
    if not found[-1]:
        del found[-1]
    return found

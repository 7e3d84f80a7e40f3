"""Our own options behind the script: torchrun's parser hands them to the script, as it must."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Sequence

LARGEST = 1 << 20
"""bytes of a script that are looked through"""


def remarks(typed: argparse.Namespace, own: Collection[str]) -> tuple[str, ...]:
    """A sentence where an option of `own` follows a script whose text does not know the word.

    Only a remark: the script may get its options from another module."""
    if typed.no_python or typed.module:
        return ()
    text = _text(typed.training_script)
    given = _given(typed.training_script_args, own)
    strange = [name for name in given if name.lstrip("-").replace("-", "_") not in text]
    if not text or not strange:
        return ()
    listed, verb = " and ".join(strange), "is" if len(strange) == 1 else "are"
    script = typed.training_script
    said = (
        f"{listed} {verb} given to {script}, as everything behind it: an option of holdfast goes "
        f"before it, `holdfast run {strange[0]} … {script}`"
    )
    return (said,)


def _given(words: Sequence[str], own: Collection[str]) -> list[str]:
    names = (word.partition("=")[0] for word in words)
    return [name for name in dict.fromkeys(names) if name in own]


def _text(script: str) -> str:
    """With one spelling of each word: `--no-pty` becomes args.no_pty; '' where it is no text."""
    try:
        with open(script, encoding="utf-8") as file:
            return file.read(LARGEST).replace("-", "_")
    except (OSError, ValueError):
        return ""

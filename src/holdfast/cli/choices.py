"""What the options of several verbs mean."""

from __future__ import annotations

import argparse

FAIL_ON = {"error": 3, "warning": 2, "note": 1, "never": 4}
"""--fail-on: the least concern at which a verb exits with 1"""


DEADLINE = 0.8
"""seconds: all readers run at once, and an ordinary `check` must be done within one"""


def add_deadline(parser: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
    parser.add_argument(
        "--deadline",
        type=seconds,
        default=DEADLINE,
        metavar="SECONDS",
        help=f"how long a fact may take to read before it is skipped (default: {DEADLINE})",
    )


def names(given: list[str]) -> list[str]:
    """`--only a,b --only c` and `--only a --only b --only c` mean the same."""
    return [name for item in given for part in item.split(",") if (name := part.strip())]


def seconds(text: str) -> float:
    """The type of --deadline."""
    return above_zero(text, most=3600, unit="seconds")


def above_zero(text: str, *, most: float, unit: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number <= most:
        raise argparse.ArgumentTypeError(f"must be > 0 and <= {most:.0f} {unit}, got {text!r}")
    return number

"""`holdfast VERB …`: picks the verb and turns every error into a sentence and an exit code."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Protocol

from holdfast import __version__
from holdfast.cli import check, completion, explain
from holdfast.errors import HoldfastError


class Verb(Protocol):
    """What each file of this folder offers."""

    SUMMARY: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...
    def run(self, arguments: argparse.Namespace) -> int: ...


VERBS: dict[str, Verb] = {"check": check, "explain": explain, "completion": completion}


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="holdfast",
        description="Makes distributed PyTorch training start, keep going and explain itself.",
        epilog="Exit codes: 0 fine, 1 something found, 2 bad usage or holdfast could not work.",
    )
    parser.add_argument("--version", action="version", version=f"holdfast {__version__}")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for name, module in VERBS.items():
        verb = verbs.add_parser(name, help=module.SUMMARY, description=module.SUMMARY)
        module.add_arguments(verb)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    arguments = build_parser().parse_args(argv)
    try:
        return VERBS[arguments.verb].run(arguments)
    except HoldfastError as problem:
        print(f"error: {problem.sentence}", file=sys.stderr)
        if problem.hint:
            print(f"hint: {problem.hint}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader of our output went away (`| head`); that is no error of ours. Point stdout
        # elsewhere so that the interpreter's own flush at exit does not complain again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0

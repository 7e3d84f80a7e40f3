"""`holdfast explain CODE|SLUG|WORD`: the page of a fault."""

from __future__ import annotations

import argparse
import os

from holdfast.cli import streams
from holdfast.errors import CannotWorkError, UsageError

SUMMARY = "tell the story of a fault: what you see, why, how to be sure, the fix"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("words", nargs="*", metavar="CODE|SLUG|WORD", help="HOLD101, mtu, 'port'…")
    parser.add_argument("--list", action="store_true", help="every fault, one line each")
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")


def run(arguments: argparse.Namespace) -> int:
    from holdfast import catalogue
    from holdfast.view import document, text

    wanted = " ".join(arguments.words)
    if not wanted and not arguments.list:
        raise UsageError("explain what?", hint="holdfast explain --list shows every fault")
    if arguments.list:
        pages = [entry.page for entry in catalogue.entries()]
    else:
        pages = catalogue.search(wanted)
    if not pages and os.path.exists(wanted):
        raise CannotWorkError(
            f"{wanted} is a file or folder; this version explains faults by name, not wreckage",
            hint="holdfast explain --list shows every fault it knows",
        )
    if not pages:
        raise UsageError(
            f"no fault's page mentions {wanted!r}",
            hint="holdfast explain --list shows every fault",
        )
    if arguments.json:
        streams.answer(document.explain(pages), encoding=document.ENCODING)
    elif len(pages) == 1 and not arguments.list:
        streams.answer(text.page(pages[0]))
    else:
        streams.answer(text.page_list(pages))
    return 0

"""tools/check_launch_options.py: how it compares a parser with the table."""

from __future__ import annotations

import argparse

from holdfast.lint.readers.arguments import Options
from tools import check_launch_options


def test_it_says_what_differs() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--nnodes", "--nn_odes")
    parser.add_argument("--module", "-m", action="store_true")
    parser.add_argument("--new-one")
    parser.add_argument("script")
    table = Options(
        values=frozenset(["nnodes", "module"]),
        switches=frozenset(["help"]),
        aliases={"nn-odes": "nnodes"},
    )
    assert check_launch_options.compare(parser, table) == [
        "--module: takes none",
        "--new-one: not in the table",
    ]

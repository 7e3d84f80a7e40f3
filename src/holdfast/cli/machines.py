"""`--hosts a,b` and `--hostfile FILE`: the same for every verb that goes to other machines."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from holdfast.cli import streams
from holdfast.errors import ConfigError

if TYPE_CHECKING:
    from holdfast.analysis.nodes import Absence
    from holdfast.nodes.reach.hosts import HostSpec
    from holdfast.run.runs.nodes.over_ssh import Machines

NOT_ALL = 1
"""exit code: some machines did not answer"""


def add_arguments(parser: argparse.ArgumentParser | argparse._ArgumentGroup, does: str) -> None:
    parser.add_argument("--hosts", metavar="A,B,…", help=f"{does} over ssh")
    parser.add_argument("--hostfile", metavar="FILE", help="as --hosts, one host a line")
    parser.add_argument(
        "--remote-python", metavar="PATH", help="the Python with holdfast there (default: as here)"
    )


def named(hosts: str | None, hostfile: str | None) -> list[HostSpec] | None:
    """None where neither was typed."""
    from holdfast.nodes.reach import hosts as reach

    if hosts is not None and hostfile is not None:
        raise ConfigError("give either --hosts or --hostfile, not both")
    if hosts is not None:
        return reach.from_option(hosts)
    if hostfile is not None:
        return reach.from_file(_text_of(hostfile), path=hostfile)
    return None


def asked(arguments: argparse.Namespace) -> Machines | None:
    """For verbs about runs; None where only this machine is meant."""
    import os

    hosts = named(arguments.hosts, arguments.hostfile)
    if hosts is None:
        return None
    from holdfast.run.runs.nodes.over_ssh import Machines

    # Over there the working folder is another; the path is the same, or there are no runs.
    root = os.path.abspath(arguments.runs)
    return Machines(hosts, root, arguments.remote_python, streams.narrate)


def tell_of(absent: Sequence[Absence]) -> int:
    """Say who did not answer, and why: the exit code."""
    for one in absent:
        streams.remark(f"{one.name}: {one.why}")
        if one.hint:
            streams.remark(f"hint: {one.hint}")
    return NOT_ALL if absent else 0


def _text_of(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(1 << 20)
    except OSError as problem:
        raise ConfigError(f"--hostfile {path}: {problem.strerror}") from None

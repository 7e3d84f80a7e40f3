"""What was typed after `holdfast run`: torchrun's own flags, read by torchrun's own parser,
and a few of ours."""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.analysis.machine.rendezvous import split_endpoint
from holdfast.errors import ConfigError, EnvironmentFailure

RESTARTS = 3
"""torchrun's 0 would leave a job dead at night that one restart would have saved"""
BACKENDS = ("static", "c10d", "holdfast")


@dataclass(frozen=True)
class RunFlags:
    torchrun: argparse.Namespace
    """torchrun's flags by torchrun's names, with the values it would see"""
    patience: float | None
    check: bool
    dry_run: bool
    runs: str
    port: int
    """the store's port; 0 for a free one in every round"""
    remarks: tuple[str, ...]
    """where we do not do what torchrun would, in a sentence each"""

    @property
    def max_restarts(self) -> int:
        return int(self.torchrun.max_restarts)


def build_parser() -> argparse.ArgumentParser:
    """torchrun's parser with our flags added; torch is imported here and not before."""
    try:
        from torch.distributed.run import get_args_parser  # noqa: PLC0415 - takes two seconds
    except ImportError as problem:
        raise EnvironmentFailure(
            f"torch cannot be imported by {sys.executable}: {problem}",
            hint="install holdfast into the environment that your training uses",
        ) from problem
    parser: argparse.ArgumentParser = get_args_parser()
    parser.prog = "holdfast run"
    parser.description = (
        "Starts a training as torchrun does, with the same flags; notices when it hangs or "
        "dies, names the rank and the reason, keeps the evidence, and restarts it."
    )
    for action in parser._actions:  # noqa: SLF001 - argparse has no other way to list them
        if action.dest == "max_restarts" and "PET_MAX_RESTARTS" not in os.environ:
            action.default = RESTARTS
        if action.dest == "master_port" and "PET_MASTER_PORT" not in os.environ:
            # Before 2.13 torch fills in 29500 itself; not named, it is ours to choose, so that
            # two jobs can be on one machine.
            action.default = None
    add_own_flags(parser.add_argument_group("holdfast's own"))
    return parser


def add_own_flags(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--patience", type=float, metavar="S",
        help="end a rank that holds up the others for S seconds, whatever it seems to do "
        "(default: only what is certainly stuck)",
    )  # fmt: skip
    group.add_argument(
        "--no-check", action="store_true", help="start without looking at this machine first"
    )
    group.add_argument(
        "--dry-run", action="store_true", help="say what would be started and why, start nothing"
    )
    group.add_argument(
        "--runs", default="runs", metavar="DIR", help="where the runs are kept (default: ./runs)"
    )


def parse(argv: Sequence[str]) -> RunFlags:
    typed = build_parser().parse_args(argv)
    patience = typed.patience
    if patience is not None and not (math.isfinite(patience) and patience > 0):
        raise ConfigError(f"--patience {patience}: needs a number of seconds above 0")
    if not typed.runs:
        raise ConfigError("--runs names no folder", hint="is the variable after --runs set?")
    if typed.max_restarts < 0:
        raise ConfigError(f"--max-restarts {typed.max_restarts}: needs 0 or more")
    _refuse_several_machines(typed.nnodes)
    port, remarks = _port(typed)
    return RunFlags(
        torchrun=typed,
        patience=patience,
        check=not typed.no_check,
        dry_run=typed.dry_run,
        runs=typed.runs,
        port=port,
        remarks=remarks,
    )


def _refuse_several_machines(nnodes: str) -> None:
    least, _, most = nnodes.partition(":")
    try:
        several = int(most or least) > 1 or int(least) > 1
        none = int(least) < 1
    except ValueError:
        raise ConfigError(f"--nnodes {nnodes!r} is neither a number nor a range MIN:MAX") from None
    if none:
        raise ConfigError(f"--nnodes {nnodes}: a job needs at least one machine")
    if several:
        raise EnvironmentFailure(
            "holdfast run works on one machine so far; several machines come later",
            hint=f"use torchrun for --nnodes {nnodes}",
        )


def _port(typed: argparse.Namespace) -> tuple[int, tuple[str, ...]]:
    """One machine always meets at our own store; only the port the user named is kept."""
    if typed.standalone:
        return 0, ("--standalone: the ranks meet at holdfast's own store, fresh in each round",)
    if typed.rdzv_backend not in BACKENDS:
        raise EnvironmentFailure(
            f"--rdzv-backend {typed.rdzv_backend}: one machine needs no service to meet at",
            hint="leave --rdzv-backend out",
        )
    host, port = split_endpoint(typed.rdzv_endpoint)
    if not typed.rdzv_endpoint and typed.rdzv_backend == "static":
        host, port = typed.master_addr, typed.master_port
    if port is not None and not 0 <= port < 65536:
        raise ConfigError(f"--master-port {port} is not a port (0 to 65535)")
    remarks = []
    if typed.rdzv_backend == "c10d":
        remarks.append("--rdzv-backend c10d: holdfast's own store takes its place on one machine")
    if host not in ("", "localhost", "127.0.0.1"):
        remarks.append(f"{host}: all ranks are on this machine, so they meet on 127.0.0.1")
    return port or 0, tuple(remarks)

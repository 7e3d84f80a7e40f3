"""What was typed after `holdfast run`: torchrun's own flags, read by torchrun's own parser,
and a few of ours."""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from holdfast import catalogue
from holdfast.analysis.machine.rendezvous import split_endpoint
from holdfast.analysis.rules.rule import NO_RULES, RuleSet
from holdfast.errors import ConfigError, EnvironmentFailure
from holdfast.nodes.etcd import access
from holdfast.nodes.reach.run_meeting import OneNode
from holdfast.run.launch import grace, misplaced_flags, newer_flags, node_flags, torch_names
from holdfast.run.launch.node_flags import RunMeeting
from holdfast.system import rule_files

RESTARTS = 3
"""where the job can resume and nothing was typed; torchrun's 0 would leave a job dead at night
that one restart would have saved"""
RESTARTS_HELP = (
    "restart all ranks up to N times after a failure. Default: 3 where the job was seen to resume "
    "(a holdfast checkpoint, or optimizer state that was loaded), not counting attempts that got "
    "past the furthest step so far; else 0, as torchrun. The same failure at the same step twice "
    "in a row stops the job"
)
PATIENCE_HELP = (
    "act when ranks have waited S seconds for a rank, also if that rank is active; before the "
    "first step only if it shows no activity. Default: the timeout of the collective that they "
    "wait in, less the seconds that evidence and an orderly end need. At once when a rank died or "
    "is stopped, or collectives do not match"
)
VERIFY_HELP = (
    "every N steps compare digests of the parameters that torch keeps equal on several ranks (DDP, "
    "HSDP), and name the rank whose differ: silent data corruption. Its cost is printed"
)
LEASE_HELP = (
    "how long a node of several may be silent before its ranks end and the others go on without "
    "it. Default: 7 with --nnodes MIN:MAX; 60 with a fixed number, where the others wait for it "
    "anyway: there a launcher that is only stopped is never given up. The coordinator's counts"
)
NO_PTY_HELP = (
    "ranks write to a pipe even where holdfast writes to a terminal: no colours, no moving bars"
)
HOSTS_HELP = (
    "start the job on these machines over ssh, in the same folder as here; they meet at the first. "
    "Ctrl-C here ends it on all of them, and so does closing the terminal, except under nohup"
)
BACKENDS = ("static", "c10d", *access.BACKENDS, "holdfast")


@dataclass(frozen=True)
class RunFlags:
    torchrun: argparse.Namespace
    """torchrun's flags by torchrun's names, with the values it would see"""
    patience: float | None
    grace: float
    """seconds for ranks to save and exit between SIGTERM and SIGKILL"""
    restarts_typed: bool
    """by --max-restarts or PET_MAX_RESTARTS"""
    check: bool
    dry_run: bool
    runs: str
    pty: bool
    """ranks write to a terminal where we do"""
    port: int
    """the store's port; 0 for a free one in every round"""
    remarks: tuple[str, ...]
    """where we do not do what torchrun would, in a sentence each"""
    meeting: RunMeeting | None = None
    """where the launchers of all nodes meet; None for a job of this node alone"""
    verify_replicas: int = 0
    """every how many steps; 0 for never"""
    rules: RuleSet = NO_RULES
    """of the user's own"""

    @property
    def max_restarts(self) -> int:
        return int(self.torchrun.max_restarts)


def build_parser() -> argparse.ArgumentParser:
    """torchrun's parser with our flags added; torch is imported here and not before."""
    torchrun = _import_torchrun()
    parser: argparse.ArgumentParser = torchrun.get_args_parser()
    parser.prog = "holdfast run"
    parser.usage = "holdfast run [options] SCRIPT [arguments of the script]"
    parser.description = (
        "Start a training job as torchrun does, with the same options. When it hangs or a rank "
        "dies, name the rank and the reason, keep the evidence, and restart the job."
    )
    for action in parser._actions:  # noqa: SLF001 - argparse has no other way to list them
        if action.dest == "max_restarts":
            action.help = RESTARTS_HELP
            if "PET_MAX_RESTARTS" not in os.environ:
                action.default = None
        if action.dest in node_flags.NOT_NAMED and f"PET_{action.dest.upper()}" not in os.environ:
            # What was not named is ours to choose. (Before 2.13 torch fills in port 29500 itself,
            # and a second job on the machine would meet the first.)
            action.default = None
    newer_flags.add(parser)
    add_own_flags(own := parser.add_argument_group("holdfast's options"))
    groups = parser._action_groups  # noqa: SLF001 - nor to show ours first
    groups.remove(own)
    groups.insert(0, own)
    for group in groups[1:]:
        moved = [a for a in group._group_actions if a.dest == "max_restarts"]  # noqa: SLF001
        own._group_actions += moved  # noqa: SLF001 - its default and meaning are ours
        group._group_actions = [a for a in group._group_actions if a not in moved]  # noqa: SLF001
    return parser


def _import_torchrun() -> Any:
    try:
        from torch.distributed import run  # noqa: PLC0415 - takes two seconds
    except ImportError as problem:
        raise EnvironmentFailure(
            f"torch cannot be imported by {sys.executable}: {problem}",
            hint="install holdfast into the environment that your training uses",
        ) from problem
    return run


def add_own_flags(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--patience", type=float, metavar="S", help=PATIENCE_HELP,
    )  # fmt: skip
    group.add_argument("--grace", type=float, metavar="S", help=grace.HELP)
    group.add_argument("--lease", type=float, metavar="S", help=LEASE_HELP)
    group.add_argument(
        "--no-check", action="store_true", help="skip the checks of this machine before the start"
    )
    group.add_argument(
        "--dry-run", action="store_true", help="show what would be started, and start nothing"
    )
    group.add_argument("--verify-replicas", type=int, metavar="N", help=VERIFY_HELP)
    group.add_argument("--rules", metavar="FILE", help=rule_files.HELP)
    group.add_argument("--no-pty", action="store_true", help=NO_PTY_HELP)
    group.add_argument(
        "--token-file", metavar="FILE", help="a secret that all nodes know (or HOLDFAST_TOKEN)"
    )
    group.add_argument("--hosts", metavar="A,B,…", help=HOSTS_HELP)
    group.add_argument("--hostfile", metavar="FILE", help="as --hosts, one host a line")
    group.add_argument(
        "--remote-python", metavar="PATH", help="with --hosts: the Python with holdfast there"
    )
    group.add_argument(
        "--env", action="append", metavar="NAME[=VALUE]",
        help="with --hosts: pass this variable on (repeatable)",
    )  # fmt: skip
    group.add_argument(
        "--runs", default="runs", metavar="DIR", help="folder for run folders (default: ./runs)"
    )


def _own_flags() -> frozenset[str]:
    add_own_flags((own := argparse.ArgumentParser()).add_argument_group())
    return frozenset(own._option_string_actions) - {"-h", "--help"}  # noqa: SLF001


def parse(argv: Sequence[str]) -> RunFlags:
    """Raises newer_flags.CompletionAsked where that is all that was typed."""
    unseen = torch_names.check(_import_torchrun().torch.__version__)
    typed = build_parser().parse_args(argv)
    unseen = (*unseen, *misplaced_flags.remarks(typed, _own_flags()))
    patience = typed.patience
    if patience is not None and not (math.isfinite(patience) and patience > 0):
        raise ConfigError(f"--patience must be > 0 seconds, got {patience:g}")
    if typed.verify_replicas is not None and typed.verify_replicas < 1:
        raise ConfigError(f"--verify-replicas must be >= 1 steps, got {typed.verify_replicas}")
    if not typed.runs:
        raise ConfigError(
            "--runs must name a folder, got ''", hint="is the variable after --runs set?"
        )
    if typed.hosts or typed.hostfile:  # cli/run_hosts.py has not seen it there
        raise ConfigError("--hosts and --hostfile must come first, right behind `holdfast run`")
    restarts_typed = typed.max_restarts is not None
    if not restarts_typed:
        typed.max_restarts = RESTARTS  # what torch is told; whether they are used is ours to say
    if typed.max_restarts < 0:
        raise ConfigError(f"--max-restarts must be >= 0, got {typed.max_restarts}")
    _refuse_unknown_backend(typed)
    meeting = node_flags.meeting(typed, os.environ)
    node_flags.fill_in_defaults(typed)
    if isinstance(meeting, OneNode):
        port, remarks = _port(typed)
        remarks = (*([meeting.remark] if meeting.remark else []), *remarks)
    else:
        port, remarks = 0, meeting.remarks
    rules = rule_files.load(typed.rules, os.getcwd())
    catalogue.refuse_names_of_faults(rules.rules)
    if rules.rules and typed.logs_specs:
        unseen = (*unseen, "your rules have no effect with --logs-specs: they need the output")
    return RunFlags(
        torchrun=typed,
        patience=patience,
        grace=grace.seconds(typed, os.environ),
        restarts_typed=restarts_typed,
        check=not typed.no_check,
        dry_run=typed.dry_run,
        runs=typed.runs,
        pty=not typed.no_pty,
        port=port,
        remarks=(*remarks, *unseen, *([rules.remark] if rules.remark else [])),
        meeting=None if isinstance(meeting, OneNode) else meeting,
        verify_replicas=typed.verify_replicas or 0,
        rules=rules.rules,
    )


def _refuse_unknown_backend(typed: argparse.Namespace) -> None:
    if not typed.standalone and typed.rdzv_backend not in BACKENDS:
        raise EnvironmentFailure(
            f"--rdzv-backend: unknown value {typed.rdzv_backend!r} (choose from "
            f"{', '.join(BACKENDS)})",
            hint="omit --rdzv-backend: holdfast starts its own store",
        )


def _meeting_place(typed: argparse.Namespace) -> tuple[str, int | None]:
    host, port = split_endpoint(typed.rdzv_endpoint)
    if not typed.rdzv_endpoint and typed.rdzv_backend == "static":
        return typed.master_addr or "", typed.master_port
    return host, port


def _port(typed: argparse.Namespace) -> tuple[int, tuple[str, ...]]:
    """One machine always meets at our own store; only the port the user named is kept."""
    if typed.standalone:
        return 0, ("--standalone: no effect, every attempt gets a new store of holdfast's own",)
    remarks = []
    if typed.rdzv_backend in access.BACKENDS:  # its endpoint is no node
        remarks.append(f"--rdzv-backend {typed.rdzv_backend}: no effect on one node")
        return 0, tuple(remarks)
    host, port = _meeting_place(typed)
    if typed.rdzv_conf:
        remarks.append("--rdzv-conf: no effect, holdfast starts its own store")
    if typed.rdzv_backend == "c10d":
        remarks.append("--rdzv-backend c10d: replaced by holdfast's own store")
    if host not in ("", "localhost", "127.0.0.1"):
        remarks.append(f"{host}: ignored, all ranks are on this node and connect to 127.0.0.1")
    return port or 0, tuple(remarks)

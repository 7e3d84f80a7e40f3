"""`holdfast run --hosts a,b …`: what of the command line is for us, and what for the launchers;
pure.

torch is not asked: the machine that starts a job need not have it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from holdfast.analysis.job import typed_options
from holdfast.errors import ConfigError
from holdfast.nodes.etcd import access

OURS = ("--hosts", "--hostfile", "--remote-python", "--env")
CHOSEN = ("--rdzv-endpoint", "--master-addr", "--node-rank", "--token-file", "--standalone")
"""what holdfast decides where it starts all launchers itself"""

PASSED_ON = ("HOLDFAST_", "PET_")
"""how variables begin that change what `holdfast run` does: they count as on this machine"""
NOT_PASSED_ON = frozenset(
    {"HOLDFAST_TOKEN", "PET_NNODES", "PET_NODE_RANK", "PET_RDZV_ENDPOINT", "PET_MASTER_ADDR"}
    | {"PET_MASTER_PORT", "PET_STANDALONE"}
)
"""of those: what says where one node is, or is decided here"""
OF_THE_JOB = re.compile(
    r"(?:NCCL|RCCL|GLOO|TORCH|PYTORCH|CUDA|OMP|UCX|FI|HF|WANDB|TRANSFORMERS)_\w+"
)
"""variables that people expect to reach the ranks"""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


class HostsCommand(NamedTuple):
    hosts: str | None
    hostfile: str | None
    remote_python: str | None
    variables: tuple[str, ...]
    """as typed behind --env: NAME or NAME=VALUE"""
    arguments: tuple[str, ...]
    """for every launcher"""

    def value(self, option: str) -> str | None:
        """What was typed for an option of the launchers; '' for one without a value."""
        found = [
            value
            for name, value, _ in typed_options.before_the_script(self.arguments)
            if name == option
        ]
        return found[-1] if found else None


def split(argv: Sequence[str]) -> HostsCommand | None:
    """None where no hosts are named: an ordinary start on this machine."""
    options = list(typed_options.before_the_script(argv))
    ours = [one for one in options if one.name in OURS]
    if not any(one.name in ("--hosts", "--hostfile") for one in ours):
        return None
    before = [word for one in options if one.name not in OURS for word in one.words]
    rest = argv[sum(len(one.words) for one in options) :]
    last = {one.name: one.value for one in ours}
    return HostsCommand(
        last.get("--hosts"),
        last.get("--hostfile"),
        last.get("--remote-python"),
        tuple(one.value for one in ours if one.name == "--env"),
        (*before, *rest),
    )


def refuse_contradictions(command: HostsCommand, hosts: int) -> None:
    by_etcd = command.value("--rdzv-backend") in access.BACKENDS
    for option in CHOSEN:
        if option == "--rdzv-endpoint" and by_etcd:
            continue
        if command.value(option) is not None:
            raise ConfigError(
                f"{option} does not go with --hosts: holdfast chooses where the nodes meet, and "
                "numbers them in the order they are named"
            )
    typed = command.value("--nnodes")
    most = (typed or str(hosts)).rpartition(":")[2]
    if most != str(hosts):
        raise ConfigError(
            f"--nnodes is {typed}, and {hosts} hosts are named",
            hint=f"omit --nnodes, or give --nnodes MIN:{hosts}",
        )


def least_nodes(command: HostsCommand, hosts: int) -> int:
    low, colon, _ = (command.value("--nnodes") or "").partition(":")
    return int(low) if colon and low.isdigit() else hosts


def launcher_arguments(
    command: HostsCommand, *, index: int, hosts: int, endpoint: str, slots: int | None
) -> tuple[str, ...]:
    """The command line of one node; what is typed wins over the hostfile's slots."""
    added: list[str] = []
    if hosts > 1:
        added += ["--node-rank", str(index)]
        if command.value("--nnodes") is None:
            added += ["--nnodes", str(hosts)]
        if endpoint:
            added += ["--rdzv-endpoint", endpoint]
    if slots is not None and command.value("--nproc-per-node") is None:
        added += ["--nproc-per-node", str(slots)]
    return (*added, *command.arguments)


def variables(command: HostsCommand, environment: Mapping[str, str]) -> dict[str, str]:
    """What the launchers get beside their login environment."""
    chosen = {
        name: value
        for name, value in environment.items()
        if name.startswith(PASSED_ON) and name not in NOT_PASSED_ON
    }
    for one in command.variables:
        name, equals, value = one.partition("=")
        if not _NAME.fullmatch(name):
            raise ConfigError(f"--env must be NAME or NAME=VALUE, got {one[:60]!r}")
        if not equals and name not in environment:
            raise ConfigError(
                f"--env {name}: it is not set here", hint=f"give its value: --env {name}=VALUE"
            )
        chosen[name] = value if equals else environment[name]
    return chosen


def not_passed_on(command: HostsCommand, environment: Mapping[str, str]) -> list[str]:
    """Names of variables set here that a user may believe the ranks see."""
    named = {one.partition("=")[0] for one in command.variables}
    return sorted(name for name in environment if OF_THE_JOB.fullmatch(name) and name not in named)

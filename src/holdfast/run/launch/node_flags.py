"""Flags about the nodes of a job: how many there are, and where their launchers meet."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass

from holdfast.errors import ConfigError
from holdfast.nodes.etcd import access
from holdfast.nodes.etcd.access import EtcdAccess, etcd_access
from holdfast.nodes.reach.meeting import MeetingPlan
from holdfast.nodes.reach.run_meeting import NodeFlags, OneNode, plan_run
from holdfast.run.nodes.link import fencing
from holdfast.run.nodes.link.fencing import LeaseTerms

NOT_NAMED = {"nnodes": "1:1", "node_rank": 0, "master_addr": "127.0.0.1", "master_port": None}
"""torchrun's defaults of flags that mean something else when they are typed"""
JOIN_TIMEOUT = 600.0
LAST_CALL = 30.0
"""seconds, both as torchrun: for all nodes to come, and for more than the least number of them"""


@dataclass(frozen=True)
class RunMeeting:
    """Where the launchers of all nodes meet, and how long they wait for each other."""

    plan: MeetingPlan
    rdzv_id: str
    """launchers with different ids do not meet; '' when none was typed"""
    token_file: str
    join_timeout: float = JOIN_TIMEOUT
    last_call: float = LAST_CALL
    lease: LeaseTerms = fencing.SHORT_LEASE
    is_host: bool | None = None
    etcd: EtcdAccess | None = None
    """the launchers elect their coordinator there; the plan's host and port are then etcd's"""
    remarks: tuple[str, ...] = ()

    @property
    def least(self) -> int:
        return self.plan.least or self.plan.nodes

    @property
    def most(self) -> int:
        return self.plan.nodes


def meeting(typed: argparse.Namespace, environment: Mapping[str, str]) -> RunMeeting | OneNode:
    if typed.master_port is not None and not 0 <= typed.master_port < 65536:
        raise ConfigError(f"--master-port must be 0 to 65535, got {typed.master_port}")
    _refuse_impossible_lease(typed.lease)
    if typed.standalone:
        return OneNode()
    conf = _configuration(typed.rdzv_conf)
    rdzv_id = "" if typed.rdzv_id == "none" else str(typed.rdzv_id)
    plan = plan_run(
        NodeFlags(
            nnodes=typed.nnodes,
            backend=typed.rdzv_backend,
            endpoint=typed.rdzv_endpoint,
            master_addr=typed.master_addr,
            master_port=typed.master_port,
            node_rank=typed.node_rank,
            rdzv_id=rdzv_id,
        ),
        environment,
    )
    if isinstance(plan, OneNode):
        return plan
    join = _seconds(conf, "join_timeout", _seconds(conf, "timeout", JOIN_TIMEOUT))
    etcd = _etcd(typed, plan, conf, environment)
    known = access.SETTINGS if etcd else {"is_host"}
    unused = sorted(conf.keys() - known - {"join_timeout", "timeout", "last_call_timeout"})
    remarks = [f"--rdzv-conf {','.join(unused)}: no effect"] if unused else []
    if etcd and typed.rdzv_backend != "etcd":
        remarks.append(f"--rdzv-backend {typed.rdzv_backend}: etcd's v3 API is used, as with etcd")
    if etcd and etcd.password and not etcd.tls:
        remarks.append(
            f"{access.USER}: the password goes to etcd unencrypted; where etcd has TLS, use "
            "--rdzv-conf protocol=https,cacert=FILE"
        )
    return RunMeeting(
        plan=plan,
        rdzv_id=rdzv_id,
        token_file=typed.token_file or "",
        join_timeout=join,
        last_call=_seconds(conf, "last_call_timeout", LAST_CALL),
        lease=_lease(typed.lease, plan, elected=etcd is not None),
        is_host=None if etcd else _yes_or_no(conf, "is_host"),
        etcd=etcd,
        remarks=tuple(remarks),
    )


def _refuse_impossible_lease(seconds: float | None) -> None:
    if seconds is not None and not fencing.SHORTEST <= seconds <= fencing.LONGEST:
        raise ConfigError(
            f"--lease must be {fencing.SHORTEST:g} to {fencing.LONGEST:g} seconds, got {seconds:g}"
        )


def _lease(typed: float | None, plan: MeetingPlan, *, elected: bool) -> LeaseTerms:
    if elected and typed is not None:
        raise ConfigError(
            f"--lease cannot be set with etcd, where it is {fencing.FENCE:g} s", hint="omit --lease"
        )
    return fencing.terms_for(
        least=plan.least or plan.nodes, most=plan.nodes, elected=elected, typed=typed
    )


def _etcd(
    typed: argparse.Namespace,
    plan: MeetingPlan,
    conf: Mapping[str, str],
    environment: Mapping[str, str],
) -> EtcdAccess | None:
    if typed.rdzv_backend not in access.BACKENDS:
        return None
    if not plan.job:
        raise ConfigError(
            f"--rdzv-backend {typed.rdzv_backend} needs --rdzv-id: without it two jobs at one "
            "etcd would be the same",
            hint="on every node: --rdzv-id NAME",
        )
    return etcd_access(typed.rdzv_endpoint, conf, environment)


def fill_in_defaults(typed: argparse.Namespace) -> None:
    """torch reads the flags once more, and expects its own."""
    for name, default in NOT_NAMED.items():
        if getattr(typed, name) is None:
            setattr(typed, name, default)


def _configuration(text: str) -> dict[str, str]:
    """'key=value,key=value', as torchrun reads it; quotes that no shell took away are not meant."""
    text = text.strip().strip("'\"")
    pairs = (part.partition("=") for part in text.split(",") if part.strip())
    return {key.strip(): value.strip() for key, _, value in pairs}


def _seconds(conf: Mapping[str, str], name: str, default: float) -> float:
    if name not in conf:
        return default
    try:
        seconds = float(conf[name])
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < 1e9:
        raise ConfigError(f"--rdzv-conf {name} must be >= 0 seconds, got {conf[name][:40]!r}")
    return seconds


def _yes_or_no(conf: Mapping[str, str], name: str) -> bool | None:
    """torch's own words for it (rendezvous/utils.py)."""
    if name not in conf:
        return None
    value = conf[name].lower()
    if value in ("1", "true", "t", "yes", "y"):
        return True
    if value in ("0", "false", "f", "no", "n"):
        return False
    raise ConfigError(f"--rdzv-conf {name} must be 1 or 0, got {conf[name][:40]!r}")

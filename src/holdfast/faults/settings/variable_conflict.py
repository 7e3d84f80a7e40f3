"""Two variables contradict each other, and one of them has no effect.

What you see   A setting without effect: jobs hang although async error handling was switched on, or
               NCCL uses another interface than the one set. At worst NCCL does not start: `Failed
               to initialize any NET plugin`, in older versions `Error: network IB not found`.
Why            Settings come from several guides, each with its own set. TORCH_NCCL_BLOCKING_WAIT
               wins over TORCH_NCCL_ASYNC_ERROR_HANDLING: older torch logs that both should not be
               enabled, recent ones `NO watchdog thread is created`. Without the watchdog nothing
               handles errors asynchronously, and no timeout makes the flight recorder dump. A new
               name wins over the old one. NCCL_COMM_ID makes NCCL's bootstrap look for an interface
               in that subnet and ignore NCCL_SOCKET_IFNAME. NCCL_P2P_DISABLE=1 makes NCCL_P2P_LEVEL
               ineffective. NCCL_IB_DISABLE=1 forbids the network that NCCL_NET=IB requires.
               NCCL_ALGO and NCCL_PROTO are mandatory: if what they allow does not support a
               collective, it fails. (The same variable in the environment and in an nccl.conf is
               not a conflict: the environment wins, by design.)
How to be sure `env | grep -E 'NCCL|TORCH'`; TORCH_CPP_LOG_LEVEL=INFO shows torch's choice at the
               start, NCCL_DEBUG=INFO what NCCL read.
Fix            Keep the one you want. For async handling and blocking wait: unset both; async
               handling is on by default.
Known limits   Only the contradictions listed here are known. Values that a launcher or a script
               sets at run time are not seen by the check.
Sources        pytorch/pytorch torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp (constructor)
               https://github.com/pytorch/pytorch/pull/47926
               torch 2.13.0: torch/csrc/distributed/c10d/Utils.hpp
               NVIDIA/nccl src/bootstrap.cc, src/graph/paths.cc, src/plugin/net.cc (2.30.7)
               NVIDIA/nccl src/enqueue.cc, src/graph/tuning.cc (NCCL_ALGO, NCCL_PROTO)
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.analysis import variables
from holdfast.analysis.logs.wreckage import Sighting, Wreckage
from holdfast.analysis.machine import MachineFacts, Setting, nic_filter
from holdfast.analysis.nccl_numbers import nccl_int
from holdfast.analysis.source.source import Source
from holdfast.analysis.variables.in_source import (
    InForce,
    environments,
    in_force,
    once,
    put,
    without,
)
from holdfast.analysis.variables.parsing import torch_bool, torch_int
from holdfast.analysis.variables.status import Effect
from holdfast.fault import Fault
from holdfast.findings import Culprit, Diagnosis, Evidence, Finding

FAULT = Fault(
    code="HOLD503",
    slug="variable-conflict",
    related=("variable-deprecated", "variable-redundant", "async-handling-off", "rdma-unused"),
    setting_effect=Effect.CONFLICT,
)

BLOCKING = ("TORCH_NCCL_BLOCKING_WAIT", "NCCL_BLOCKING_WAIT")
ASYNC = ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "NCCL_ASYNC_ERROR_HANDLING")


@FAULT.check(needs=("settings",))
def variables_contradict(facts: MachineFacts) -> Finding | list[Finding]:
    findings = list(_contradictions(in_force(facts)))
    return findings or FAULT.ok("no two variables contradict each other")


def _contradictions(settings: InForce) -> Iterator[Finding]:
    """Each quotes the settings that contradict each other."""
    for check in (_waits, _spellings, _root_and_interface, _p2p, _ib):
        yield from check(settings)


def _seen(*settings: Setting) -> list[Evidence]:
    return [s.evidence for s in settings]


def _waits(settings: InForce) -> Iterator[Finding]:
    blocking, handling = settings.torch(*BLOCKING), settings.torch(*ASYNC)
    if not (blocking and handling):
        return
    if torch_bool(blocking.value) and torch_int(handling.value):
        yield FAULT.warning(
            f"{blocking.name} wins: async error handling is off although "
            f"{handling.name}={handling.value}",
            reason="torch allows only one of the two; with blocking wait there is no watchdog and "
            "no flight-recorder dump on a timeout",
            evidence=_seen(blocking, handling),
            fix=f"{without(blocking, handling)}: async error handling is on by default",
        )


def _spellings(settings: InForce) -> Iterator[Finding]:
    """Both names of one torch setting, with different values."""
    for old in settings.every:
        row = variables.lookup(old.name)
        if row is None or row.reader != "PyTorch" or not row.instead:
            continue
        new = settings.torch(row.instead)
        if new and settings.torch(old.name) and new.value != old.value:
            yield FAULT.warning(
                f"{new.name}={new.value} wins over {old.name}={old.value}",
                reason="they are two names of one setting; torch prefers the new one (from 2.2 on)",
                evidence=_seen(new, old),
                fix=without(old),
            )


def _root_and_interface(settings: InForce) -> Iterator[Finding]:
    root, interface = settings.get("NCCL_COMM_ID"), settings.get(nic_filter.NCCL)
    if root and interface and root.value and not nic_filter.is_ignored(interface.value):
        yield FAULT.note(
            f"NCCL's bootstrap uses NCCL_COMM_ID={root.value} and ignores {interface.name}",
            reason=f"it uses an interface in the subnet of that address, or fails; the data "
            f"connections still use {interface.name}",
            evidence=_seen(root, interface),
            fix=f"{without(root)}: torch gives NCCL its address through the store",
        )


def _p2p(settings: InForce) -> Iterator[Finding]:
    disable, level = settings.get("NCCL_P2P_DISABLE"), settings.get("NCCL_P2P_LEVEL")
    if disable and level and nccl_int(disable.value) == 1 and level.value not in ("LOC", "0"):
        yield FAULT.note(
            f"NCCL_P2P_DISABLE=1 wins: NCCL_P2P_LEVEL={level.value} has no effect",
            reason="NCCL uses the level only if direct access is not disabled",
            evidence=_seen(disable, level),
            fix=f"{without(disable)} or {without(level)}, whichever you do not want",
        )


def _ib(settings: InForce) -> Iterator[Finding]:
    disable, network = settings.get("NCCL_IB_DISABLE"), settings.get("NCCL_NET")
    if disable and network and nccl_int(disable.value) and network.value.lower() == "ib":
        yield FAULT.error(
            f"NCCL_NET={network.value} requires RDMA, NCCL_IB_DISABLE={disable.value} forbids it",
            reason="NCCL will not start (`Failed to initialize any NET plugin`)",
            evidence=_seen(network, disable),
            fix=f"{without(disable)}; or, to use sockets, {put(network, 'NCCL_NET', 'Socket')}",
        )


# --- in what a user wrote -----------------------------------------------------------------------


@FAULT.lint
def script_sets_contradicting_variables(source: Source) -> Iterator[Finding]:
    yield from once(
        environment.placed(finding)
        for environment in environments(source)
        for finding in _contradictions(environment.in_force)
    )


# --- in what is left of a job -------------------------------------------------------------------

NO_ALGORITHM = FAULT.log_pattern(
    "no-algorithm",
    r"no algorithm/protocol available for function (?P<function>\w+) with datatype (?P<type>\w+)"
    r"(?:.*?NCCL_ALGO was set to (?P<algo>[^\s.]+))?"
    r"(?:.*?NCCL_PROTO was set to (?P<proto>[^\s.]+))?",
    anchors="o algorithm/protocol available for function",
    example="node-a:411:498 [0] enqueue.cc:1873 NCCL WARN Error : no algorithm/protocol available "
    "for function AllGather with datatype ncclInt8. NCCL_ALGO was set to Tree.",
)
UNKNOWN_TOKEN = FAULT.log_pattern(
    "not-a-name",
    r"Unrecognized (?P<kind>element|prefix) token \"(?P<token>[^\"]*)\" when parsing "
    r"\"(?P<value>[^\"]*)\"",
    anchors=("Unrecognized element token", "Unrecognized prefix token"),
    example='node-a:411:498 [0] graph/tuning.cc:102 NCCL WARN Unrecognized element token "tre" '
    'when parsing "tre"',
)


@FAULT.explain
def nccl_rejected_algorithm_or_protocol(wreckage: Wreckage) -> Diagnosis | None:
    refused, unknown_names = wreckage.seen(NO_ALGORITHM), wreckage.seen(UNKNOWN_TOKEN)
    # Without either variable it is a limitation of NCCL, not of a setting.
    forced = [one for one in refused if "algo" in one.fields or "proto" in one.fields]
    if forced:
        return _forced(forced[0], tuple(forced))
    if not unknown_names:
        return None
    fields = unknown_names[0].fields
    return FAULT.diagnosis(
        f'NCCL does not know "{fields["token"]}", which NCCL_ALGO or NCCL_PROTO '
        f'("{fields["value"]}") names, and did not start',
        confidence=0.92,
        seen=unknown_names,
        culprit=Culprit(what=f"NCCL_ALGO or NCCL_PROTO={fields['value']}"),
        fix="unset both: NCCL chooses by itself",
        next="env | grep -E 'NCCL_(ALGO|PROTO)'",
    )


def _forced(first: Sighting, seen: tuple[Sighting, ...]) -> Diagnosis:
    forced = {"NCCL_ALGO": first.fields.get("algo"), "NCCL_PROTO": first.fields.get("proto")}
    said = " and ".join(f"{name}={value}" for name, value in forced.items() if value)
    return FAULT.diagnosis(
        f"{said} leaves NCCL no way to do {first.fields['function']} ({first.fields['type']}): the "
        "setting applies to every collective, and not every algorithm supports each",
        confidence=0.93,
        seen=seen,
        culprit=Culprit(what=said),
        fix="unset it, or limit it to the collective it is meant for (NCCL 2.24 and later: "
        "`NCCL_ALGO=allreduce:tree`)",
        next="env | grep -E 'NCCL_(ALGO|PROTO)'",
    )

"""The nodes run with different settings.

What you see   A job that hangs in its first collective, or dies with `Message truncated` or a wrong
               result, although every node works alone; with NCCL_DEBUG=INFO one node prints other
               `set by environment to` lines than the rest.
Why            Each rank chooses algorithm, protocol and transport by itself, from the same facts
               and the same variables. With other values they prepare for different exchanges. A
               variable exported in one shell is not passed to other nodes: ssh, srun --export and
               mpirun -x each pass a different set. Names of interfaces and adapters may differ,
               since machines do; so may what only affects a log.
How to be sure Compare `env | grep -E '^(NCCL|TORCH|GLOO)_' | sort` between the nodes. `holdfast
               check` on several nodes does, nccl.conf included, and names the node that differs.
Fix            Set such variables in one place for all nodes: the launch script that every node
               runs, the launcher's own option (`srun --export`, `mpirun -x`), or the image. Values
               that must differ between machines belong in each machine's /etc/nccl.conf.
Known limits   The check compares the environments in which it was started: over ssh that is what a
               login without a terminal has, which a scheduler's job need not share. In logs it is
               recognised only with NCCL_DEBUG=INFO from several nodes.
Sources        https://github.com/NVIDIA/nccl/issues/286
               https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html
               https://slurm.schedmd.com/srun.html (--export)
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from holdfast import shell_words, text
from holdfast.analysis.drill import hosts
from holdfast.analysis.drill.injection import Injection, Then
from holdfast.analysis.drill.network_acts import TypeOnHost
from holdfast.analysis.drill.rehearsal import Rehearsal
from holdfast.analysis.logs.pattern import Role
from holdfast.analysis.logs.patterns.nccl import ENV_SET
from holdfast.analysis.logs.wreckage import Sighting, Wreckage
from holdfast.analysis.machine import Setting
from holdfast.analysis.machine.nccl_diagnostics import SETTING_CHECKS
from holdfast.analysis.nodes import NodesFacts, differences
from holdfast.analysis.nodes.differences import Difference
from holdfast.analysis.nodes.smoke import SmokeBetween, nccl_faults
from holdfast.fault import SHOWN, Fault
from holdfast.findings import Culprit, Diagnosis, Evidence, Finding

FAULT = Fault(
    code="HOLD509",
    slug="env-mismatch-nodes",
    related=("version-skew", "nic-name-missing", "collective-mismatch"),
)

MAY_DIFFER = re.compile(
    r"_IFNAME$|_HCA$|_GID_INDEX$|^NCCL_DEBUG|_FILE$|_DIR$|^NCCL_HOSTID$|_TOPO_|^NCCL_COMM_ID$"
    r"|AFFINITY|^NCCL_CONF"
)
"""names whose values may differ between nodes: interfaces, cards, log files"""

COMPARED = (
    *("NCCL_", "TORCH_NCCL_", "TORCH_GLOO_", "TORCH_DISTRIBUTED_", "TORCH_DIST_", "GLOO_"),
    *("OFI_NCCL_", "FI_PROVIDER", "MASTER_PORT"),
)
MUST_AGREE = {
    "NCCL_ALGO": "ranks wait for messages of another algorithm",
    "NCCL_PROTO": "ranks wait for messages in another format",
    "NCCL_NET": "ranks listen on another transport than their peers",
    "NCCL_IB_DISABLE": "ranks listen on another transport than their peers",
    "NCCL_BUFFSIZE": "ranks write past what their peers have set up",
    "TORCH_DISTRIBUTED_DEBUG": "DETAIL adds collectives of its own, which other ranks do not join",
    "MASTER_PORT": "each node looks for the store on another port",
}
"""a job with different values hangs or fails; what happens"""
NOT_SET = "not set"
TORCHRUN_PORT = "29500"
"""where MASTER_PORT is not set"""

Values = Mapping[str, Mapping[str, Sighting]]
"""node -> variable -> where it was read"""


@FAULT.check_nodes
def settings_differ_between_nodes(facts: NodesFacts) -> Finding | Sequence[Finding]:
    if len(facts.nodes) < 2:
        return FAULT.does_not_apply("one node: there is nothing to compare")
    settings, gaps = differences.of_each(facts, lambda node: node.facts.settings)
    unknown = [FAULT.skipped(gap.why, host=gap.node) for gap in gaps]
    if len(settings) < 2:
        return unknown
    by_node = {node: {one.name: one for one in found} for node, found in settings.items()}
    by_odd: dict[tuple[str, ...], dict[str, Difference]] = {}
    for name in sorted({name for found in by_node.values() for name in found if _matters(name)}):
        values = {node: found.get(name) for node, found in by_node.items()}
        unequal = differences.compare({node: _effect(name, one) for node, one in values.items()})
        if unequal is not None:
            by_odd.setdefault(tuple(sorted(unequal.odd)), {})[name] = unequal
    found = [_unequal(odd, names, by_node) for odd, names in sorted(by_odd.items())]
    if found:
        return [*found, *unknown]
    return [
        FAULT.ok(f"{len(settings)} nodes have the same settings of NCCL, torch and Gloo"),
        *unknown,
    ]


@FAULT.check_nodes
def nccl_found_other_settings(facts: NodesFacts) -> Sequence[Finding]:
    """NCCL's own comparison knows no variable that may differ, so it is a note."""
    if not isinstance(facts.smoke, SmokeBetween):
        return ()
    return [
        FAULT.note(
            f"NCCL's diagnostics: {line.words}",
            reason="NCCL compared the NCCL_* variables of all ranks when its communicator was made",
            evidence=[Evidence(quote=line.words, source="NCCL diagnostics", host=line.host)],
        )
        for line in nccl_faults(facts.smoke, SETTING_CHECKS)
    ]


def _effect(name: str, setting: Setting | None) -> str:
    """The value, where what is not set has another effect than any that is."""
    if name == "MASTER_PORT" and setting is None:
        return TORCHRUN_PORT
    if name == "TORCH_DISTRIBUTED_DEBUG" and (setting is None or setting.value != "DETAIL"):
        return NOT_SET  # INFO only logs
    return setting.value if setting else NOT_SET


def _matters(name: str) -> bool:
    return name.startswith(COMPARED) and not MAY_DIFFER.search(name)


def _unequal(
    odd: tuple[str, ...],
    names: Mapping[str, Difference],
    by_node: Mapping[str, Mapping[str, Setting]],
) -> Finding:
    broken = [name for name in names if name in MUST_AGREE]
    speak = FAULT.error if broken else FAULT.warning
    ordered = [*broken, *(name for name in names if name not in broken)]
    if odd:
        told = ", ".join(_told(name, names[name], odd) for name in ordered[:3])
        summary = f"{text.names(odd)} {text.plural(odd, 'has', 'have')} other settings: {told}"
    else:
        summary = "; ".join(f"{name} is {names[name].listed}" for name in ordered[:3])
    more = f" and {len(ordered) - 3} more" if len(ordered) > 3 else ""
    effect = "; ".join(dict.fromkeys(MUST_AGREE[name] for name in broken))
    return speak(
        f"{summary}{more}",
        reason=effect
        or "each rank chooses transport and limits by its own settings; a difference may hang the "
        "first collective, or make one node behave unlike the rest",
        evidence=_shown(ordered, odd or tuple(sorted(by_node)), by_node),
        fix=_align(ordered[0], names[ordered[0]], odd, by_node),
        host=odd[0] if len(odd) == 1 else "",
    )


def _told(name: str, unequal: Difference, odd: Sequence[str]) -> str:
    here = {unequal.values[node] for node in odd}
    own = " or ".join(sorted(here))
    return f"{name} is {own} ({unequal.usual} elsewhere)"


def _shown(
    names: Sequence[str], nodes: Iterable[str], by_node: Mapping[str, Mapping[str, Setting]]
) -> list[Evidence]:
    shown = [
        Evidence(
            quote=f"{node}: {name}={one.value}" if one else f"{node}: {name} is not set",
            source=one.origin if one else "environment",
            host=node,
        )
        for name in names
        for node in nodes
        for one in (by_node[node].get(name),)
    ]
    return shown[:SHOWN]


def _align(
    name: str,
    unequal: Difference,
    odd: Sequence[str],
    by_node: Mapping[str, Mapping[str, Setting]],
) -> str:
    if not odd or unequal.usual is None:
        return f"set {name} in one place for all nodes: the launch script, or `srun --export=ALL`"
    where = f" on {text.names(odd)}"
    own = by_node[odd[0]].get(name)
    if own is not None and own.origin != "environment":
        return f"change the line at {own.origin}{where}"
    if unequal.usual == NOT_SET:
        return f"`unset {shell_words.variable(name)}`{where}"
    usual = shell_words.setting(name, unequal.usual)
    return f"`export {usual}`{where}, or pass it to every node: `srun --export=ALL`"


@FAULT.explain
def nodes_had_different_settings(wreckage: Wreckage) -> Diagnosis | None:
    """Only if the job failed and no rank reported a cause: differences alone break few jobs."""
    if wreckage.roots() or not any(s.role is Role.CASCADE for s in wreckage.sightings):
        return None
    nodes = _by_node(wreckage)
    names = sorted({name for values in nodes.values() for name in values})
    for name in names:
        told = {node: values[name] for node, values in nodes.items() if name in values}
        if len({one.fields["value"] for one in told.values()}) > 1:
            return _differs(name, told)
    for name in names:
        told = {node: values[name] for node, values in nodes.items() if name in values}
        if len(told) < len(nodes):
            return _missing(name, told, sorted(set(nodes) - set(told)))
    return None


def _by_node(wreckage: Wreckage) -> Values:
    nodes: defaultdict[str, dict[str, Sighting]] = defaultdict(dict)
    for one in wreckage.seen(ENV_SET):
        node = one.line.host or ("" if one.rank is None else f"rank {one.rank}")
        if node and not MAY_DIFFER.search(one.fields["name"]):
            nodes[node].setdefault(one.fields["name"], one)
    return nodes if len(nodes) > 1 else {}


def _only_different_node(told: Mapping[str, Sighting]) -> str:
    """The only node with its value, where the others agree; '' when there is no majority."""
    values = [one.fields["value"] for one in told.values()]
    alone = [node for node, one in told.items() if values.count(one.fields["value"]) == 1]
    return alone[0] if len(told) > 2 and len(alone) == 1 else ""


def _differs(name: str, told: Mapping[str, Sighting]) -> Diagnosis:
    odd = _only_different_node(told)
    said = ", ".join(f"{one.fields['value']} on {node}" for node, one in sorted(told.items())[:4])
    return FAULT.diagnosis(
        f"{name} differed between nodes ({said}), and ranks need the same value to communicate; no "
        "rank reported an error of its own",
        confidence=0.55,
        seen=told.values(),
        culprit=Culprit(host="" if odd.startswith("rank ") else odd, what=name),
        fix=f"set {name} to the same value on all nodes, or unset it everywhere",
        next="env | grep -E '^(NCCL|TORCH|GLOO)_' | sort",
    )


def _missing(name: str, told: Mapping[str, Sighting], without: list[str]) -> Diagnosis:
    return FAULT.diagnosis(
        f"{name} was read on {', '.join(sorted(told)[:4])} but not on {', '.join(without[:4])}, "
        "where NCCL printed other settings: the environment was not passed to every node",
        confidence=0.3,
        seen=told.values(),
        culprit=Culprit(what=name),
        fix=f"set {name} on all nodes (`srun --export`, `mpirun -x {name}`), or on none",
        next="env | grep -E '^(NCCL|TORCH|GLOO)_' | sort",
        unknown=("whether NCCL got far enough on the other nodes to print it",),
    )


# --- drill ---------------------------------------------------------------------------------------


@FAULT.drill(needs=("hosts",))
def one_host_has_another_setting(rehearsal: Rehearsal) -> Injection:
    host = hosts.other_host(rehearsal)
    return Injection(
        does=f"NCCL_ALGO=Ring on {host} alone",
        act=TypeOnHost(host=host, environment=(("NCCL_ALGO", "Ring"),)),
        then=Then.REFUSES,
        from_start=True,
        culprits=(),
        hosts=rehearsal.job.hosts,
    )

"""The nodes run with different settings.

What you see   A job that hangs in its first collective, or dies with `Message truncated` or a wrong
               result, although every node works alone; with NCCL_DEBUG=INFO one node prints other
               `set by environment to` lines than the rest.
Why            Each rank chooses algorithm, protocol and transport by itself, from the same facts
               and the same variables. With other values they prepare for different exchanges. A
               variable exported in one shell is not passed to other nodes: ssh, srun --export and
               mpirun -x each pass a different set. Names of interfaces and adapters may differ,
               since machines do; so may what only affects a log.
How to be sure Compare `env | grep -E '^(NCCL|TORCH|GLOO)_' | sort` between the nodes.
Fix            Set such variables in one place for all nodes: the launch script that every node
               runs, the launcher's own option (`srun --export`, `mpirun -x`), or the image. Values
               that must differ between machines belong in each machine's /etc/nccl.conf.
Known limits   It is recognised only in logs with NCCL_DEBUG=INFO from several nodes; `holdfast
               check` on one node cannot compare.
Sources        https://github.com/NVIDIA/nccl/issues/286
               https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html
               https://slurm.schedmd.com/srun.html (--export)
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping

from holdfast.analysis.logs.pattern import Role
from holdfast.analysis.logs.patterns.nccl import ENV_SET
from holdfast.analysis.logs.wreckage import Sighting, Wreckage
from holdfast.fault import Fault
from holdfast.findings import Culprit, Diagnosis

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

Values = Mapping[str, Mapping[str, Sighting]]
"""node -> variable -> where it was read"""


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

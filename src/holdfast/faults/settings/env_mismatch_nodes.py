"""The nodes run with different settings.

What you see   A job that hangs in its first collective, or dies with `Message truncated` or a wrong
               result, though every node works alone; NCCL_DEBUG=INFO shows another list of
               `set by environment to` on one node.
Why            Ranks choose algorithm, protocol and transport each for itself, from the same facts
               and the same variables. With other values they prepare for different exchanges.
               A variable exported in one shell does not travel: ssh, srun --export and mpirun -x
               each have their own idea of what goes along. Names of interfaces and adapters may
               differ, since machines do; so may what is only written to a log.
How to be sure `env | grep -E '^(NCCL|TORCH|GLOO)_' | sort` on every node, compared.
Fix            Set such variables in one place for all nodes: the job's script that every node runs,
               the launcher's own option (`srun --export`, `mpirun -x`), or the image. What differs
               from machine to machine belongs in /etc/nccl.conf of each.
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

FAULT = Fault(code="HOLD509", slug="env-mismatch-nodes")

ITS_OWN = re.compile(
    r"_IFNAME$|_HCA$|_GID_INDEX$|^NCCL_DEBUG|_FILE$|_DIR$|^NCCL_HOSTID$|_TOPO_|^NCCL_COMM_ID$"
    r"|AFFINITY|^NCCL_CONF"
)
"""names whose values may differ: machines, cables and logs do"""

Values = Mapping[str, Mapping[str, Sighting]]
"""node -> variable -> where it was read"""


@FAULT.explain
def a_node_was_told_otherwise(wreckage: Wreckage) -> Diagnosis | None:
    """Only beside trouble that nobody explains: differences alone break few jobs."""
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
        if node and not ITS_OWN.search(one.fields["name"]):
            nodes[node].setdefault(one.fields["name"], one)
    return nodes if len(nodes) > 1 else {}


def _odd_one(told: Mapping[str, Sighting]) -> str:
    """The only node with its value, where the others agree; '' when there is no majority."""
    values = [one.fields["value"] for one in told.values()]
    alone = [node for node, one in told.items() if values.count(one.fields["value"]) == 1]
    return alone[0] if len(told) > 2 and len(alone) == 1 else ""


def _differs(name: str, told: Mapping[str, Sighting]) -> Diagnosis:
    odd = _odd_one(told)
    said = ", ".join(f"{one.fields['value']} on {node}" for node, one in sorted(told.items())[:4])
    return FAULT.diagnosis(
        f"{name} is not the same everywhere ({said}), and the ranks must agree on it to talk to "
        "each other; no rank told of an error of its own",
        confidence=0.55,
        seen=told.values(),
        culprit=Culprit(host="" if odd.startswith("rank ") else odd, what=name),
        fix=f"give {name} the same value on all nodes, or unset it everywhere",
        next="env | grep -E '^(NCCL|TORCH|GLOO)_' | sort",
    )


def _missing(name: str, told: Mapping[str, Sighting], without: list[str]) -> Diagnosis:
    return FAULT.diagnosis(
        f"{name} was read on {', '.join(sorted(told)[:4])} but not on {', '.join(without[:4])}, "
        "where NCCL showed other settings: the environment did not travel to every node",
        confidence=0.3,
        seen=told.values(),
        culprit=Culprit(what=name),
        fix=f"set {name} for all nodes (`srun --export`, `mpirun -x {name}`), or for none",
        next="env | grep -E '^(NCCL|TORCH|GLOO)_' | sort",
        unknown=("whether NCCL came so far on the other nodes that it would have shown it",),
    )

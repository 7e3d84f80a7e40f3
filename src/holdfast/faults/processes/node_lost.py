"""A machine of the job was lost.

What you see   `srun: error: Node failure on node7`, `DUE TO NODE FAILURE`, Ray's `has been marked
               dead because the detector has missed too many heartbeats`, Open MPI's `lost
               communication with a remote daemon`; or only timeouts on all other machines, while
               every rank of one machine stops writing at the same moment.
Why            Power, a kernel panic, a network card, a hypervisor that took the machine away, or an
               agent that was killed with everything under it. The connections are not closed, so
               the others notice only when a timeout expires.
               Under `holdfast run` the others say it within 10 s, and which ranks are gone with
               it: at once when its kernel closed the connection (the launcher was killed, or the
               machine shuts down), after 7.5 s of silence when nothing closed it. With a fixed
               number of nodes silence is a notice first, since the node may be paused: a verdict
               after --lease (60 s) without a connection.
How to be sure `sinfo -R` or `kubectl get nodes` for its state; `last -x reboot` and `journalctl -b
               -1` on the machine once it is back. holdfast names a machine only when all its ranks
               are silent and those of every other machine are not, or when a scheduler reports it.
Fix            Take the machine out of the job and restart from the newest checkpoint; let the
               scheduler replace it (`--requeue`, a spare node, an elastic range of nodes).
Known limits   From logs, and from outside, a lost machine cannot be told from a lost network to it.
               Without the machine's own kernel log the reason stays unknown. `run` asks the
               machine's kernel whether it still answers; a firewall may answer for it, or drop it.
Sources        https://slurm.schedmd.com/sbatch.html (NODE_FAIL, --requeue, --no-kill)
               https://docs.ray.io/en/latest/ray-core/fault_tolerance/nodes.html
               https://kubernetes.io/docs/concepts/architecture/nodes/
               https://github.com/ray-project/ray/issues/44680
               torch/distributed/elastic/rendezvous/dynamic_rendezvous.py: dead nodes, keep-alive
               NVIDIA/nccl docs/userguide/source/troubleshooting/ras.rst
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast import shell_words, text
from holdfast.analysis.drill import hosts
from holdfast.analysis.drill.injection import Injection, Then
from holdfast.analysis.drill.network_acts import LoseHost
from holdfast.analysis.drill.rehearsal import Rehearsal
from holdfast.analysis.job import lost_nodes
from holdfast.analysis.logs import blame, ras_evidence, suspects
from holdfast.analysis.logs.pattern import Role
from holdfast.analysis.logs.patterns import launchers
from holdfast.analysis.logs.wreckage import Sighting, Wreckage
from holdfast.analysis.nodes import Absence, NodesFacts
from holdfast.analysis.ras import judge as ras_judge
from holdfast.analysis.scene.node_view import NodeView
from holdfast.analysis.scene.scene import Scene
from holdfast.fault import Fault, RunTraits
from holdfast.findings import Culprit, Diagnosis, Evidence, Finding, Verdict

FAULT = Fault(
    code="HOLD705",
    slug="node-lost",
    related=("network-partition", "store-host-lost", "preempted", "peer-unreachable"),
    traits=RunTraits(priority=140, about_nodes=True),
)

NOT_HEARD = 7.5
"""seconds of silence that are said, where they are no proof"""

DEAD = FAULT.log_pattern(
    "marked-dead",
    r"node with (?:node|client) id:? (?P<id>\S+)(?: and (?:ip|address): (?P<host>\S+))?.*"
    r"marked dead because the (?:detector|monitor) has missed too many heartbeats"
    r"|node\(s\) '(?P<node>[^']+)'.* have been removed from the rendezvous .* had no heartbeat",
    anchors=("has been marked dead because", "since they had no heartbeat"),
    example="The node with node id: 75b2eec8 and address: 192.0.2.7 and node name: 192.0.2.7 has "
    "been marked dead because the detector has missed too many heartbeats from it.",
    role=Role.CONFIRMATION,
)
RAY = FAULT.log_pattern(
    "ray-node-died",
    r"actor (?:is dead|died) because its node has died(?:\. Node Id: (?P<id>\w+))?"
    r"|because the node it was running on is dead or unavailable"
    r"(?:\. Node IP: (?P<host>[\w.:\-]+),)?"
    r"|\bNodeDiedError\b|[Oo]wner's node has crashed|node was terminated unexpectedly",
    anchors=(
        "because its node has died",
        "node it was running on is dead",
        "wner's node has crashed",
        "NodeDiedError",
        "node was terminated unexpectedly",
    ),
    example="The actor died because its node has died. Node Id: 75b2eec8f1",
    role=Role.CONFIRMATION,
)
EXIT_BARRIER = FAULT.log_pattern(
    "exit-barrier",
    # torchrun's, on a node whose ranks are done; it ends all the same.
    r"Error waiting on exit barrier|wait timeout after \d{1,12}ms, keys: \S{0,200}terminal_state",
    anchors=("Error waiting on exit barrier", "terminal_state"),
    example="E1115 01:02:03.456000 4711 torch/distributed/elastic/agent/server/api.py:946] Error "
    "waiting on exit barrier. Elapsed: 300.1 seconds",
    role=Role.CASCADE,
)
DAEMON = FAULT.log_pattern(
    "daemon-lost",
    # Kubernetes: its events, and the table of `kubectl get nodes`; Compute Engine.
    r"NodeNotReady\b(?:[^\n]{0,60}\bNode (?P<status>[\w.\-]{1,253}) status is now)?"
    r"|Node (?P<now>[\w.\-]{1,253}) status is now: NodeNotReady"
    r"|^(?P<row>[a-z0-9][\w.\-]{0,252}) +NotReady(?:,SchedulingDisabled)? +\S"
    r"|TaintManagerEviction|compute\.instances\.hostError"
    r"|lost communication with a remote daemon|daemon .*has unexpectedly (?:failed|died)"
    r"|Connection to (?P<host>[\w.\-]+) closed by remote host|node\S* is not ready"
    r"|Node (?P<node>[\w.\-]+) (?:is )?(?:not responding|unreachable|went down)|NodeLost",
    anchors=(
        "lost communication with a remote daemon",
        " has unexpectedly ",
        " closed by remote host",
        "NodeNotReady",
        " NotReady",
        "TaintManagerEviction",
        "compute.instances.hostError",
        " is not ready",
        " not responding",
        " unreachable",
        " went down",
        "NodeLost",
    ),
    example="ORTE has lost communication with a remote daemon.",
    role=Role.CONFIRMATION,
)
REPLACE_NODE = (
    "take that machine out of the job, restart from the newest checkpoint, and have the machine "
    "checked before it returns"
)


@FAULT.check_nodes
def expected_node_did_not_answer(facts: NodesFacts) -> Finding | Sequence[Finding]:
    """A node without a name is counted by ranks-missing."""
    named = [one for one in facts.absent if one.name]
    if named:
        gone = {one.name for one in named}
        early = {node.name for node in facts.nodes} & gone
        others = len(facts.nodes) - len(early)
        return [_did_not_answer(one, others, answered=one.name in early) for one in named]
    return FAULT.ok(f"all {len(facts.nodes)} nodes answered")


def _did_not_answer(one: Absence, others: int, *, answered: bool) -> Finding:
    known = (
        "it answered at first and was lost during the check: it, its holdfast or the path to it "
        "went down meanwhile"
        if answered
        else "nothing is known of this node: it may be down, unreachable from here, or refuse the "
        "login"
    )
    return FAULT.error(
        f"{one.name} takes no part: {one.why}",
        reason=f"{known}. A job that includes it cannot start"
        + (f"; the other {others} were looked at" if others else ""),
        evidence=[Evidence(quote=one.why, source="ssh or the network", host=one.name)],
        fix=one.hint
        or f"`ssh {shell_words.word(one.name, 'NODE')} true`, or leave it out of the job",
        host=one.name,
    )


@FAULT.run
def launcher_or_machine_is_gone(scene: Scene) -> Verdict | None:
    """Several that went silent together are a network-partition; the store's host is another."""
    lost = [node for node in lost_nodes.lost(scene) if not node.serves_store]
    if not lost or not lost_nodes.is_cause(scene, lost):
        return None
    return FAULT.verdict(
        f"{lost_nodes.with_ranks(lost)} {_how(lost)}{lost_nodes.failed_before(scene, lost)}",
        ranks=lost_nodes.ranks_of(scene, lost),
        hosts=[node.name for node in lost],
        victims=lost_nodes.victims(scene, lost),
        certain=True,
        fix=_look_there(lost[0]),
        evidence=lost_nodes.evidence(scene, lost),
    )


@FAULT.run
def launcher_is_not_heard(scene: Scene) -> Verdict | None:
    """Where the lease is longer than that: it may come back, and is waited for."""
    late = [
        node
        for node in scene.nodes
        if node.hearing == "late" and node.silent >= NOT_HEARD and not node.told_to_stop
    ]
    if not late or not lost_nodes.is_cause(scene, late):
        return None
    return FAULT.verdict(
        f"{lost_nodes.with_ranks(late)}: {lost_nodes.how(late[0])}; its ranks may still run, and "
        "the job goes on once it is heard again",
        ranks=lost_nodes.ranks_of(scene, late),
        hosts=[node.name for node in late],
        victims=lost_nodes.victims(scene, late),
        certain=False,
        fix=_look_there(late[0]),
        evidence=lost_nodes.evidence(scene, late),
    )


def _how(lost: Sequence[NodeView]) -> str:
    if len(lost) == 1:
        ago = "" if lost[0].farewell in ("", "silent") else f" {text.elapsed(lost[0].silent)} ago"
        return f"was lost{ago}: {lost_nodes.how(lost[0])}"
    each = "; ".join(f"{node.name}: {lost_nodes.how(node)}" for node in lost[:3])
    more = f"; and {len(lost) - 3} more" if len(lost) > 3 else ""
    return f"were lost: {each}{more}"


def _look_there(node: NodeView) -> str:
    if node.farewell in ("closed", "left"):
        return (
            f"read the end of the launcher's output on {text.name(node.name)}; was it killed? `ssh "
            f"{shell_words.word(node.name, 'NODE')} journalctl -k --since -10min | grep -iE "
            "'oom|killed process'`"
        )
    where = next(iter(node.addresses), node.name)
    return (
        f"`ping -c 3 {shell_words.word(where, 'ADDRESS')}`; once it is back: `ssh "
        f"{shell_words.word(node.name, 'NODE')} last -x reboot shutdown | head -3`"
    )


@FAULT.explain
def node_reported_lost(wreckage: Wreckage) -> Diagnosis | None:
    sure = (
        *(s for s in wreckage.seen(launchers.SLURM_NODE)),
        *(s for s in wreckage.seen(launchers.SLURM_CANCELLED) if "NODE FAIL" in _why(s)),
        *wreckage.seen(DEAD, RAY),
    )
    seen = sure or wreckage.seen(DAEMON)
    if not seen:
        return None
    host = next((h for s in seen if (h := _host(s))), "")
    ray_alone = all(s.pattern == RAY.name for s in seen)
    own = blame.of(wreckage).own
    return FAULT.diagnosis(
        f"the machine{f' {host}' if host else ''} was lost, as the scheduler or launcher reported: "
        "its ranks are gone, and all others can only wait for them",
        # Ray calls a node dead when its raylet is gone: stopped, scaled down, or killed.
        confidence=0.5 if own else 0.85 if ray_alone else 0.92 if sure else 0.6,
        seen=seen,
        culprit=Culprit(host=host, what=host),
        victims=blame.of(wreckage).victims,
        fix=REPLACE_NODE,
        next="sinfo -R"
        if wreckage.seen(launchers.SLURM_NODE)
        else shell_words.command("ping -c 3 {}", host),
        unknown=("why: see its kernel log once it is back",),
    )


@FAULT.explain
def launcher_missed_at_the_end(wreckage: Wreckage) -> Diagnosis | None:
    """torchrun waits at its end for the launchers of the other nodes."""
    seen = wreckage.seen(EXIT_BARRIER)
    if not seen or blame.of(wreckage).explained:
        return None
    return FAULT.diagnosis(
        "the ranks of this node were done, and the launcher of another node did not follow within "
        "torchrun's limit: its ranks still ran, or that node was lost",
        confidence=0.45,
        seen=seen,
        culprit=Culprit(what="the launcher of another node"),
        fix="look at the end of the logs of the other nodes: one still runs, or says nothing",
        unknown=("which node it was: the line does not name it",),
    )


def _why(seen: Sighting) -> str:
    return seen.fields.get("why", "")


def _host(seen: Sighting) -> str:
    names = (
        seen.fields.get(name) for name in ("host", "node", "down", "failed", "status", "now", "row")
    )
    named = next(filter(None, names), "")
    return named.rstrip(".,")


@FAULT.explain
def all_ranks_of_node_silent(wreckage: Wreckage) -> Diagnosis | None:
    """Several hosts, and exactly the ranks of one of them are silent."""
    suspect = suspects.find(wreckage)
    if suspect is None or suspect.ended or suspect.how not in ("mute", "unheard"):
        return None
    hosts = {r.rank: r.host for r in wreckage.ranks if r.host}
    silent = {hosts.get(rank, "") for rank in suspect.ranks}
    host = next(iter(silent)) if len(silent) == 1 else ""
    there = {rank for rank, name in hosts.items() if name == host}
    if not host or there != set(suspect.ranks) or len(set(hosts.values())) < 2:
        return None
    alone = len(suspect.ranks) == 1
    return FAULT.diagnosis(
        f"{text.ranks(suspect.ranks)}, all ranks on {host}, went silent together while the ranks "
        "of the other machines kept running and waited: the machine or its network was lost",
        confidence=0.4 if alone else 0.75,
        seen=suspect.seen,
        evidence=[Evidence(quote=f"no message from {host}", source="silence", host=host)],
        culprit=Culprit(host=host, what=host),
        victims=suspect.victims,
        fix=REPLACE_NODE,
        next=shell_words.command("ping -c 3 {}", host),
        ruled_out=(*blame.ruled_out(wreckage), "an exited process: no connection was closed"),
        unknown=("whether it is still running", *blame.unknown(wreckage)),
    )


@FAULT.explain
def nccl_ras_misses_all_processes_of_a_node(wreckage: Wreckage) -> Diagnosis | None:
    answer = ras_evidence.newest(wreckage)
    lost = ras_judge.silent_hosts(answer) if answer else ()
    if answer is None or len(lost) != 1 or {one.host for one in answer.silent} != set(lost):
        return None
    host = lost[0]
    return FAULT.diagnosis(
        f"none of the {len(answer.silent)} processes on {host} answers NCCL's RAS, while those of "
        "other machines do: the machine or its network was lost, or all its processes ended",
        confidence=0.7,
        evidence=ras_evidence.quotes(answer),
        culprit=Culprit(host=host, what=host),
        victims=ras_evidence.others(answer, answer.silent),
        fix=REPLACE_NODE,
        next=shell_words.command("ping -c 3 {}", host),
        unknown=("whether the machine still runs",),
    )


# --- drill ---------------------------------------------------------------------------------------


CUT_OFF = ("network-partition", "store-host-lost", "peer-unreachable")
"""what a host says that is cut off from the others: it cannot tell which of them is"""
JOIN_TIMEOUT = 15.0
"""seconds for which that host tries to join again"""


@FAULT.drill(needs=("hosts",))
def pull_the_cable_of_a_host(rehearsal: Rehearsal) -> Injection:
    host = hosts.other_host(rehearsal)
    return Injection(
        does=f"the cables of {host} are out {rehearsal.when}; the others go on without it",
        act=LoseHost(host=host),
        then=Then.RESTARTS,
        culprits=(),
        hosts=(host,),
        beside=(*CUT_OFF, "wrong-master-address"),  # which it says while it joins again
        fewest_hosts=1,
        world=hosts.ranks_without(rehearsal.job, host),
        join_timeout=JOIN_TIMEOUT,
    )


@FAULT.drill("replaced", needs=("hosts",))
def host_loses_power_and_comes_back(rehearsal: Rehearsal) -> Injection:
    host = hosts.other_host(rehearsal)
    return Injection(
        does=f"{host} loses power {rehearsal.when}, and is there again once it was missed",
        act=LoseHost(host=host, power=True),
        then=Then.RESTARTS,
        culprits=(),
        hosts=(host,),
        beside=("launcher-killed",),  # as the next run there finds out
        lifted=True,
    )

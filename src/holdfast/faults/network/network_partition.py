"""The network between the machines of the job is split.

What you see   Ranks on some machines lose those on others, all at the same time and in both
               directions, while ranks within each part keep talking; `NIC Link is Down` in a kernel
               log; RAS reports that peers do not respond. No process crashed. `holdfast run` names
               the nodes that went silent together, and who is still with whom; the side of the
               coordinator goes on if it has enough nodes (`--nnodes MIN:MAX`), the other stops.
Why            A link, a switch or a rule between the parts stopped carrying packets. Established
               connections notice only when their retransmissions give up, a quarter of an hour by
               default (net.ipv4.tcp_retries2), so torch's own timeout is often the first to report
               it.
How to be sure `holdfast check` on all nodes connects each with every other and names the islands.
               By hand: `ping` between one machine of each part, and between two of the same part.
               Compare the kernel logs of both sides around the minute when it began: `journalctl
               -k`.
Fix            Repair the link; then start the job again, since a group cannot be repaired. A job
               that should survive it needs a launcher that restarts and a checkpoint.
Known limits   A log of one side alone looks like packet loss, an MTU problem or a lost node. The
               state of switches is not visible from a job. `holdfast check` sees only the nodes
               that it could reach itself: those of another island may be absent altogether. `run`
               cannot tell a split from several machines that go down within the same seconds.
Sources        torvalds/linux net/ipv4/tcp_timer.c: tcp_write_timeout
               https://docs.kernel.org/networking/ip-sysctl.html (tcp_retries2)
               NVIDIA/nccl docs/userguide/source/troubleshooting/ras.rst
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from holdfast import shell_words, text
from holdfast.analysis.drill.injection import Injection, Then
from holdfast.analysis.drill.network_acts import SplitNetwork
from holdfast.analysis.drill.rehearsal import Rehearsal
from holdfast.analysis.job import lost_nodes, path_probes, sick_paths
from holdfast.analysis.logs.pattern import Role
from holdfast.analysis.logs.patterns import connections
from holdfast.analysis.logs.patterns.dead_connections import DIED_IN_USE, peer_of
from holdfast.analysis.logs.wreckage import Wreckage
from holdfast.analysis.nodes import NodesFacts, blocked
from holdfast.analysis.nodes.islands import Island, is_partition
from holdfast.analysis.nodes.reachability import Matrix, islands, matrix
from holdfast.analysis.scene.node_view import NodeView
from holdfast.analysis.scene.scene import Scene
from holdfast.fault import SHOWN, Fault, RunTraits
from holdfast.findings import Culprit, Diagnosis, Evidence, Finding, Verdict

FAULT = Fault(
    code="HOLD206",
    slug="network-partition",
    related=("peer-unreachable", "node-lost", "mtu-black-hole", "packet-loss"),
    traits=RunTraits(priority=125, about_nodes=True),
)

LINK_DOWN = FAULT.log_pattern(
    "link-down",
    r"(?<![\w.@-])(?P<interface>[\w.@-]{1,64}): (?:NIC |Network )?[Ll]ink (?:is |status )?"
    r"(?:Down|down|DOWN)"
    r"|(?<![\w.@-])(?P<name>[\w.@-]{1,64}): [Cc]arrier lost"
    r"|\((?P<bonded>\w+)\): link status definitely down",
    anchors=(
        *("ink is Down", "ink is down", "ink is DOWN", "Link down", "Link Down", "link DOWN"),
        *("link status definitely down", "arrier lost"),
    ),
    example="Nov 15 01:02:03 node-a kernel: mlx5_core 0000:18:00.0 ens3f0np0: Link down",
    role=Role.CONFIRMATION,
)


@FAULT.check_nodes
def nodes_are_split_into_islands(facts: NodesFacts) -> Finding:
    if len(facts.nodes) < 2:
        return FAULT.does_not_apply("one node")
    paths = matrix(facts)
    found = islands(paths)
    if not is_partition(found):
        alone = [name for island in found[1:] for name in island]
        rest = f"; {text.names(alone)} alone: see peer-unreachable" if alone else ""
        return FAULT.ok(f"the nodes are not split into islands{rest}")
    between = [one for pair in _between(paths, found) for one in paths.by_pair[pair][:1]]
    return FAULT.error(
        f"the nodes form {len(found)} islands: {_listed(found)}",
        reason=f"nodes of one island reach each other, and nothing passes between islands, either "
        f"way ({blocked.outcomes(between)}): a link, a switch or a rule between them; a group over "
        "all nodes cannot form",
        evidence=[blocked.connect_evidence(one) for one in between[:SHOWN]],
        fix=f"find the hop that the islands do not share: `tracepath -n "
        f"{shell_words.word(between[0].target.address, 'ADDRESS')}` on "
        f"{text.name(between[0].source)}; or start the job on "
        f"{_listed(found[:1])} alone",
    )


def _between(paths: Matrix, found: list[Island]) -> Iterable[tuple[str, str]]:
    """One path for each two islands, from the first node of the one to the first of the other."""
    heads = [island[0] for island in found]
    wanted = [(a, b) for a in heads for b in heads if (a, b) in paths.by_pair]
    return wanted or paths.failed()


def _listed(found: list[Island]) -> str:
    return " | ".join(text.names(island, shown=8) for island in found)


# --- run -----------------------------------------------------------------------------------------


@FAULT.run
def nodes_went_silent_together(scene: Scene) -> Verdict | None:
    gone = lost_nodes.out_of_touch(scene)
    if not lost_nodes.went_together(gone) or not lost_nodes.is_cause(scene, gone):
        return None
    here = lost_nodes.heard(scene)
    silent = [node.silent for node in gone]
    return FAULT.verdict(
        f"{lost_nodes.with_ranks(gone)} went silent within "
        f"{text.elapsed(max(0.1, max(silent) - min(silent)))} of each other, "
        f"{text.elapsed(max(silent))} ago, {_split(here, len(gone))}",
        ranks=lost_nodes.ranks_of(scene, gone),
        hosts=[node.name for node in gone],
        victims=lost_nodes.victims(scene, gone),
        certain=True,
        fix=_try_from_both_sides(here, gone[0]),
        evidence=lost_nodes.evidence(scene, gone),
    )


def _split(here: Collection[NodeView], gone: int) -> str:
    alike = f"{gone} machines that go down at once look the same from here"
    if len(here) > 1:
        return (
            f"while {lost_nodes.with_ranks(here)} hear each other: the network between these two "
            f"groups is split; {alike}"
        )
    alone = next((node.name for node in here), "this node")
    return f"and {alone} hears no other node: {alone} itself is cut off from the network; {alike}"


def _try_from_both_sides(here: Collection[NodeView], lost: NodeView) -> str:
    home = next((node.name for node in here), "")
    address = next(iter(lost.addresses), lost.name)
    return (
        "find the hop that fails: `tracepath -n "
        f"{shell_words.word(address, 'ADDRESS')}`{f' on {home}' if home else ''}"
    )


@FAULT.run
def tries_show_islands(scene: Scene) -> Verdict | None:
    """All launchers are heard, and the network that the ranks use is split nevertheless."""
    sick = [one for one in sick_paths.of(scene) if one.is_unreachable]
    found = path_probes.found_islands(scene)
    if not sick or not is_partition(found) or len(lost_nodes.heard(scene)) < len(scene.nodes):
        return None
    return FAULT.verdict(
        f"the nodes form {len(found)} islands: {_listed(found)}; nothing passes between them, and "
        f"{text.ranks(r for one in sick for r in one.sign.ranks)} got no answer from the other "
        f"side for {text.elapsed(sick[0].sign.unanswered)}; {sick_paths.waiting(scene)}",
        ranks=(),
        paths=[one.pair for one in sick],
        victims=sick_paths.victims(scene),
        certain=sick_paths.certain(scene, sick),
        fix=f"find the hop that fails: `tracepath -n "
        f"{shell_words.word(sick[0].sign.stuck[0].peer, 'ADDRESS')}` on "
        f"{sick[0].pair[0]}",
        evidence=[
            *sick_paths.kernel_evidence(one.sign for one in sick[:2]),
            *(blocked.connect_evidence(one.tried.connects[0]) for one in sick[:2] if one.tried),
        ],
    )


def cut_off_from_coordinator(
    *,
    own: str,
    coordinator: str,
    reached: Collection[str],
    unreached: Collection[str],
    words: str,
    silent: float,
) -> Verdict:
    """What a launcher says that has lost its coordinator and tried the other nodes: `unreached`
    are those that do not answer either, besides the coordinator."""
    there = text.names([coordinator, *unreached])
    here = (
        f"{own} and {text.names(reached)} reach each other, but not {there}"
        if reached
        else f"{own} reaches no other node ({there})"
    )
    which = (
        "the network between them is split, and the side of the coordinator decides; "
        f"{1 + len(unreached)} machines that go down at once look the same from here"
        if reached
        else f"{own} itself is cut off from the network, or all the others are down"
    )
    return FAULT.verdict(
        f"{here}; nothing was heard from {coordinator}, which coordinates the job, for "
        f"{text.elapsed(silent)}: {which}",
        ranks=(),
        hosts=[coordinator, *unreached],
        certain=True,
        fatal=True,
        fix="repair the network between them, then start the job again: it resumes from its "
        "newest checkpoint",
        evidence=[
            Evidence(
                quote=words or f"no sign of {coordinator}", source="its launcher's connection"
            ),
            *(Evidence(quote=f"{node} does not answer", host=node) for node in unreached),
        ],
    )


@FAULT.explain
def link_went_down(wreckage: Wreckage) -> Diagnosis | None:
    down = wreckage.seen(LINK_DOWN)
    if not down:
        return None
    cut_off = wreckage.seen(DIED_IN_USE) or connections.attempts(wreckage)
    interface = next((v for k, v in down[0].fields.items() if v), "")
    host = down[0].line.host
    return FAULT.diagnosis(
        f"the kernel{f' of {host}' if host else ''} reported that the link of "
        f"{interface or 'an interface'} went down, which disconnected this machine from the others",
        confidence=0.7 if cut_off else 0.4,
        seen=down,
        culprit=Culprit(host=host, what=interface),
        fix="check cable, transceiver and switch port, then start the job again",
        next=shell_words.command("ethtool {}; journalctl -k | grep -i link", interface),
    )


@FAULT.explain
def hosts_lost_each_other(wreckage: Wreckage) -> Diagnosis | None:
    """Both sides report each other as lost, and no machine reports an error of its own."""
    if wreckage.seen(LINK_DOWN):
        return None
    died = wreckage.seen(DIED_IN_USE)
    sides = {one.line.host for one in died if one.line.host}
    lost = {peer_of(one) for one in died} - {""}
    if len(sides) < 2 or len(lost) < 2 or wreckage.roots(but=[FAULT.slug]):
        return None
    return FAULT.diagnosis(
        f"{' and '.join(sorted(sides))} lost each other at the same time, and no process crashed: "
        "the network between them stopped carrying packets",
        confidence=0.45,
        seen=died,
        culprit=Culprit(what="path between the hosts"),
        fix="repair the path, then start the job again; with a restart policy and checkpoints it "
        "survives the next time",
        next=shell_words.command("ping -c 3 {}", min(lost)),
        unknown=[
            "whether small packets still passed: then it is the MTU (`ping -M do -s 8972 PEER`)"
        ],
    )


# --- drill ---------------------------------------------------------------------------------------


@FAULT.drill(needs=("hosts",))
def split_and_heal(rehearsal: Rehearsal) -> Injection:
    """Of two hosts each is alone then, and sees the other one lost."""
    job = rehearsal.job
    half = (len(job.hosts) + 1) // 2
    here, there = job.hosts[:half], job.hosts[half:]
    return Injection(
        does=f"no packet passes between {text.names(here)} and {text.names(there)} "
        f"{rehearsal.when}, until it was named",
        act=SplitNetwork(groups=(here, there)),
        then=Then.RECOVERS,
        slugs=("network-partition", "node-lost"),
        culprits=(),
        hosts=there,
        beside=("network-partition", "store-host-lost", "peer-unreachable"),
        lifted=True,
    )

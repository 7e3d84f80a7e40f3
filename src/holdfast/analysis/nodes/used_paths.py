"""The paths that a job will use, of all that were tried: those to announced addresses."""

from __future__ import annotations

from holdfast.analysis.machine import rendezvous
from holdfast.analysis.nodes import announced, owners
from holdfast.analysis.nodes.facts import NodesFacts
from holdfast.analysis.nodes.paths import Outcome, PortKind, Reached
from holdfast.analysis.nodes.pattern import Pair
from holdfast.analysis.nodes.reachability import Matrix


def used(facts: NodesFacts, paths: Matrix) -> Matrix:
    """The connects that matter to a job. Where it is not known which address it uses, any that
    works will do."""
    every, _ = announced.announced(facts)
    tries = [one for found in paths.by_pair.values() for one in found]
    wrong = {
        (one.announced.node, one.announced.address)
        for one in announced.misplaced(facts, every, tries)
    }
    wanted = {(one.node, one.address) for one in every}
    host, _ = rendezvous.master_host(facts.plan)
    master = set(owners.addresses_of(facts, host)) if host else set()
    kept = {pair: _of_pair(found, wanted, wrong, master) for pair, found in paths.by_pair.items()}
    return Matrix({pair: found for pair, found in kept.items() if found})


def _of_pair(
    tries: tuple[Reached, ...], wanted: set[Pair], wrong: set[Pair], master: set[str]
) -> tuple[Reached, ...]:
    meant = tuple(
        one
        for one in tries
        if (one.target.node, one.target.address) in wanted
        or (one.target.kind is PortKind.MASTER and one.target.address in master)
    )
    if meant:
        return tuple(one for one in meant if (one.target.node, one.target.address) not in wrong)
    by_address: dict[str, list[Reached]] = {}
    for one in tries:
        by_address.setdefault(one.target.address, []).append(one)
    for found in by_address.values():
        if all(one.outcome is Outcome.OK for one in found):
            return tuple(found)
    return tries

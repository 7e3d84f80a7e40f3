"""What the results mean, with the reason for each."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast import text
from holdfast.analysis.nodes.isolation.evidence import (
    STRIKES,
    IsolationEvidence,
    Pair,
    weigh,
)
from holdfast.analysis.nodes.isolation.racks import cut_racks, remarks_on_racks
from holdfast.analysis.nodes.isolation.results import (
    Isolation,
    IsolationState,
    JudgedNode,
    JudgedPair,
    PairOutcome,
    PairResult,
)

UNSTEADY = "it fails now and then, or several of its links do"


def conclude(state: IsolationState) -> Isolation:
    """May be asked after any round; what is not settled by then is undecided."""
    evidence = weigh(state)
    cut = cut_racks(evidence)
    across = {pair for pairs in cut.values() for pair in pairs}
    unsteady = _unsteady(evidence, across)
    transient = {
        pair: seen
        for pair, seen in evidence.not_fine.items()
        if pair in evidence.fine and not all(map(evidence.is_slow, seen))
    }
    links = {
        pair: evidence.not_fine[pair]
        for pair in evidence.questioned
        if not pair & unsteady and (len(evidence.not_fine[pair]) > 1 or pair in across)
    }
    slow = {pair for pair, seen in links.items() if all(map(evidence.is_slow, seen))}
    too_many = len(_failing(evidence)) > evidence.limit
    undecided = dict(_undecided(evidence, unsteady, too_many=too_many))
    in_doubt = {*undecided, *(name for pair in transient for name in pair)}
    return Isolation(
        bad=() if too_many else tuple(_judged(evidence, evidence.bad)),
        stragglers=tuple(_judged(evidence, evidence.stragglers)),
        undecided=tuple(JudgedNode(name=name, why=why) for name, why in undecided.items()),
        cleared=tuple(
            name for name in evidence.present if evidence.passes(name) and name not in in_doubt
        ),
        links=tuple(_link(pair, seen) for pair, seen in links.items() if pair not in slow),
        slow_links=tuple(_slow_link(evidence, pair) for pair in links if pair in slow),
        transient=tuple(_transient(pair, seen) for pair, seen in transient.items()),
        rounds=len(state.rounds),
        remarks=tuple(_remarks(evidence, cut, links)),
    )


# --- nodes ---------------------------------------------------------------------------------------


def _judged(evidence: IsolationEvidence, names: Iterable[str]) -> Iterable[JudgedNode]:
    return (JudgedNode(name=name, why=_case_against(evidence, name)) for name in names)


def _case_against(evidence: IsolationEvidence, name: str) -> str:
    strikes = evidence.strikes(name)
    failed = [one for one in strikes if one.outcome is PairOutcome.FAILED]
    slow = [one for one in strikes if evidence.is_slow(one)]
    said = next((one.why for one in failed if one.why), "")
    parts = [
        *([f"fails with {_partners(failed, name)}"] if failed else ()),
        *([f"is slow with {_partners(slow, name)} ({_speeds(evidence, slow)})"] if slow else ()),
    ]
    others = f"{' and '.join(parts)}, each of which is fine with others"
    return f"{others}; {said}" if said else others


def _undecided(
    evidence: IsolationEvidence, unsteady: set[str], *, too_many: bool
) -> Iterable[tuple[str, str]]:
    for name in evidence.state.nodes:
        if name in evidence.missing:
            yield name, f"did not take part: {evidence.missing[name]}"
        elif name in unsteady:
            with_some = text.names(evidence.cleared_by[name])
            others = text.names(evidence.accusers[name])
            yield name, f"passes with {with_some}, fails with {others}: {UNSTEADY}"
    if too_many:
        for name in evidence.bad:
            yield name, f"{_case_against(evidence, name)}; but {_how_many(evidence)}"
    why_open = _why_open(evidence, too_many=too_many)
    for name in evidence.open:
        yield name, why_open


def _why_open(evidence: IsolationEvidence, *, too_many: bool) -> str:
    count = len(evidence.present)
    if count < 2:
        return "no other node to test it with"
    if not any(evidence.met.values()):
        return "not tested"
    if count == 2:
        return "the only pair fails, and no third node can tell which of the two it is"
    if not evidence.cleared_by:
        return "no pair of nodes passes: a shared cause is likelier than a fault of each"
    if too_many:
        return f"not tested further: {_how_many(evidence)}"
    return f"not settled after {len(evidence.state.rounds)} rounds"


def _how_many(evidence: IsolationEvidence) -> str:
    count, of = len(_failing(evidence)), len(evidence.state.nodes)
    return f"{count} of {of} nodes fail, so a shared cause is likelier than a fault of each"


def _failing(evidence: IsolationEvidence) -> list[str]:
    """Those that are called bad, and those that failed and may be."""
    return [*evidence.bad, *(name for name in evidence.open if evidence.met[name])]


def _unsteady(evidence: IsolationEvidence, across: set[Pair]) -> set[str]:
    """Those whose trouble is not that a whole rack is cut off."""
    return {
        name
        for name in evidence.unsteady
        if sum(frozenset((name, by)) not in across for by in evidence.accusers[name]) >= STRIKES
    }


def _remarks(
    evidence: IsolationEvidence, cut: dict[str, set[Pair]], links: dict[Pair, list[PairResult]]
) -> Iterable[str]:
    yield from remarks_on_racks(evidence, cut)
    if evidence.speeds_vary:
        yield (
            "speeds are not compared: more than a quarter of the nodes are slower than half the "
            "median"
        )
    elif fastest := evidence.far_ahead:
        yield (
            f"{fastest.first} and {fastest.second} reach {text.bandwidth(fastest.speed or 0.0)}, "
            f"more than twice the median ({text.bandwidth(evidence.median)}): most nodes may be "
            "slow"
        )
    for pair in evidence.questioned:
        if pair not in links and not pair & evidence.unsteady:
            yield f"{' and '.join(sorted(pair))} failed once and were not tested again"


# --- pairs ---------------------------------------------------------------------------------------


def _link(pair: Pair, seen: list[PairResult]) -> JudgedPair:
    first, second = sorted(pair)
    said = next((f"; {one.why}" for one in seen if one.why), "")
    times = "" if len(seen) == 1 else f" {len(seen)} times"
    return JudgedPair(
        first=first,
        second=second,
        why=f"failed{times}, while each of them passes with others{said}",
    )


def _slow_link(evidence: IsolationEvidence, pair: Pair) -> JudgedPair:
    first, second = sorted(pair)
    speeds = _speeds(evidence, evidence.not_fine[pair])
    return JudgedPair(
        first=first, second=second, why=f"{speeds}, while each of them is fast with others"
    )


def _transient(pair: Pair, seen: list[PairResult]) -> JudgedPair:
    first, second = sorted(pair)
    said = next((f": {one.why}" for one in seen if one.why), "")
    return JudgedPair(first=first, second=second, why=f"failed once and passed later{said}")


def _partners(results: Iterable[PairResult], name: str) -> str:
    return text.names({other for one in results for other in one.pair - {name}})


def _speeds(evidence: IsolationEvidence, slow: list[PairResult]) -> str:
    best = max(one.speed or 0.0 for one in slow)
    median = text.bandwidth(evidence.median)
    return f"{text.bandwidth(best)} at best, the median of the nodes is {median}"

"""What the results mean, with the reason for each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from holdfast import text
from holdfast.analysis.nodes.isolation.evidence import (
    STRIKES,
    IsolationEvidence,
    Pair,
)
from holdfast.analysis.nodes.isolation.racks import cut_racks, remarks_on_racks
from holdfast.analysis.nodes.isolation.results import (
    Isolation,
    IsolationState,
    JudgedNode,
    JudgedPair,
    PairResult,
)
from holdfast.analysis.nodes.isolation.speeds import SpeedEvidence, concluded

UNSTEADY = "it fails now and then, or several of its links do"


def conclude(state: IsolationState) -> Isolation:
    """May be asked after any round; what is not settled by then is undecided."""
    works, speed = IsolationEvidence(state), concluded(state)
    cut = cut_racks(works)
    across = {pair for pairs in cut.values() for pair in pairs}
    unsteady = _unsteady(works, across)
    slow = set() if speed.vary else {*speed.questioned}
    failed = {pair: seen for pair, seen in works.not_fine.items() if pair in works.fine}
    transient = {pair: seen for pair, seen in failed.items() if pair not in slow}
    links = {
        pair: works.not_fine[pair]
        for pair in works.questioned
        if not pair & unsteady and (len(works.not_fine[pair]) > 1 or pair in across)
    } | {pair: seen for pair, seen in failed.items() if pair in slow}
    too_many = len(_failing(works)) > works.limit
    undecided = dict(_undecided(works, unsteady, too_many=too_many))
    stragglers = [] if speed.vary else [n for n in speed.blamed if n not in undecided]
    in_doubt = {*undecided, *stragglers, *(name for pair in transient for name in pair)}
    return Isolation(
        bad=() if too_many else tuple(_bad(works, name) for name in works.blamed),
        stragglers=tuple(_straggler(speed, name) for name in stragglers),
        undecided=tuple(JudgedNode(name=name, why=why) for name, why in undecided.items()),
        cleared=tuple(
            name for name in works.present if works.passes(name) and name not in in_doubt
        ),
        links=tuple(_link(pair, seen, speed) for pair, seen in links.items()),
        slow_links=tuple(
            _slow_link(speed, pair)
            for pair in speed.questioned
            if pair in slow - links.keys()
            and len(speed.not_fine[pair]) > 1
            and not pair & speed.unsteady
        ),
        transient=tuple(_transient(pair, seen) for pair, seen in transient.items()),
        rounds=len(state.rounds),
        remarks=(
            *remarks_on_racks(works, cut),
            *_remarks_on_speed(speed),
            *_not_tested_again(works, links),
        ),
    )


# --- nodes ---------------------------------------------------------------------------------------


def _bad(works: IsolationEvidence, name: str) -> JudgedNode:
    return JudgedNode(name=name, why=_case_against(works, name))


def _case_against(works: IsolationEvidence, name: str) -> str:
    strikes = works.strikes(name)
    said = next((f"; {one.why}" for one in strikes if one.why), "")
    return f"fails with {_partners(strikes, name)}, each of which passes with others{said}"


def _straggler(speed: SpeedEvidence, name: str) -> JudgedNode:
    slow = speed.strikes(name)
    return JudgedNode(
        name=name,
        why=f"is slow with {_partners(slow, name)} ({_speeds(speed, slow)}), each of which is fast "
        "with others",
    )


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
        for name in evidence.blamed:
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
    return [*evidence.blamed, *(name for name in evidence.open if evidence.met[name])]


def _unsteady(evidence: IsolationEvidence, across: set[Pair]) -> set[str]:
    """Those whose trouble is not that a whole rack is cut off."""
    return {
        name
        for name in evidence.unsteady
        if sum(frozenset((name, by)) not in across for by in evidence.accusers[name]) >= STRIKES
    }


def _remarks_on_speed(speed: SpeedEvidence) -> Iterable[str]:
    if speed.vary:
        yield (
            "speeds are not compared: more than a quarter of the nodes are slower than half the "
            "median"
        )
    elif fastest := speed.far_ahead:
        yield (
            f"{fastest.first} and {fastest.second} reach {text.bandwidth(fastest.speed or 0.0)}, "
            f"more than twice the median ({text.bandwidth(speed.median)}): most nodes may be slow"
        )


def _not_tested_again(
    works: IsolationEvidence, links: Mapping[Pair, list[PairResult]]
) -> Iterable[str]:
    for pair in works.questioned:
        if pair not in links and not pair & works.unsteady:
            yield f"{' and '.join(sorted(pair))} failed once and were not tested again"


# --- pairs ---------------------------------------------------------------------------------------


def _link(pair: Pair, seen: list[PairResult], speed: SpeedEvidence) -> JudgedPair:
    first, second = sorted(pair)
    said = next((f"; {one.why}" for one in seen if one.why), "")
    times = "" if len(seen) == 1 else f" {len(seen)} times"
    slow = f" and else is slow ({_speeds(speed, s)})" if (s := speed.not_fine.get(pair)) else ""
    return JudgedPair(
        first=first,
        second=second,
        why=f"failed{times}{slow}, while each of them passes with others{said}",
    )


def _slow_link(speed: SpeedEvidence, pair: Pair) -> JudgedPair:
    first, second = sorted(pair)
    speeds = _speeds(speed, speed.not_fine[pair])
    return JudgedPair(
        first=first, second=second, why=f"{speeds}, while each of them is fast with others"
    )


def _transient(pair: Pair, seen: list[PairResult]) -> JudgedPair:
    first, second = sorted(pair)
    said = next((f": {one.why}" for one in seen if one.why), "")
    return JudgedPair(first=first, second=second, why=f"failed once and passed later{said}")


def _partners(results: Iterable[PairResult], name: str) -> str:
    return text.names({other for one in results for other in one.pair - {name}})


def _speeds(speed: SpeedEvidence, slow: list[PairResult]) -> str:
    best = max(one.speed or 0.0 for one in slow)
    median = text.bandwidth(speed.median)
    return f"{text.bandwidth(best)} at best, the median of the nodes is {median}"

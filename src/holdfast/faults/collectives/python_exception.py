"""A rank raised an exception.

What you see   A traceback on one rank, and a moment later tracebacks on all the others:
               `Connection closed by peer`, `Connection reset by peer`, timeouts. In several
               thousand lines of log the first one is hard to find, and most launchers show
               another.
Why            The ranks of a group depend on each other: when one raises, the others lose their
               connections to it within milliseconds. Only the first exception shows the cause.
               torchrun orders by whole seconds and by what its poll saw first, so it may show a
               neighbour's.
How to be sure The rank holdfast names wrote its exception before any other rank lost a connection;
               its whole traceback is in its own log, under attempt-N/rank-R in the run folder.
               Messages about lost peers and timeouts are never taken for a cause, nor is an
               exception after which the same program counted further steps: that one was caught.
               What torchrun or another launcher raises itself is the launcher's, not a rank's.
Fix            Fix that line. If only one rank raised it, look at that rank's data and at code under
               `if rank == …`. If all ranks raised it, run the script with one rank first.
Known limits   Logs without timestamps of several nodes do not show which exception came first;
               then the order of the files decides.
Sources        torch/distributed/elastic/multiprocessing/errors/__init__.py: get_first_failure
               https://docs.pytorch.org/docs/stable/elastic/errors.html
               https://github.com/huggingface/accelerate/issues/4139
               https://github.com/pytorch/pytorch/issues/78531
"""

from __future__ import annotations

from holdfast import shell_words, text
from holdfast.analysis.collectives import inner_exception, stacks, waits
from holdfast.analysis.drill.injection import BreakInside, Injection, Then
from holdfast.analysis.drill.rehearsal import Rehearsal
from holdfast.analysis.job import pace, phrases
from holdfast.analysis.logs import blame, broken_scripts, exception_advice, own_errors
from holdfast.analysis.logs.wreckage import Exit, LoggedException, Wreckage
from holdfast.analysis.scene import exits, secondary_errors
from holdfast.analysis.scene.exits import Ending
from holdfast.analysis.scene.scene import RankView, Scene
from holdfast.fault import Fault, RunTraits
from holdfast.findings import Culprit, Diagnosis, Evidence, Verdict

FAULT = Fault(
    code="HOLD611",
    slug="python-exception",
    traits=RunTraits(priority=265, general=True),
    related=("rank-killed", "native-crash", "rank-exits-early", "framework-bug"),
)


@FAULT.run
def rank_raised_first(scene: Scene) -> Verdict | None:
    raised = [e for e in exits.cause(scene) if not e.signal]
    if not raised or (all(e.mute for e in raised) and waits.analyse(scene).mismatch):
        return None
    if any(e.view.words and e.view.words.slugs for e in raised):
        return None  # one of holdfast's own, about another fault, which says so
    if early := _all_exited_early(scene):
        return early
    first = raised[0]
    same = [e for e in exits.endings(scene) if e in raised or any(_alike(e, r) for r in raised)]
    ranks = [e.rank for e in same]
    victims = exits.fallen(scene, ranks)
    return FAULT.verdict(
        f"{phrases.who(scene, ranks)} {_did(first)}{phrases.at_step(first.view)}"
        f"{phrases.exited_as_a_result(victims)}",
        ranks=ranks,
        victims=victims,
        certain=True,
        fix=_fix(first, phrases.log_of(scene.rank(min(ranks)))),
        evidence=[phrases.how_it_ended(e) for e in same],
    )


def _all_exited_early(scene: Scene) -> Verdict | None:
    """Every rank exited with one code before the first step, and none raised: a mistyped flag, a
    missing file. The script or Python has said why, and nothing tells the ranks apart."""
    ended = exits.endings(scene)
    codes = {phrases.exit_code(e.view) for e in ended}
    if len(ended) < len(scene.ranks) or len(codes) > 1 or pace.steps(scene):
        return None
    if any(e.view.words or e.signal for e in ended):
        return None
    ranks, code = [e.rank for e in ended], codes.pop()
    many = f"all {len(ranks)} ranks" if len(ranks) > 1 else phrases.who(scene, ranks)
    return FAULT.verdict(
        f"{many} exited with code {code} before the first step{phrases.called(ended[0].view)}",
        ranks=ranks,
        certain=True,
        fix=f"read the script's own message above, or in {phrases.log_of(ended[0].view)}",
        evidence=[Evidence(quote=f"exit code {code}")],
    )


@FAULT.run
def ranks_failed_without_a_cause(scene: Scene) -> Verdict | None:
    """Ranks lost a peer, and none shows why: reported as such, without a culprit."""
    ended = exits.endings(scene)
    if not ended or exits.cause(scene):
        return None
    ranks = [e.rank for e in ended]
    return FAULT.verdict(
        f"{text.ranks(ranks)} lost a peer or timed out, and no rank shows the cause: "
        f"{phrases.how_it_ended(ended[0]).quote}",
        ranks=(),
        victims=exits.fallen(scene, ()),
        certain=False,
        fix="look for the first error in the ranks' logs, before these lines",
        evidence=[phrases.how_it_ended(e) for e in ended],
    )


def _alike(ending: Ending, first: Ending) -> bool:
    """The same exception at the same line: one fault of all of them, not a first and victims."""
    mine, theirs = ending.view.words, first.view.words
    return bool(
        mine and theirs and mine.where and (mine.kind, mine.where) == (theirs.kind, theirs.where)
    )


def _did(ending: Ending) -> str:
    view = ending.view
    if view.words:
        asked = view.words.exit_code is not None
        return f"raised {phrases.quoted(view.words)}{_then_exited(view) if asked else ''}"
    how = phrases.called(view) or " and recorded no exception"
    return f"exited with code {phrases.exit_code(view)}{how}"


def _what(ending: Ending) -> str:
    return "the whole traceback" if ending.view.words else "the last lines"


def _fix(ending: Ending, log: str) -> str:
    said = ending.view.words
    # Where holdfast's own library raised it, it knows what to do.
    advice = (said.hint or exception_advice.of(said.kind, said.text)) if said else ""
    return f"{advice}; {_what(ending)}: {log}" if advice else f"read {_what(ending)} in {log}"


def _then_exited(view: RankView) -> str:
    return f" and exited with code {phrases.exit_code(view)}{phrases.called(view)}"


# --- explain -------------------------------------------------------------------------------------


@FAULT.explain
def first_exception_in_the_logs(wreckage: Wreckage) -> Diagnosis | None:
    """The first exception that is not about another rank."""
    troubles = {(t.line.source, t.line.number) for t in blame.of(wreckage).own}
    causes = [r for r in wreckage.raised if own_errors.tells_a_cause(r) and _is_own(r, troubles)]
    refused = set(broken_scripts.refused(wreckage))
    causes = [r for r in causes if r not in refused]
    if not causes:
        return None
    first = _earliest(causes)
    same = [r for r in causes if (r.kind, _place(r)) == (first.kind, _place(first))]
    told = sorted({r.rank for r in same if r.rank is not None})
    ranks = told or _all_that_failed(wreckage, first)
    named = [r for r in same if r.root_slugs]
    others = blame.of(wreckage).others(*ranks)
    return FAULT.diagnosis(
        f"{_who(first, ranks)} raised {_quoted(first)}{_consequence(others)}",
        confidence=_sure(first, ranks, others, known=bool(named)),
        culprit=_culprit(wreckage, first, ranks),
        victims=others,
        evidence=[*map(_evidence, same[:3]), *blame.complaints(wreckage)[:2]],
        fix=FIX_LAUNCH
        if first.launcher
        else exception_advice.of(first.kind, first.text, first.frames) or FIX_LINE,
        next=_look(first),
        unknown=_unknown(first, ranks),
    )


def _all_that_failed(wreckage: Wreckage, first: LoggedException) -> list[int]:
    """As many tracebacks as ranks that failed: each of them raised it."""
    failed = {e.rank for e in wreckage.exits if e.code == 1 and not e.teardown}
    known = sorted(rank for rank in failed if rank is not None)
    return known if first.times == len(known) == len(failed) > 1 else []


FIX_LINE = (
    "fix that line; if only one rank raised it, look at that rank's data and at code under "
    "`if rank == …`"
)
FIX_LAUNCH = "fix what the launcher complains about: its options, files or permissions"


FEW_STEPS = 10
"""that other ranks may still have done after one of them had raised"""


@FAULT.explain
def exception_before_the_job_went_on(wreckage: Wreckage) -> Diagnosis | None:
    """A rank failed, and the only exception has steps after it: caught, or the steps were buffered
    and written late. Both are said."""
    failed = [e for e in wreckage.exits if e.code > 0 and not e.teardown]
    own = blame.of(wreckage)
    survived = [r for r in wreckage.raised if r.consequence == secondary_errors.SURVIVED]
    late = [r for r in survived if (r.steps_after < FEW_STEPS if own.lost else failed)]
    if not late or own.explained or own.disagreement or own.waited:
        return None
    last, ranks = late[-1], sorted({r.rank for r in late[-1:] if r.rank is not None})
    end = f"; {blame.subject(failed[0])} exited with code {failed[0].code}" if failed else ""
    return FAULT.diagnosis(
        f"{_who(last, ranks)} raised {_quoted(last)}; lines of training follow it, so it was "
        f"caught, or those lines are another rank's or were written late{end}",
        confidence=0.4,
        culprit=_culprit(wreckage, last, ranks),
        victims=own.lost,
        evidence=[
            _evidence(last),
            *map(blame.of_exit, failed[:1]),
            *blame.complaints(wreckage)[:2],
        ],
        fix="run with `python -u` (or PYTHONUNBUFFERED=1), so that all lines are in order",
        next=_look(last),
        unknown=("whether it ended the program: the order of the lines does not show it",),
    )


def _unknown(first: LoggedException, ranks: list[int]) -> tuple[str, ...]:
    which = (
        f"which ranks raised it: the log has {first.times} such tracebacks, and no line has a rank"
        if first.times > 1
        else "which rank it was: the lines have no rank"
    )
    found = [] if ranks or first.launcher else [which]
    if _is_nccl(first):
        found.append("NCCL's own reason: NCCL_DEBUG=WARN prints it")
    return tuple(found)


def _is_nccl(raised: LoggedException) -> bool:
    """The exception only hands on what NCCL returned."""
    return raised.text.startswith(("NCCL error", "NCCL Error"))


def _is_own(raised: LoggedException, troubles: set[tuple[str, int]]) -> bool:
    """Not a consequence: the same rank had not reported before that it lost or missed another."""
    return bool(raised.root_slugs) or (raised.line.source, raised.line.number) in troubles


def _earliest(causes: list[LoggedException]) -> LoggedException:
    if all(r.line.at is not None for r in causes):
        return min(causes, key=lambda r: (r.line.at or 0.0, r.order))
    return min(causes, key=lambda r: r.order)


def _sure(
    first: LoggedException, ranks: list[int], others: tuple[int, ...], *, known: bool
) -> float:
    """A fault whose own log line it contains is the better name; then this one yields."""
    if known:
        return 0.35
    if _is_nccl(first):
        return 0.4
    if not first.frames:
        return 0.55 if ranks else 0.45
    return 0.85 if len(ranks) == 1 and others else 0.7


def _who(raised: LoggedException, ranks: list[int]) -> str:
    if raised.launcher:
        return "the launcher, not a rank,"
    return text.ranks(ranks) if ranks else "a rank"


def _place(raised: LoggedException) -> str:
    return stacks.raised_at(raised.frames)


def _quoted(raised: LoggedException) -> str:
    if inner := inner_exception.find(raised.text):
        return text.shorten(inner.words(), 2 * phrases.LONGEST)
    short = text.shorten(" ".join(raised.text.split()), phrases.LONGEST)
    place = _place(raised)
    return (f"{raised.kind}: {short}" if short else raised.kind) + (f" {place}" if place else "")


def _consequence(others: tuple[int, ...]) -> str:
    return f"; {text.ranks(others)} failed as a result" if others else ""


def _culprit(wreckage: Wreckage, first: LoggedException, ranks: list[int]) -> Culprit | None:
    """If several ranks raised the same, the culprit is the line, not one of them."""
    if first.launcher:
        return Culprit(host=first.line.host, pid=first.line.pid, what="the launcher")
    if len(ranks) > 1:
        return Culprit(what=_place(first) or first.kind)
    if ranks:
        remains = wreckage.rank(ranks[0])
        return Culprit(
            rank=ranks[0],
            host=first.line.host or (remains.host if remains else ""),
            pid=first.line.pid or (remains.pid if remains else None),
        )
    return Culprit(what=_place(first)) if first.frames else None


def _evidence(raised: LoggedException) -> Evidence:
    line = raised.line
    return Evidence(
        quote=_quoted(raised), source=line.source, line=line.number, rank=line.rank,
        host=line.host or None,
    )  # fmt: skip


def _look(raised: LoggedException) -> str:
    line = raised.line
    if line.source.startswith("<") or ": " in line.source:  # piped in, or inside an archive
        return ""
    lines = f"{max(1, line.number - 40)},{line.number + 5}p"
    return shell_words.command("sed -n {} {}", lines, line.source)


@FAULT.explain
def rank_exited_with_an_error_code(wreckage: Wreckage) -> Diagnosis | None:
    """No exception is shown, only that a rank exited with an error: then its log has it."""
    known = blame.of(wreckage)
    failed = [e for e in wreckage.exits if e.code > 0 and not e.teardown]
    if not failed or known.explained or wreckage.raised or known.disagreement:
        return None
    first = next((e for e in failed if e.first), failed[0])
    return FAULT.diagnosis(
        f"{blame.subject(first)} exited with code {first.code}, and these lines do not show why: "
        "its own log has the exception",
        confidence=0.4,
        culprit=_ended(first),
        victims=known.others(first.rank),
        evidence=[blame.of_exit(e) for e in failed[:3]],
        fix="read the log of that rank, from its first error on; `holdfast run`, or `torchrun "
        "--log-dir logs --tee 3`, keeps one for each rank",
        unknown=("what it raised: its log was not given, or holdfast knows no line in it",),
    )


def _ended(end: Exit) -> Culprit:
    what = "" if end.rank is not None or end.local_rank is None else f"local rank {end.local_rank}"
    return Culprit(rank=end.rank, host=end.host, pid=end.pid, what=what)


@FAULT.drill()
def raise_in_a_rank(rehearsal: Rehearsal) -> Injection:
    return Injection(
        does=f"rank {rehearsal.rank} raises an exception {rehearsal.when}",
        act=BreakInside(how="raise"),
        then=Then.RESTARTS,
    )

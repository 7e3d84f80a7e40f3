"""A rank raised an exception.

What you see   A traceback on one rank, and a moment later tracebacks on all the others:
               `Connection closed by peer`, `Connection reset by peer`, timeouts. With several
               thousand lines of log the first one is hard to find, and most launchers show
               another.
Why            The ranks of a group live and die together: when one raises, the others lose their
               connections to it within milliseconds. Only the first exception tells anything.
               torchrun orders by whole seconds and by what its poll saw first, so it may show a
               neighbour's.
How to be sure The rank holdfast names wrote its exception before anybody lost a connection; its
               whole traceback is in its own log, under attempt-N/rank-R in the run folder.
               Wordings of lost peers and of timeouts are never taken for a cause.
Fix            Repair that line. Raised on one rank only: look at that rank's data and at code
               under `if rank == …`. Raised on all ranks alike: run the script alone first.
Sources        torch/distributed/elastic/multiprocessing/errors/__init__.py: get_first_failure
               https://docs.pytorch.org/docs/stable/elastic/errors.html
               https://github.com/huggingface/accelerate/issues/4139
               https://github.com/pytorch/pytorch/issues/78531
"""

from __future__ import annotations

from holdfast import endings, scene_words
from holdfast.collectives import waits
from holdfast.endings import Ending
from holdfast.model import Fault, Verdict
from holdfast.signals import Scene

FAULT = Fault(code="HOLD611", slug="python-exception")


@FAULT.notice
def it_raised_first(scene: Scene) -> Verdict | None:
    raised = [e for e in endings.cause(scene) if not e.signal]
    if not raised or (all(e.mute for e in raised) and waits.analyse(scene).mismatch):
        return None
    first = raised[0]
    same = [e for e in endings.endings(scene) if e in raised or any(_alike(e, r) for r in raised)]
    ranks = [e.rank for e in same]
    victims = endings.fallen(scene, ranks)
    return FAULT.verdict(
        f"{scene_words.who(scene, ranks)} {_did(first)}{scene_words.at_step(first.view)}"
        f"{scene_words.fell_with(victims)}",
        ranks=ranks,
        victims=victims,
        certain=True,
        fix=f"read the whole traceback in the log of rank {min(ranks)}",
        evidence=[scene_words.how_it_ended(e) for e in same],
    )


@FAULT.notice
def only_echoes_are_left(scene: Scene) -> Verdict | None:
    """Ranks lost a peer, and nobody shows why: said so, and nobody is blamed."""
    ended = endings.endings(scene)
    if not ended or endings.cause(scene):
        return None
    ranks = [e.rank for e in ended]
    return FAULT.verdict(
        f"{scene_words.plain(ranks)} lost a peer or waited in vain, and no rank shows the cause: "
        f"{scene_words.how_it_ended(ended[0]).quote}",
        ranks=(),
        victims=endings.fallen(scene, ()),
        certain=False,
        fix="look for the first sign of trouble in the ranks' logs, before these lines",
        evidence=[scene_words.how_it_ended(e) for e in ended],
    )


def _alike(ending: Ending, first: Ending) -> bool:
    """The same exception at the same line: one fault of all of them, not a first and victims."""
    mine, theirs = ending.view.words, first.view.words
    return bool(
        mine and theirs and mine.where and (mine.kind, mine.where) == (theirs.kind, theirs.where)
    )


def _did(ending: Ending) -> str:
    words, death = ending.view.words, ending.view.death
    if words:
        return f"raised {scene_words.quoted(words)}"
    return f"ended with exit code {death.code if death else '?'} and left no last words"

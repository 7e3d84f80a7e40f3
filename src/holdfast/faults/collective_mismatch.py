"""Ranks meet in different collectives, or with different sizes.

What you see   With NCCL a silent hang until the timeout, or `Message truncated`. With Gloo
               `terminate called after throwing an instance of 'gloo::EnforceNotMet' … Received data
               size doesn't match expected size` and SIGABRT, mostly on a rank that did nothing
               wrong; the others report `Connection reset by peer`. With equal sizes Gloo says
               nothing at all and the sums are wrong.
Why            Collectives are matched by their order within a group, nothing else. A rank that
               issues another operation or another size at the same position, or skips one, meets
               the others in the wrong one.
How to be sure The flight recorders: operation, size and type of every rank at that position. The
               majority is taken to be right; with two ranks or a tie nobody can tell, and holdfast
               says so. TORCH_DISTRIBUTED_DEBUG=DETAIL makes torch compare them at every call.
Fix            Make all ranks take the same branch and the same shapes: pad the last batch, drop it
               (drop_last=True), no collective under a condition that differs between ranks.
Sources        https://docs.pytorch.org/docs/stable/distributed.html#debugging-torch-distributed-applications
               https://github.com/pytorch/pytorch/pull/100213
               pytorch/gloo gloo/transport/tcp/pair.cc: the size check
               https://github.com/NVIDIA/nccl/issues/626
"""

from __future__ import annotations

from holdfast import consequences, endings, scene_words
from holdfast.collectives import groups, progress, waits
from holdfast.collectives.kinds import Mismatch
from holdfast.model import Evidence, Fault, Verdict
from holdfast.signals import Scene

FAULT = Fault(code="HOLD601", slug="collective-mismatch")

FIX = "make all ranks issue the same collectives in the same order and size"


@FAULT.notice
def they_disagree_at_one_position(scene: Scene) -> Verdict | None:
    found = waits.analyse(scene).mismatch
    if found is None or progress.left_the_loop(scene, found):
        return None
    where = "" if groups.is_default(found.group) else f" of group {found.group}"
    place = f"collective #{found.sequence}{where}"
    if found.undecided:
        sides = ", ".join(f"rank {rank} {kind}" for rank, kind in found.kinds.items())
        reason = f"ranks disagree in {place}: {sides}; undecided which is wrong, no majority"
    else:
        reason = f"{scene_words.who(scene, found.odd)} {_differs(found)} in {place}"
    victims = [r for r in endings.fallen(scene, found.odd) if r not in found.odd]
    return FAULT.verdict(
        reason + (f"; {scene_words.plain(victims)} can not go on" if victims else ""),
        ranks=found.odd,
        victims=victims,
        certain=True,
        fix=FIX,
        evidence=[
            Evidence(quote=f"#{found.sequence} {kind}", source="flight recorder", rank=rank)
            for rank, kind in found.kinds.items()
        ],
    )


@FAULT.notice
def the_library_says_so(scene: Scene) -> Verdict | None:
    """Gloo or torch refused what came, and no recorder is left to say from whom."""
    told = [e for e in endings.endings(scene) if e.consequence == consequences.MISMATCH]
    if not told or waits.analyse(scene).mismatch:
        return None
    return FAULT.verdict(
        f"{scene_words.plain(e.rank for e in told)} got a collective of another size or kind than "
        "expected; from whom is undecided, no recorder was left to tell",
        ranks=(),
        victims=endings.fallen(scene, ()),
        certain=True,
        fix=FIX,
        evidence=[scene_words.how_it_ended(e) for e in told],
    )


def _differs(found: Mismatch) -> str:
    theirs = next((found.kinds[r] for r in found.right if r in found.kinds), "another one")
    own = next((found.kinds[r] for r in found.odd if r in found.kinds), "")
    issued = (
        f"issued {own} where the others have {theirs}"
        if own
        else (f"expected something smaller than {theirs}, which all others have,")
    )
    return issued + (" (it looks as if it skipped one)" if found.skipped else "")

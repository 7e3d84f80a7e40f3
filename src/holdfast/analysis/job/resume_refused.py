"""Ranks that refused to go on from a checkpoint, as their last words tell. Pure.

Our library ends such a sentence with the faults it found: '… [config-changed, world-size-mismatch]'
(checkpoint/compare.py, checkpoint/sampler.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec

from holdfast.analysis.job import phrases
from holdfast.analysis.scene import exits
from holdfast.analysis.scene.scene import Scene
from holdfast.findings import Evidence, Verdict

KINDS = ("UsageError", "CannotWorkError")
_SLUGS = re.compile(r"\s*\[([a-z][a-z-]*(?:, [a-z][a-z-]*)*)\]\s*$")
LONGEST = 400


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    sentence: str
    slugs: tuple[str, ...]
    ranks: tuple[int, ...]
    victims: tuple[int, ...]
    evidence: tuple[Evidence, ...]


def refused(scene: Scene, slug: str) -> Refusal | None:
    """All ranks refuse alike, each for itself: there is no first one to blame."""
    found = [
        (ending, match)
        for ending in exits.endings(scene)
        if ending.view.words
        and ending.view.words.kind in KINDS
        and (match := _SLUGS.search(ending.view.words.text))
        and slug in match[1].split(", ")
    ]
    if not found:
        return None
    first, match = found[0]
    assert first.view.words
    ranks = tuple(ending.rank for ending, _ in found)
    sentence = " ".join(first.view.words.text[: match.start()].split())
    return Refusal(
        sentence=sentence if len(sentence) <= LONGEST else sentence[: LONGEST - 1] + "…",
        slugs=tuple(match[1].split(", ")),
        ranks=ranks,
        victims=exits.fallen(scene, ranks),
        evidence=(phrases.how_it_ended(first),),
    )


def verdict(make: Callable[..., Verdict], found: Refusal, *, fix: str) -> Verdict:
    """By the fault's own `verdict`. Fatal: the next attempt would find the same checkpoint."""
    return make(
        found.sentence,
        ranks=found.ranks,
        victims=found.victims,
        certain=True,
        fatal=True,
        fix=fix,
        evidence=found.evidence,
    )

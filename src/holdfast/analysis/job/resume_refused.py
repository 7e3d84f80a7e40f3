"""Ranks that refused to continue from a checkpoint (errors.ResumeRefused). Pure."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from holdfast import text
from holdfast.analysis.job import phrases
from holdfast.analysis.scene import exits
from holdfast.analysis.scene.scene import Scene
from holdfast.findings import Evidence, Verdict

LONGEST = 400


class ResumeRefusal(msgspec.Struct, frozen=True, kw_only=True):
    sentence: str
    hint: str
    slugs: tuple[str, ...]
    ranks: tuple[int, ...]
    victims: tuple[int, ...]
    evidence: tuple[Evidence, ...]


def refused(scene: Scene, slug: str) -> ResumeRefusal | None:
    """All ranks refuse alike, each for itself: there is no first one to blame."""
    found = [
        (ending, words)
        for ending in exits.endings(scene)
        if (words := ending.view.words) is not None and slug in words.slugs
    ]
    if not found:
        return None
    first, words = found[0]
    ranks = tuple(ending.rank for ending, _ in found)
    sentence = text.shorten(" ".join(words.text.split()), LONGEST)
    seen = phrases.how_it_ended(first)
    return ResumeRefusal(
        sentence=sentence,
        hint=words.hint,
        slugs=words.slugs,
        ranks=ranks,
        victims=exits.fallen(scene, ranks),
        # Said once is enough: the headline is the rank's own sentence.
        evidence=(msgspec.structs.replace(seen, quote=seen.quote.replace(f": {sentence}", "")),),
    )


def verdict(make: Callable[..., Verdict], scene: Scene, slug: str) -> Verdict | None:
    """By the fault's own `verdict`. Fatal: the next attempt would find the same checkpoint."""
    found = refused(scene, slug)
    if found is None:
        return None
    return make(
        found.sentence,
        ranks=found.ranks,
        victims=found.victims,
        certain=True,
        fatal=True,
        fix=found.hint,
        evidence=found.evidence,
    )

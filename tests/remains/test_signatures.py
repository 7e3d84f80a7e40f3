"""Every wording that logs are searched for: found in its own example, and safe to search."""

from __future__ import annotations

import re

import pytest

from holdfast import catalogue
from holdfast.remains.signature import Signature

SIGNATURES = catalogue.signatures()


def test_names_are_unique() -> None:
    names = [signature.name for signature in SIGNATURES]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("signature", SIGNATURES, ids=lambda s: s.name)
def test_its_example_is_found(signature: Signature) -> None:
    assert signature.regex.search(signature.example), "the pattern finds its example"
    assert any(anchor in signature.example for anchor in signature.anchors)


@pytest.mark.parametrize("signature", SIGNATURES, ids=lambda s: s.name)
def test_it_is_cheap_to_search(signature: Signature) -> None:
    """Short anchors match everywhere; nested repeats can take for ever on a hostile line."""
    assert signature.anchors
    assert all(len(anchor) >= 5 for anchor in signature.anchors)
    assert not re.search(r"[+*]\)[+*]", signature.pattern)

"""Whether two names differ by one slip of the fingers, and are not the names of two programs.

A letter left out, doubled, taken for another one, or two letters swapped. Short prefixes differ by
one letter, too, and are right: RCCL_ and HCCL_ beside NCCL_, UCC_ beside UCX_, KMP_ beside OMP_.
"""

from __future__ import annotations


def apart(name: str, known: str) -> bool:
    """Is `name` a slip of `known`?"""
    if abs(len(name) - len(known)) > 1 or name in (known, f"{known}S"):
        return False  # LOCAL_RANKS is the plural, and so a name of its own
    shorter = min(len(name), len(known))
    at = next((i for i in range(shorter) if name[i] != known[i]), shorter)
    left, right = name[at:], known[at:]
    swapped = left[:2] == right[1::-1] and left[2:] == right[2:]
    replaced = left[1:] == right[1:]
    if not (swapped or replaced or left[1:] == right or left == right[1:]):
        return False
    if left[:1].isdigit() or right[:1].isdigit():
        return False  # the next of several: NCCL_IB_HCA2
    prefix = known.index("_")
    another = at == 0 or (replaced and not swapped and prefix < 4)
    return at >= prefix or not another

"""What torch prints when TORCH_DISTRIBUTED_DEBUG=DETAIL makes it compare collectives: pure.

Every rank checks its own fingerprint against those of the others and prints the first that
differs, so one line holds two ranks; several lines together may hold a majority. The ranks are
counted within the group.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from holdfast.analysis.logs.disagreement import Disagreement, minority
from holdfast.analysis.logs.pattern import LogPattern
from holdfast.analysis.logs.wreckage import Sighting

ANCHOR = "mismatch between collectives on ranks"


def _print(who: str) -> str:
    return (
        rf"CollectiveFingerPrint\((?:SequenceNumber=(?P<{who}_sequence>\d+), ?)?"
        rf"(?:OpType=(?P<{who}_op>\w+))?(?:, ?TensorShape=\[(?P<{who}_shape>[^\]]*)\])?"
        rf"(?:, ?TensorDtypes=(?P<{who}_type>[\w:]+))?"
    )


PATTERN = (
    r"Detected mismatch between collectives on ranks"
    rf"(?:\. Rank (?P<own>\d+) is running (?:inconsistent )?collective: {_print('own')})?"
    rf"(?:.*?but Rank (?P<other>\d+) is running collective: {_print('other')})?"
)
"""torch 1.9 to 1.12 showed one side only, before 2.1 there were no sequence numbers"""

FINGERPRINTS = LogPattern(
    name="collective-mismatch: fingerprints",
    pattern=PATTERN,
    anchors=(ANCHOR,),
    example="RuntimeError: Detected mismatch between collectives on ranks. Rank 0 is running "
    "collective: CollectiveFingerPrint(SequenceNumber=7, OpType=ALLREDUCE, TensorShape=[4], "
    "TensorDtypes=Float), but Rank 1 is running collective: CollectiveFingerPrint("
    "SequenceNumber=7, OpType=ALLREDUCE, TensorShape=[8], TensorDtypes=Float).",
    slug="collective-mismatch",
)

Side = tuple[str, str, str, str]
"""sequence, operation, shape, type"""

LARGE = 1024
"""elements; a user's own all_reduce of a flag or a few counts is smaller"""
BUCKETS = re.compile(r"(?i)(?:all_?reduce|reduce_scatter\w*|_reduce_scatter_base)")


def compare(seen: Iterable[Sighting]) -> Disagreement | None:
    """None when no line shows two sides."""
    prints: dict[int, Side] = {}
    for one in seen:
        for who in ("own", "other"):
            if who in one.fields:
                names = (f"{who}_sequence", f"{who}_op", f"{who}_shape", f"{who}_type")
                sequence, op, shape, kind = (one.fields.get(name, "") for name in names)
                prints.setdefault(int(one.fields[who]), (sequence, op, shape, kind))
    sides: dict[Side, list[int]] = {}
    for rank, side in sorted(prints.items()):
        sides.setdefault(side, []).append(rank)
    if len(sides) < 2:
        return None
    return Disagreement(
        what=_what(list(sides)),
        sides={_words(side): tuple(who) for side, who in sides.items()},
        odd=minority(list(sides.values())),
    )


def _what(sides: list[Side]) -> str:
    if len({op for _, op, _, _ in sides}) > 1:
        return "op"
    return "count" if len({sequence for sequence, _, _, _ in sides}) > 1 else "size"


def _words(side: Side) -> str:
    sequence, op, shape, kind = side
    parts = (op, f"[{shape}]" if shape else "", kind, f"in #{sequence}" if sequence else "")
    return " ".join(part for part in parts if part)


def is_bucket(found: Disagreement) -> bool:
    """All sides sum large flat buffers, as DDP and FSDP do with gradients."""
    flat = [re.search(r"\[(\d+)\]", words) for words in found.sides]
    return all(BUCKETS.match(words) for words in found.sides) and all(
        size is not None and int(size[1]) >= LARGE for size in flat
    )


def same_everywhere(seen: Iterable[Sighting]) -> bool:
    """Only one side is left, of a collective whose size no data can change: a barrier, or the one
    number by which torch tells how long an object will be. So it is the order that differs."""
    ops = [one.fields for one in seen if "own_op" in one.fields]
    return bool(ops) and all(
        fields["own_op"] == "BARRIER"
        or (not BUCKETS.match(fields["own_op"]) and fields.get("own_shape") in ("", "1"))
        for fields in ops
    )

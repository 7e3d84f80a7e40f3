"""What Horovod's stall report says: which ranks did not submit which tensors. Pure."""

from __future__ import annotations

import re

from holdfast.analysis.logs.patterns import launchers
from holdfast.analysis.logs.patterns.missing_rank import HOROVOD_OLD, HOROVOD_READY
from holdfast.analysis.logs.wreckage import Wreckage


def missing_tensors(wreckage: Wreckage) -> dict[int, list[str]]:
    """rank -> tensors that it did not submit, from the stall report."""
    missing: dict[int, list[str]] = {}
    for one in wreckage.seen(launchers.HOROVOD_MISSING, HOROVOD_OLD):
        tensors = [name.strip() for name in one.fields.get("tensors", "").split(",") if name]
        listed = one.fields.get("rank") or one.fields.get("ranks") or ""
        for number in listed.replace(",", " ").split():
            if number.isdigit():
                missing.setdefault(int(number), []).extend(tensors)
    return missing


def ready_ranks(wreckage: Wreckage) -> set[frozenset[int]]:
    """For each tensor that some ranks lack, the ranks that had submitted it."""
    lists = [
        found
        for one in wreckage.seen(HOROVOD_READY)
        for found in re.findall(r"\[ready ranks: ([\d, ]{1,4000})", one.line.text)
    ]
    return {frozenset(map(int, re.findall(r"\d{1,7}", text))) for text in lists}

"""The page about the journal is generated from the types that write it."""

from __future__ import annotations

import pytest

from holdfast.analysis.job.journal_records import RECORDS, JournalRecord, kind_of
from tools import write_journal


def test_the_page_is_up_to_date() -> None:
    assert write_journal.page() == write_journal.PAGE.read_text(), "run `make docs`"


@pytest.mark.parametrize("record", RECORDS, ids=kind_of)
def test_every_kind_says_what_it_is(record: type[JournalRecord]) -> None:
    assert record.__doc__
    assert record.__doc__ not in {base.__doc__ for base in record.__mro__[1:]}

"""The page of a drill: whole, alone, small, and deaf to what names and messages bring along."""

from __future__ import annotations

import html
import math
import re
from html.parser import HTMLParser

import msgspec
import pytest

from holdfast.analysis.drill.outcome import BrokenPromise, DrillRow, Happened, TrainedAttempt
from holdfast.view.drill_page import HEADS, page
from tests.view.sample_drills import SKIPPED, STARTED, a_report, a_row, trained

VOID = {"meta"}
HOSTILE = "<script>alert(1)</script>\"'&\u202egnp.exe\033[31m\udcff`rm -rf ~`"


class Reader(HTMLParser):
    """Refuses what is not closed in its order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.words.append(data)


def read(document: str) -> Reader:
    reader = Reader()
    reader.feed(document)
    reader.close()
    assert reader.open == []
    return reader


def test_is_whole_and_needs_nothing_else() -> None:
    document = page(a_report())
    reader = read(document)
    tags = {tag for tag, _ in reader.elements}
    assert not tags & {"script", "link", "img", "iframe", "object", "base", "a", "form"}
    assert {key for _, attributes in reader.elements for key in attributes} & {
        *("src", "href", "onload", "srcset")
    } == set()
    assert "url(" not in document
    assert "@import" not in document
    assert not re.search(r"https?://", document)


def test_says_everything_about_every_drill() -> None:
    report = a_report()
    said = " ".join(" ".join(read(page(report)).words).split())
    for row in report.rows:
        assert row.drill in said
        assert row.does in said
        for broken in row.broken:
            assert broken.seen in said
            assert all(part.strip() in said for part in broken.fix.split("`"))
        assert all(one in said for one in (*row.left, *row.unchecked))
    assert "2 of 6 drills broke a promise" in said
    assert "no GPU here" in said
    assert "2.13.0" in said


def test_is_of_use_on_another_machine() -> None:
    folder = "/home/me/it's here/drills/261116-171500-train"
    broken = BrokenPromise(promise="recover", seen=f"cannot be used: {folder}/01-x/work/ckpts")
    row = a_row("x", status="broken", broken=(broken,), folder=f"{folder}/01-x")
    said = " ".join(read(page(a_report(row, folder=folder))).words)
    assert "/home/me" not in said
    assert "cannot be used: 01-x/work/ckpts" in said
    assert "evidence 01-x" in said
    assert "folder drills/261116-171500-train" in said


def test_the_table_can_be_read_aloud() -> None:
    reader = read(page(a_report()))
    scopes = [attributes.get("scope") for tag, attributes in reader.elements if tag == "th"]
    assert scopes == ["col"] * len(HEADS) + ["row"] * 9
    drawn = [attributes for tag, attributes in reader.elements if tag == "svg"]
    assert all(("aria-label" in one) != (one.get("aria-hidden") == "true") for one in drawn)


def hostile() -> DrillRow:
    broken = BrokenPromise(promise="loss", seen=HOSTILE, fix=HOSTILE, slug=HOSTILE)
    row = a_row(HOSTILE, does=HOSTILE, status="broken", named=HOSTILE, named_right=False,
                left=(HOSTILE,), remarks=(HOSTILE,), unchecked=(HOSTILE,), folder=HOSTILE,
                broken=(broken,))  # fmt: skip
    said = Happened(t=row.timeline[-1].t, what=HOSTILE, kind="said")
    return msgspec.structs.replace(row, timeline=(*row.timeline, said))


def test_text_from_outside_adds_nothing_to_the_page() -> None:
    skipped = msgspec.structs.replace(SKIPPED[0], drill=HOSTILE, why=HOSTILE)
    report = a_report(
        hostile(), skipped, command=(HOSTILE, "--x"), runner=HOSTILE, folder=HOSTILE,
        page=HOSTILE, versions={HOSTILE: HOSTILE},
    )  # fmt: skip
    document = page(report)
    assert document.encode()
    reader = read(document)
    plain = {tag for tag, _ in read(page(a_report())).elements}
    assert {tag for tag, _ in reader.elements} <= plain
    assert "<script" not in document
    assert not re.search("[\u202e\033\udc00-\udfff]", document)
    assert "<script>alert(1)</script>" in html.unescape(document), "shown as it is written"


def test_stays_small_however_long_the_job_was() -> None:
    long = TrainedAttempt(began=0.0, points=tuple((n / 10, n, n % 7.0) for n in range(20_000)))
    events = tuple(Happened(t=float(n), what="x" * 5000, kind="said") for n in range(5000))
    row = msgspec.structs.replace(a_row(), trained=(long,) * 60, timeline=events)
    document = page(a_report(row, reference=long))
    read(document)
    assert len(document) < 1_000_000


@pytest.mark.parametrize("loss", [math.nan, math.inf, 1e308, -1e308, None])
def test_a_loss_that_cannot_be_drawn(loss: float | None) -> None:
    before = trained(STARTED, 1, 20)
    strange = msgspec.structs.replace(before, points=(*before.points, (STARTED + 9, 21, loss)))
    row = msgspec.structs.replace(a_row(), trained=(strange,))
    document = page(a_report(row, reference=before))
    coordinates = re.findall(r' (?:points|x|y|cx|cy|width)="([^"]*)"', document)
    assert coordinates
    assert not any(re.search("nan|inf", one) for one in coordinates)


def test_without_losses_there_is_no_section_about_them() -> None:
    none = TrainedAttempt(began=STARTED, points=((STARTED + 1, 1, None),))
    assert "<h2>Loss</h2>" in page(a_report())
    assert "<h2>Loss</h2>" not in page(a_report(reference=none))
    assert "<h2>Loss</h2>" not in page(a_report(reference=None))


def test_a_drill_that_could_not_try_anything_is_a_page_too() -> None:
    said = " ".join(read(page(a_report(*SKIPPED, reference=None))).words)
    assert "no drill was tried" in said
    assert "Timelines" not in said

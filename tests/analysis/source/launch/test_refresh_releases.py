"""tools/refresh_releases.py: what it adds, and that it says what it could not reach."""

from __future__ import annotations

import urllib.error
from pathlib import Path

import pytest

from holdfast.analysis.source.launch import releases
from tools import refresh_releases


def test_the_newest_minor_version_may_get_patches_yet() -> None:
    versions = ["2.4.0", "2.4.1", "2.4.1.post1", "2.5.0rc1", "2.5.0", "2.6.0", "2.6.0.dev1"]
    assert refresh_releases.by_minor(versions) == {(2, 4): {0, 1}, (2, 5): {0}}


def test_only_what_is_new_is_lacking() -> None:
    known = {(2, 4): {0, 1}}
    published = {(1, 0): {0}, (2, 4): {0, 1, 2}, (2, 5): {0}}
    assert refresh_releases.lacking(published, known) == {(2, 4): {2}, (2, 5): {0}}


def test_what_is_written_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "data" / refresh_releases.TABLE.name
    copy.parent.mkdir()
    copy.write_text(refresh_releases.TABLE.read_text().replace("# as of 2", "# as of 1"))
    before = refresh_releases.read_table()
    monkeypatch.setattr(refresh_releases, "TABLE", copy)
    monkeypatch.setattr(releases, "__file__", str(tmp_path / "releases.py"))
    monkeypatch.setattr(refresh_releases, "ask_pypi", lambda _: ["2.90.1", "2.91.0"])
    monkeypatch.setattr("sys.argv", ["refresh_releases.py", "--write"])
    assert refresh_releases.main() == 1
    after = refresh_releases.read_table()
    assert after["torch"].pop((2, 90)) == after["nccl"].pop((2, 90)) == {1}
    assert after == before
    assert "# as of 1" not in copy.read_text()
    assert "torch 2.90: not in the table: [1]" in capsys.readouterr().out


def test_it_says_what_it_could_not_reach(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def unreachable(package: str) -> list[str]:
        raise urllib.error.URLError("no route to host")

    monkeypatch.setattr(refresh_releases, "ask_pypi", unreachable)
    monkeypatch.setattr("sys.argv", ["refresh_releases.py"])
    assert refresh_releases.main() == 2
    assert "could not ask PyPI about torch: <urlopen error no route" in capsys.readouterr().out

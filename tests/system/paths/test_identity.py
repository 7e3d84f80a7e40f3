from __future__ import annotations

from pathlib import Path

from holdfast.analysis.machine import Unread
from holdfast.system.paths import boot_id


def test_the_kernels_own_id() -> None:
    found = boot_id()
    assert isinstance(found, str)
    assert len(found) == 36
    assert found == boot_id()


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    missing = boot_id(tmp_path / "none")
    assert isinstance(missing, Unread)
    assert missing.why.endswith("No such file or directory")
    (tmp_path / "empty").write_text("\n")
    assert isinstance(boot_id(tmp_path / "empty"), Unread)

"""A job's TMPDIR is short enough for sockets, and its short name goes with the drill."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from holdfast.drill.short_path import remove_links_into, short_path


def test_a_socket_fits_below_a_folder_with_a_long_name(tmp_path: Path) -> None:
    deep = tmp_path / ("a" * 60) / ("b" * 60)
    deep.mkdir(parents=True)
    with short_path(deep) as short, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{short}/pymp-abcdefgh-listener-abcdefgh")
        assert [entry.name[:4] for entry in deep.iterdir()] == ["pymp"]
    assert not os.path.lexists(short)
    assert deep.exists()


def test_what_a_killed_drill_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    ours, other = tmp_path / "drill" / "job", tmp_path / "drill-2" / "job"
    for folder in (ours, other):
        folder.mkdir(parents=True)
    with short_path(ours) as left, short_path(other) as kept:
        remove_links_into(str(tmp_path / "drill"))
        assert not os.path.lexists(left)
        assert os.path.lexists(kept)
    assert ours.exists()

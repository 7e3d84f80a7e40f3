"""Pipes and archives for the tests, made in memory."""

from __future__ import annotations

import io
import tarfile
import zipfile
from collections.abc import Mapping

from holdfast.analysis.logs.wreckage import InputSource
from holdfast.explain.read.byte_streams import Reader
from holdfast.explain.read.inputs import Opened, sources


def tarred(
    files: Mapping[str, bytes], *more: tarfile.TarInfo, kind: int = tarfile.PAX_FORMAT
) -> bytes:
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w", format=kind) as archive:
        for info in more:
            archive.addfile(info)
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return held.getvalue()


def zipped(files: Mapping[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", method) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return held.getvalue()


def special(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


class Trickle:
    """A pipe that gives a few bytes at a time."""

    def __init__(self, data: bytes, most: int) -> None:
        self._file = io.BytesIO(data)
        self._most = most

    def read(self, count: int, /) -> bytes:
        return self._file.read(min(count, self._most))


def everything(*paths: object, stdin: Reader | None = None) -> dict[str, bytes | str]:
    """Name -> what was read, or the problem; a problem of something read comes under 'name!'."""
    found: dict[str, bytes | str] = {}
    for one in sources([str(path) for path in paths], stdin):
        if isinstance(one, InputSource):
            found[one.name] = one.problem
            continue
        assert isinstance(one, Opened)
        data = b""
        while piece := one.read(50_000):
            data += piece
        found[one.name] = data
        if one.problem:
            found[one.name + "!"] = one.problem
    return found

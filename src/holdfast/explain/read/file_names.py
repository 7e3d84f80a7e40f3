"""A file's name -> the rank, host or pid its lines belong to. Pure.

A number in a name is a rank only where the name says so: the `4` of `slurm-123_4.out` is an array
task, the `2` of `node-2.log` a machine, that of `attempt_0/2/stderr.log` a local rank.
"""

from __future__ import annotations

import re

import msgspec


class FileNameHints(msgspec.Struct, frozen=True, kw_only=True):
    rank: int | None = None
    local_rank: int | None = None
    host: str = ""
    pid: int | None = None
    attempt: int | None = None


_NUMBER = r"(\d{1,6})(?!\d)"
_LOCAL = re.compile(rf"(?:^|[^a-z])local[_\-]?rank[_\-=.]?{_NUMBER}", re.IGNORECASE)
_RANK = re.compile(rf"(?:^|[^a-z])(?:global[_\-]?)?rank[_\-=.]?{_NUMBER}", re.IGNORECASE)
_DUMP = re.compile(rf"{_NUMBER}(?:\.[a-z]+)?$")
_ELASTIC = re.compile(r"(?:^|/)attempt_(\d{1,6})/(\d{1,6})/(?:stdout|stderr|error)\.(?:log|json)$")
_OURS = re.compile(r"(?:^|/)attempt-(\d{1,6})/(?:evidence-\d+/)?rank-(\d{1,6})[/.]")
_NCCL = re.compile(
    r"(?:^|/)nccl[\w\-]*\.([A-Za-z][\w\-]*(?:\.[A-Za-z][\w\-]*)*)\.(\d{1,9})(?:\.\w+)?$"
)
_PID = re.compile(r"(?:^|[^a-z])pid[_\-=.]?(\d{1,9})(?!\d)", re.IGNORECASE)
_HOST = re.compile(
    r"(?:^|/)((?:node|host|worker|gpu|compute)[_\-]?\d{1,6}(?:\.(?!log|txt|out|err)[\w\-]+){0,5})"
    r"(?:[_\-.](?:stdout|stderr|dmesg|journal|kern|syslog))?(?:\.(?:log|txt|out|err))?$"
)


def hints(name: str, *, dump: bool = False) -> FileNameHints:
    """What a path tells; '' and None where it tells nothing. Members of archives are paths too.

    A flight-recorder dump is always of one rank: any number at the end of its name is that.
    """
    path = name.rpartition(": ")[2].replace("\\", "/")
    if ours := _OURS.search(path):
        return FileNameHints(rank=int(ours[2]), attempt=int(ours[1]))
    if elastic := _ELASTIC.search(path):
        return FileNameHints(local_rank=int(elastic[2]), attempt=int(elastic[1]))
    file = path.rpartition("/")[2]
    if nccl := _NCCL.search(file):
        return FileNameHints(host=nccl[1], pid=int(nccl[2]))
    parent = path.rpartition("/")[0].rpartition("/")[2]
    local = _LOCAL.search(file)
    # `rank_3/stderr.log` says it in the folder's name.
    rank = None if local else _RANK.search(file) or _RANK.search(parent)
    if dump and rank is None:
        rank = _DUMP.search(file)
    host = _HOST.search(path)
    pid = _PID.search(file)
    return FileNameHints(
        rank=int(rank[1]) if rank else None,
        local_rank=int(local[1]) if local else None,
        host=host[1] if host else "",
        pid=int(pid[1]) if pid else None,
    )

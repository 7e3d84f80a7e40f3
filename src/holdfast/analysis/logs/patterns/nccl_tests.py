"""What NVIDIA's nccl-tests print: the devices, one row for each size, and a verdict of their own.

Written from NVIDIA/nccl-tests src/util.cu and src/common.cu (2.19.6). The table is the same since
2.13 (2022), but for new columns; before that some had no column for the root.
"""

from __future__ import annotations

from holdfast.analysis.logs.pattern import LogPattern, Role

_NUMBER = r"\d+(?:\.\d+)?(?:e[+-]?\d+)?"
_RESULT = rf"\s+{_NUMBER}\s+{_NUMBER}\s+(?P<{{0}}_busbw>{_NUMBER})\s+(?P<{{0}}_wrong>{_NUMBER}|N/A)"
_OPERATIONS = ("sum", "prod", "max", "min", "avg", "mulsum", "none")
_ROOTS = ("-1", "0")

STARTED = LogPattern(
    name="nccl-tests: started",
    pattern=r"# nThread (?P<threads>\d+) nGpus (?P<gpus>\d+) minBytes (?P<least>\d+) maxBytes "
    r"(?P<most>\d+)",
    anchors=("# nThread ",),
    example="# nThread 1 nGpus 8 minBytes 8 maxBytes 134217728 step: 2(factor) warmup iters: 1 "
    "iters: 20 agg iters: 1 validation: 1 graph: 0 unalign: 0",
    role=Role.CONTEXT,
)
DEVICE = LogPattern(
    name="nccl-tests: device",
    pattern=r"#\s+Rank\s+(?P<rank>\d+) (?:Group\s+\d+ )?Pid\s+(?P<pid>\d+) on\s+(?P<node>\S+) "
    r"device\s+\d+ \[[0-9a-fx:]+\] (?P<gpu>.+?)\s*$",
    anchors=("#  Rank ", "#   Rank "),
    example="#  Rank  0 Group  0 Pid   6151 on     node-a device  0 [0000:1b:00] NVIDIA H200",
    role=Role.CONTEXT,
)
ROW = LogPattern(
    name="nccl-tests: row",
    pattern=r"^\s*(?P<size>\d+)\s+\d+\s+[a-z]\w*\s+(?P<operation>[a-z]+)\s+-?\d+"
    rf"{_RESULT.format('out')}"
    # With -I each result is followed by four figures of single iterations.
    rf"(?:(?:(?:\s+{_NUMBER}){{4}})?{_RESULT.format('in')})?",
    anchors=tuple(f"{operation:>6}  {root:>6} " for operation in _OPERATIONS for root in _ROOTS),
    example="     1048576        262144     float     sum      -1    42.14   24.88   43.54       0"
    "    40.06   26.18   45.81       0",
    role=Role.CONTEXT,
)
OUT_OF_BOUNDS = LogPattern(
    name="nccl-tests: wrong",
    pattern=r"# Out of bounds values +: +(?P<count>\d+) FAILED",
    anchors=("# Out of bounds values",),
    example="# Out of bounds values : 12 FAILED",
    slug="nccl-tests-failed",
)
AVERAGE = LogPattern(
    name="nccl-tests: average",
    pattern=r"# Avg bus bandwidth +: +(?P<rate>\d+(?:\.\d+)?(?:e[+-]?\d+)?)",
    anchors=("Avg bus bandwidth",),
    example="# Avg bus bandwidth    : 0.0913",
    role=Role.CONTEXT,
)
TIMED_OUT = LogPattern(
    name="nccl-tests: timeout",
    pattern=r"^(?P<node>\S+): Test timeout \((?P<seconds>\d+)s\)",
    anchors=(": Test timeout (",),
    example="node-a: Test timeout (120s) common.cu:526",
    role=Role.CASCADE,
)
ALL = (STARTED, DEVICE, ROW, OUT_OF_BOUNDS, AVERAGE, TIMED_OUT)

"""Read the report of NCCL's own diagnostics (2.31 and newer).

`NCCL_RUN_DIAGNOSTICS=1` (data is sent between GPUs, and with perftest between nodes) and
`NCCL_RUN_RAS_DIAGNOSTICS=1` (what ranks report is compared) make rank 0 print lines such as

    node0:24563 NCCL DIAG [OK]   p2p: verified P2P access in both directions between every GPU pair
    node0:24563 NCCL DIAG [INFO] NVLink: 1 inactive link(s) on rank(s) {3} in comm 0x1234

when a communicator is made. `[INFO]` stands for a fault and for a check that could not be made
alike; its words tell them apart.

Written from NVIDIA/nccl: src/diagnostics.cc, src/diagnostics/{p2p,ib_write_bw}.cc,
src/ras/diagnostics*.cc, docs/userguide/source/troubleshooting/{diagnostics,ras}.rst.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable

from holdfast.analysis.machine.fact import Fact, Unread
from holdfast.analysis.versions import release

SINCE = "2.31"
MARK = "NCCL DIAG "
"""in every line of the report"""
NETWORK_CHECKS = ("net bw",)
SETTING_CHECKS = ("NCCL environment",)
"""the others are about GPUs, their links and their driver"""
_LINE = re.compile(
    r"^(?:(?P<host>\S+):(?P<pid>\d+) )?.*?NCCL DIAG \[(?P<tag>OK|INFO)\] +"
    r"(?:(?P<check>[A-Za-z0-9_*/ ]{1,40}): |(?=(?P<event>S?Xid) \d))"
    r"(?P<words>.+?)(?: in comm 0x[0-9a-f/x]+)?\s*$"
)
_FAULTS = re.compile(
    r"mismatch|differ across ranks|comparison may be|uncorrected volatile errors on rank"
    r"|at or above threshold|inactive link|inconsistent link speeds|peer-memory import failed"
    r"|launch/check failed"
    r"|topology check failed|peer accesses passed verification|edges verified|off median"
    r"|tool run timed out|tool run failed|server did not start"
    r"|catalog recommends resetting|SXid \d+ detected .*recommended response"
)
"""in an [INFO] line: NCCL found something; any other such line says what it could not look at"""


class DiagnosticKind(enum.Enum):
    OK = "ok"
    FAULT = "fault"
    GAP = "gap"
    """could not be looked at, or not all of it"""


class DiagnosticLine(Fact, frozen=True):
    check: str
    """'p2p', 'net bw', 'ECC', 'NVLink', 'GPU inventory', 'NCCL environment'…"""
    kind: DiagnosticKind
    words: str
    host: str
    """where rank 0 ran, which prints for all; '' where the line does not say"""


def has_diagnostics(nccl: str) -> bool:
    return release(nccl)[:2] >= release(SINCE)


def report_or_why(lines: Iterable[str], nccl: Iterable[str]) -> tuple[DiagnosticLine, ...] | Unread:
    """What NCCL's diagnostics brought, or why there is nothing; `nccl`: the versions in use."""
    found = read_report(lines)
    old = sorted({version for version in nccl if not has_diagnostics(version)})
    if old and not found:
        return Unread(why=f"NCCL {', '.join(old)} has no diagnostics ({SINCE} has)")
    return found or Unread(why="NCCL printed no diagnostics")


def read_report(lines: Iterable[str]) -> tuple[DiagnosticLine, ...]:
    """Every result line, once; headings and everything else that a rank prints are passed over."""
    found = (_LINE.search(line) for line in lines)
    return tuple(dict.fromkeys(_result(match) for match in found if match))


def _result(match: re.Match[str]) -> DiagnosticLine:
    words = match["words"]
    if match["tag"] == "OK":
        kind = DiagnosticKind.OK
    else:
        kind = DiagnosticKind.FAULT if _FAULTS.search(words) else DiagnosticKind.GAP
    return DiagnosticLine(
        check=(match["check"] or match["event"]).strip(),
        kind=kind,
        words=words,
        host=match["host"] or "",
    )

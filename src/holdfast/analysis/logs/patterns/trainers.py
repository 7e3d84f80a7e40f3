"""What trainers and their own launchers say of ranks that ended or stalled."""

from __future__ import annotations

import functools

from holdfast.analysis.logs.pattern import LogPattern, Role

_saw = functools.partial(LogPattern, role=Role.CONFIRMATION)
_stalled = functools.partial(LogPattern, role=Role.CONFIRMATION, slug="rank-stuck")

LIGHTNING_CHILD = _saw(
    name="launchers: lightning-child",
    pattern=r"Child process with PID (?P<pid>\d+) terminated with code (?P<code>-?\d+)\. "
    r"Forcefully terminating",
    anchors=("Child process with PID ",),
    example="[rank: 2] Child process with PID 1011 terminated with code -9. Forcefully terminating "
    "all other processes to avoid zombies",
)
COMPOSER_EXIT = _saw(
    name="launchers: composer-exit",
    pattern=r"^Rank (?P<rank>\d+) crashed with exit code (?P<code>-?\d+)\."
    r"|^Global rank (?P<global>\d+) \(PID (?P<pid>\d+)\) exited with code (?P<number>-?\d+)",
    anchors=(" crashed with exit code ", "Global rank "),
    example="ERROR:composer.cli.launcher:Rank 3 crashed with exit code -9.",
)
NVRX_FAILED = _saw(
    name="launchers: nvrx-failed",
    # A dict of the failures, by rank; the first is the first that it noticed.
    pattern=r"Some rank\(s\) exited with non-zero exit code: \{(?P<rank>\d+): "
    r"ProcessFailure\(local_rank=(?P<local_rank>\d+), pid=(?P<pid>\d+), exitcode=(?P<code>-?\d+)",
    anchors=("Some rank(s) exited with non-zero exit code",),
    example="Some rank(s) exited with non-zero exit code: {2: ProcessFailure(local_rank=2, "
    "pid=1011, exitcode=-9, error_file='<NONE>')}. Agent's exit code = 1",
)
EXITS: tuple[LogPattern, ...] = (LIGHTNING_CHILD, COMPOSER_EXIT, NVRX_FAILED)

TOLD_TO_STOP = _saw(
    name="trainers: told-to-stop",
    # Lightning, in each rank; Megatron, once all ranks know of it.
    pattern=r"^Received SIGTERM: 15\b|exiting program after receiving SIGTERM",
    anchors=("Received SIGTERM: 15", "exiting program after receiving SIGTERM"),
    example="[rank: 0] Received SIGTERM: 15",
)
NVRX_STALLED = _stalled(
    name="rank-stuck: nvrx",
    # Its monitor then ends the rank.
    pattern=r"RankMonServer\d+@(?P<host>[\w.\-]+):(?P<rank>\d+)\] (?:\[Cycle \d+\] )?(?P<what>"
    r"Did not get (?:initial|subsequent) heartbeat\. Waited (?P<waited>[\d.]+) seconds"
    r"|Section '(?P<section>[^']{1,80})' has been open for (?P<open>[\d.]+) seconds"
    r"|Was out of section for (?P<outside>[\d.]+) seconds)",
    anchors=("heartbeat. Waited ", "' has been open for ", "Was out of section for "),
    example="[2026-11-16 10:00:00,123] [WARNING] [RankMonServer4242@n1:3] [Cycle 0] Did not get "
    "subsequent heartbeat. Waited 600.00 seconds.",
)
RAY_MISSING = _stalled(
    name="rank-stuck: ray-missing",
    pattern=r"following ranks have not joined the collective operation: "
    r"\[(?P<ranks>[\d, ]{1,4000})\]",
    anchors=("ranks have not joined the collective operation",),
    example="The collective operation timed out after 1800.00 seconds. The following ranks have "
    "not joined the collective operation: [2]",
)
RAY_HANGING = _stalled(
    name="rank-stuck: ray-hanging",
    pattern=r"A worker health check has been hanging for (?P<seconds>[\d.]+)",
    anchors=("worker health check has been hanging for ",),
    example="A worker health check has been hanging for 600.12 seconds. Marking the worker as "
    "dead.",
)
TORCHFRTRACE_MISSING = _stalled(
    name="rank-stuck: torchfrtrace",
    pattern=r"^missing ranks: \{(?P<ranks>[\d, ]{1,4000})\}",
    anchors=("missing ranks: {",),
    example="missing ranks: {2}",
)
STALLS: tuple[LogPattern, ...] = (
    NVRX_STALLED,
    RAY_MISSING,
    RAY_HANGING,
    TORCHFRTRACE_MISSING,
)

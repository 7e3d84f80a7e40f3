"""The file of a file:// rendezvous is left over from an earlier run.

What you see   `Gloo connectFullMesh failed with … timed out connecting: SO_ERROR: Connection
               refused`, a hang in init_process_group, or ranks that 'join' and talk to addresses
               where nobody lives any more.
Why            `init_method='file://…'` keeps the store's keys in a plain file. A run that ends
               well removes it; one that was killed leaves it, and the next run reads the dead
               ranks' addresses out of it.
How to be sure `ls -l FILE`: it exists and is not empty before the job starts. `fuser FILE` is no
               proof that nobody uses it: torch opens it for moments only.
Fix            Remove the file before each launch, or give each run a new name
               (`file:///shared/rdzv-$SLURM_JOB_ID`). Better: env:// under torchrun.
Sources        https://docs.pytorch.org/docs/stable/distributed.html#shared-file-system-initialization
               torch/csrc/distributed/c10d/FileStore.cpp
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from holdfast import text
from holdfast.analysis.logs import sightings
from holdfast.analysis.logs.pattern import Role
from holdfast.analysis.logs.patterns import connections, watchdog
from holdfast.analysis.logs.wreckage import Wreckage
from holdfast.analysis.machine import MachineFacts, RendezvousFile, known
from holdfast.fault import Fault
from holdfast.findings import Culprit, Diagnosis, Evidence, Finding

FAULT = Fault(code="HOLD111", slug="stale-rendezvous-file")

FILE_METHOD = FAULT.log_pattern(
    "file-method",
    r"(?i:init.?method|dist.?url|rdzv|rendezvous|backend|FileStore|MASTER)\b.*?"
    r"(?P<url>file://[^\s'\",)]+)",
    anchors=("file://",),
    example="init_process_group(backend='nccl', init_method='file:///shared/rendezvous', rank=0)",
    role=Role.CONTEXT,
)
FILE_STORE = FAULT.log_pattern(
    "file-store",
    r"\bFileStore\b|_file_rendezvous_handler|Timeout waiting for key: (?P<key>\S+) after",
    anchors=("FileStore", "_file_rendezvous_handler", "Timeout waiting for key:"),
    example="RuntimeError: Timeout waiting for key: default_pg/0/0/1 after 1800000 ms",
    role=Role.CASCADE,
)

FRESH = 60
"""seconds; a file written to so lately may belong to a job that is just starting"""


@FAULT.check(needs=("rendezvous_files",))
def rendezvous_file_is_new(facts: MachineFacts) -> Sequence[Finding]:
    files = known(facts.rendezvous_files)
    if not files:
        return [FAULT.does_not_apply("no file:// rendezvous is named in the environment")]
    return [_judge(file) for file in files]


def _judge(file: RendezvousFile) -> Finding:
    if not file.exists:
        return FAULT.ok(f"{file.path} does not exist yet")
    if not file.size:
        return FAULT.ok(f"{file.path} is empty")
    seen = Evidence(
        quote=f"{file.path}: {text.size(file.size)}, written {text.duration(file.age)} ago",
        source=file.variable,
    )
    if file.held_by:
        return FAULT.note(
            f"rendezvous file {file.path} is in use",
            reason=f"pid {text.numbers(file.held_by)} has it open: a job is meeting there, and "
            "another must not",
            evidence=[seen],
            fix=f"give this run a file of its own: `export {file.variable}=file://…`",
        )
    remove = f"`rm {shlex.quote(file.path)}` before the launch"
    if file.age < FRESH:
        return FAULT.warning(
            f"rendezvous file {file.path} is not empty",
            reason="it was written moments ago: either a job is using it (torch opens it for "
            "moments only), or one has just died",
            evidence=[seen],
            fix=f"if no job uses it: {remove}",
        )
    return FAULT.error(
        f"rendezvous file {file.path} is left over from an earlier run",
        reason="the next run would read the old ranks' addresses out of it; nobody has it open, "
        "though a running job would show so for moments only",
        evidence=[seen],
        fix=f"make sure that no job of yours uses it, then {remove}",
    )


@FAULT.explain
def they_met_the_dead(wreckage: Wreckage) -> Diagnosis | None:
    files = wreckage.seen(FILE_METHOD)
    store = wreckage.seen(FILE_STORE)
    calls = connections.attempts(wreckage, connections.GLOO, connections.NCCL)
    waited = wreckage.seen(watchdog.GLOO_MESH)
    if not (files or store) or not (calls or waited or any("key" in s.fields for s in store)):
        return None
    url = files[0].fields["url"] if files else ""
    file = url.removeprefix("file://")
    path = file or "the rendezvous file"
    called = f"called {calls[0].where}, where nobody lives" if calls else "waited in vain"
    refused = any(c.kind == connections.REFUSED for c in calls)
    return FAULT.diagnosis(
        f"the ranks met through a file ({path}) and {called}: a file that an earlier run left "
        "holds the addresses of its dead ranks",
        confidence=_confidence(wreckage, named=bool(files), refused=refused, called=bool(calls)),
        seen=[*files, *(c.seen for c in calls), *waited, *store],
        culprit=Culprit(what=path),
        fix="make sure that no job uses it, then "
        f"`{sightings.command('rm {}', file) or 'rm FILE'}`, or give each run a name "
        "of its own; better: env:// under torchrun",
        next=sightings.command("ls -l {}", file),
        unknown=["whether the file was there before the start: its age would tell"],
    )


def _confidence(wreckage: Wreckage, *, named: bool, refused: bool, called: bool) -> float:
    if wreckage.roots():
        return 0.3
    if named and refused:
        return 0.75
    return 0.55 if called else 0.4

"""The file of a file:// rendezvous is left over from an earlier run.

What you see   `Gloo connectFullMesh failed with … timed out connecting: SO_ERROR: Connection
               refused`, a hang in init_process_group, or ranks that join and connect to addresses
               where no rank listens any more.
Why            `init_method='file://…'` keeps the store's keys in a plain file. A run that ends
               normally removes it; one that was killed leaves it, and the next run reads the
               addresses of the dead ranks from it.
How to be sure `ls -l FILE`: it exists and is not empty before the job starts. `fuser FILE` does not
               prove that it is unused: torch keeps it open only briefly.
Fix            Remove the file before each launch, or use a new name for each run
               (`file:///shared/rdzv-$SLURM_JOB_ID`). Better: env:// under torchrun.
Known limits   The check sees file:// rendezvous set in the environment, not in the script. A log
               does not show whether the file existed before the start.
Sources        https://docs.pytorch.org/docs/stable/distributed.html#shared-file-system-initialization
               torch/csrc/distributed/c10d/FileStore.cpp
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast import shell_words, text
from holdfast.analysis.logs.pattern import Role
from holdfast.analysis.logs.patterns import connections, watchdog
from holdfast.analysis.logs.wreckage import Wreckage
from holdfast.analysis.machine import MachineFacts, RendezvousFile, known
from holdfast.fault import Fault
from holdfast.findings import Culprit, Diagnosis, Evidence, Finding

FAULT = Fault(
    code="HOLD111",
    slug="stale-rendezvous-file",
    related=("stale-process", "peer-unreachable", "rank-assignment"),
)

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

RECENT = 60
"""seconds; a file written this recently may belong to a job that is just starting"""


@FAULT.check(needs=("rendezvous_files",))
def rendezvous_file_is_left_over(facts: MachineFacts) -> Sequence[Finding]:
    files = known(facts.rendezvous_files)
    if not files:
        return [FAULT.does_not_apply("no file:// rendezvous is set in the environment")]
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
            reason=f"pid {text.numbers(file.held_by)} has it open: another job is using it, and "
            "two jobs must not share one",
            evidence=[seen],
            fix=f"use another file for this run: `export {shell_words.variable(file.variable)}=file://…`",
        )
    remove = f"`rm {shell_words.word(file.path, 'FILE')}` before the launch"
    if file.age < RECENT:
        return FAULT.warning(
            f"rendezvous file {file.path} is not empty",
            reason="it was written less than a minute ago: either a job is using it (torch keeps "
            "it open only briefly), or one has just died",
            evidence=[seen],
            fix=f"{remove}, if no job uses it",
        )
    return FAULT.error(
        f"rendezvous file {file.path} is left over from an earlier run",
        reason="the next run would read the old ranks' addresses from it. No process has it open, "
        "but a running job opens it only briefly",
        evidence=[seen],
        fix=f"make sure that no job uses it, then {remove}",
    )


@FAULT.explain
def ranks_read_a_stale_rendezvous_file(wreckage: Wreckage) -> Diagnosis | None:
    files = wreckage.seen(FILE_METHOD)
    store = wreckage.seen(FILE_STORE)
    calls = connections.attempts(wreckage, connections.GLOO, connections.NCCL)
    waited = wreckage.seen(watchdog.GLOO_MESH)
    if not (files or store) or not (calls or waited or any("key" in s.fields for s in store)):
        return None
    url = files[0].fields["url"] if files else ""
    file = url.removeprefix("file://")
    path = file or "the rendezvous file"
    outcome = f"connected to {calls[0].where}, where no rank listens" if calls else "timed out"
    refused = any(c.kind == connections.REFUSED for c in calls)
    return FAULT.diagnosis(
        f"the ranks used a file:// rendezvous ({path}) and {outcome}: a file left by an earlier "
        "run contains the addresses of ranks that have exited",
        confidence=_confidence(wreckage, named=bool(files), refused=refused, called=bool(calls)),
        seen=[*files, *(c.seen for c in calls), *waited, *store],
        culprit=Culprit(what=path),
        fix="make sure that no job uses it, then "
        f"`{shell_words.command('rm {}', file) or 'rm FILE'}`, or use a new file name for each "
        "run; better, use env:// under torchrun",
        next=shell_words.command("ls -l {}", file),
        unknown=["whether the file existed before the start: compare its age with the job's"],
    )


def _confidence(wreckage: Wreckage, *, named: bool, refused: bool, called: bool) -> float:
    if wreckage.roots():
        return 0.3
    if named and refused:
        return 0.75
    return 0.55 if called else 0.4

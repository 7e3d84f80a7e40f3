"""The launcher of a run was killed.

What you see   The output stops in the middle, without an error and without a last line of the
               launcher. `holdfast runs` shows the run as lost; its ranks are gone too.
Why            The launcher got SIGKILL, which no process can handle: from the kernel's OOM killer,
               from a scheduler whose grace period was over, from `kill -9`, or the machine went
               down. The kernel ends the ranks of a launcher that dies.
How to be sure `journalctl -k | grep -i 'killed process'` shows an OOM kill with its pid; the
               scheduler has its own record (`sacct -j JOB`, `kubectl describe pod`); `last -x`
               shows a reboot.
Fix            Give the launcher's node more memory, or the job a longer grace period before it is
               killed; the next start resumes from the newest checkpoint.
Known limits   Who sent the signal is not known: the kernel tells neither the process nor holdfast.
               In an archive of a run that was still going the journal has no end either.
Sources        https://man7.org/linux/man-pages/man7/signal.7.html
               https://man7.org/linux/man-pages/man2/pr_set_pdeathsig.2const.html
"""

from __future__ import annotations

import signal

import msgspec

from holdfast import shell_words
from holdfast.analysis.drill import hosts
from holdfast.analysis.drill.injection import Injection, SignalProcess, Then
from holdfast.analysis.drill.rehearsal import Rehearsal
from holdfast.analysis.logs.wreckage import Wreckage
from holdfast.fault import Fault
from holdfast.findings import Culprit, Diagnosis, Evidence, Verdict

FAULT = Fault(
    code="HOLD710",
    slug="launcher-killed",
    related=("rank-killed", "node-lost", "preempted", "external-sigterm"),
)

SURE, UNSURE = 0.75, 0.4


@FAULT.explain
def journal_of_run_has_no_end(wreckage: Wreckage) -> Diagnosis | None:
    if not wreckage.lost_runs:
        return None
    lost = wreckage.lost_runs[0]
    line = lost.line
    if lost.gone:
        reason = (
            "the launcher is gone and its journal has no end: it was killed (SIGKILL: by the "
            "kernel's OOM killer, a scheduler, or `kill -9`), or the machine went down; its ranks "
            "ended with it"
        )
    else:
        reason = (
            "the journal has no end: the launcher was killed, or the run was still going when this "
            "copy of its folder was made"
        )
    return FAULT.diagnosis(
        reason,
        confidence=SURE if lost.gone else UNSURE,
        culprit=Culprit(what="launcher", host=line.host),
        evidence=[
            Evidence(
                quote=f"the last line of the journal: {line.text}",
                source=line.source,
                line=line.number,
            )
        ],
        fix="look for what killed it on the launcher's machine; the next start resumes from the "
        "newest checkpoint",
        next="journalctl -k --no-pager | grep -iE 'out of memory|killed process'",
        unknown=("what killed it: a process that gets SIGKILL writes nothing",),
    )


# --- run -----------------------------------------------------------------------------------------


def run_before_was_lost(folder: str, *, rebooted: bool) -> Verdict:
    """Said when the next run starts in the same folder: the lost one could not."""
    why = (
        "the machine was restarted while it ran"
        if rebooted
        else "its launcher was killed (SIGKILL: by the kernel's OOM killer, a scheduler, or "
        "`kill -9`), and its ranks with it"
    )
    return FAULT.verdict(
        f"the run before this one has no end: {why}",
        ranks=(),
        certain=False,
        fix=f"see how far it came: `holdfast explain {shell_words.word(folder, 'RUN')}`",
    )


# --- drill ---------------------------------------------------------------------------------------


AT_NEXT_START = 60.0
"""seconds: only the next launcher can say it"""


@FAULT.drill()
def kill_the_launcher(rehearsal: Rehearsal) -> Injection:
    if len(rehearsal.job.hosts) > 1:
        return _kill_that_of_one_host(rehearsal)
    return Injection(
        does=f"SIGKILL to the launcher {rehearsal.when}; then the job is started again",
        act=SignalProcess(number=signal.SIGKILL, to="launcher"),
        then=Then.ENDS,
        culprits=(),
        notice_within=AT_NEXT_START,
    )


def _kill_that_of_one_host(rehearsal: Rehearsal) -> Injection:
    """The others see a node that is lost, and go on without it, unless it was the coordinator's."""
    job, host = rehearsal.job, rehearsal.job.host_of(rehearsal.rank)
    kill = Injection(
        does=f"SIGKILL to the launcher of {host} {rehearsal.when}; the others go on without it",
        act=SignalProcess(number=signal.SIGKILL, to="launcher"),
        then=Then.RESTARTS,
        slugs=("node-lost",),
        culprits=(),
        hosts=(host,),
        fewest_hosts=1,
        world=hosts.ranks_without(job, host),
    )
    if host != hosts.store_host(job):
        return kill
    return msgspec.structs.replace(
        kill,
        does=f"SIGKILL to the launcher of {host}, which coordinates, {rehearsal.when}; then the "
        "job is started again",
        then=Then.ENDS,
        slugs=("store-host-lost",),
        beside=(FAULT.slug,),  # the next run there finds it out
        world=None,
    )

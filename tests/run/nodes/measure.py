"""Plays one row on fresh lab hosts and says what was seen, and what of it is wrong."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec

from holdfast.drill.lab import Host, Lab
from tests.run.nodes.fault_rows import FaultRow
from tests.run.nodes.scenario import TRUE_WHERE_BUSY, LauncherName, NodesJob, Step, named_hosts

STEPS_FIRST = 45
"""so that two checkpoints are there"""
PATIENCE = 60.0
"""seconds after which a launcher that said nothing has said nothing"""
RESUME = 90.0


class Measured(msgspec.Struct, kw_only=True):
    row: str
    launcher: str
    started: float | None = None
    """seconds to the first step"""
    named: dict[str, float | None] = {}
    """host -> seconds to the sentence (torchrun: to the first word that has the host's name or
    address)"""
    first_word: float | None = None
    """torchrun: seconds to anything at all on the screen of a node that is left"""
    sentence: str = ""
    resumed: float | None = None
    """seconds to the first step of another attempt"""
    world: int = 0
    repeated: int = 0
    """steps done again"""
    ended: list[str] = []
    """of the nodes that are left, those whose launcher ended by itself"""
    exits: dict[str, int | None] = {}
    orphans: dict[str, list[str]] = {}
    problems: list[str] = []
    screen: str = ""


def play(row: FaultRow, folder: Path, *, launcher: LauncherName = "holdfast") -> Measured:
    seen = Measured(row=row.name, launcher=launcher)
    with Lab() as lab:
        hosts = named_hosts(lab, row.hosts, mtu=row.mtu)
        with NodesJob(
            lab,
            hosts,
            folder,
            launcher=launcher,
            nnodes=row.nnodes,
            nproc=row.nproc,
            asked=row.asked,
            flags=row.flags if launcher == "holdfast" else (),
        ) as job:
            began = time.monotonic()
            job.start_all()
            try:
                seen.started = job.wait_for_steps(STEPS_FIRST) - began
            except TimeoutError as problem:
                seen.problems.append("did not start")
                seen.screen = str(problem)
                return seen
            job.mark()
            row.break_it(job)
            if launcher == "holdfast":
                _judge(row, job, seen)
            else:
                _note(row, job, seen)
            left = [h for h in hosts if job.nodes[h.name].process.poll() is None]
            seen.ended = seen.ended or [
                h.name for h in hosts if h not in left and h.name not in row.silent
            ]
            seen.orphans = job.orphans([host for host in hosts if host not in left], seconds=1)
            seen.exits = job.end()
            seen.orphans |= job.orphans(hosts)
            if launcher == "holdfast":
                seen.problems += [f"{name} did not end" for name in _still(job, left)]
                seen.problems += [f"left on {n}: {c}" for n, c in seen.orphans.items()]
                seen.problems += job.curve_breaks()[:3]
            seen.screen = job.screen(*hosts, last=200)
    return seen


def _still(job: NodesJob, hosts: list[Host]) -> list[str]:
    return [host.name for host in hosts if job.nodes[host.name].process.poll() is None]


def _judge(row: FaultRow, job: NodesJob, seen: Measured) -> None:
    hosts = [host for host in job.hosts if host.name not in row.silent]
    mentions = row.mentions[0] if row.mentions else ""
    seen.named = job.wait_for_sentence(hosts, *row.slugs, mentions=mentions, seconds=PATIENCE)
    for name, seconds in seen.named.items():
        if seconds is None:
            seen.problems.append(f"{name} says nothing right in {PATIENCE:.0f} s")
        elif seconds > row.within:
            seen.problems.append(f"{name} says it after {seconds:.1f} s")
    _after(row, job, hosts, seen)
    _sentences(row, job, hosts, seen)
    if row.then is not None:
        seen.problems += row.then(job)


def _after(row: FaultRow, job: NodesJob, hosts: list[Host], seen: Measured) -> None:
    if row.after == "resumes":
        step = job.goes_on(world=row.world, seconds=RESUME)
        if step is None:
            newest = job.newest()
            seen.problems.append(f"no attempt of {row.world} ranks in {RESUME:.0f} s: {newest}")
            return
        seen.resumed, seen.world = step.at - job.marked, step.world
        seen.repeated = _repeated(job, step)
        if step.step < 20:
            seen.problems.append(f"resumed at step {step.step}")
    elif row.after == "stops":
        codes = job.exits(60, hosts)
        seen.ended = [name for name, code in codes.items() if code is not None]
        seen.problems += [f"{n} runs on" for n, code in codes.items() if code is None]
        seen.problems += [f"{n} ends with {c}" for n, c in codes.items() if c == 0]


def _repeated(job: NodesJob, first: Step) -> int:
    """Steps of earlier attempts that this one, which begins with `first`, does again."""
    every = [s for steps in job.steps().values() for s in steps if s.attempt < first.attempt]
    return max(s.step for s in every) + 1 - first.step


def _sentences(row: FaultRow, job: NodesJob, hosts: list[Host], seen: Measured) -> None:
    """What else was said of the fault, on any node that is left."""
    for host in hosts:
        for one in job.sentences(host):
            if one.slug in row.slugs:
                seen.sentence = seen.sentence or one.reason
                lacking = [name for name in row.mentions if name not in one.reason]
                if lacking and one.reason == seen.sentence:
                    seen.problems.append(f"does not name {', '.join(lacking)}: {one.reason}")
            elif one.kind == "verdict" and one.slug not in row.beside:
                seen.problems.append(f"{host.name} blames: {one.slug}: {one.reason}")
    guilty = {*row.mentions, *row.guilty}
    for record in (record for host in hosts for record in job.judgements(host)):
        innocent = sorted({*record["hosts"]} - guilty)
        if innocent and record["slug"] not in TRUE_WHERE_BUSY:
            names = ", ".join(innocent)
            seen.problems.append(f"{record['slug']} blames {names}: {record['reason']}")
    seen.problems = list(dict.fromkeys(seen.problems))


def _note(row: FaultRow, job: NodesJob, seen: Measured) -> None:
    """torchrun: whatever its launchers say, and what becomes of the job."""
    hosts = [host for host in job.hosts if host.name not in row.silent]
    culprits = [host for host in job.hosts if host.name in row.mentions]
    words = [word for host in culprits for word in (host.name, host.address)]
    until = job.marked + PATIENCE
    while time.monotonic() < until:
        _read_torchrun(job, hosts, words, seen)
        ended = all(job.nodes[h.name].process.poll() is not None for h in hosts)
        if ended or (seen.resumed is not None and job.since() > seen.resumed + 3):
            break
        if seen.resumed is None and (step := job.goes_on(seconds=0.3)):
            seen.resumed, seen.world = step.at - job.marked, step.world
            seen.repeated = _repeated(job, step)
        time.sleep(0.2)


def _read_torchrun(job: NodesJob, hosts: list[Host], words: list[str], seen: Measured) -> None:
    for host in hosts:
        lines = [line for line in [*job.screens[host.name]] if line.at >= job.marked]
        if lines and (seen.first_word is None or lines[0].at - job.marked < seen.first_word):
            seen.first_word = lines[0].at - job.marked
            seen.sentence = lines[0].text
        naming = next((line for line in lines if any(word in line.text for word in words)), None)
        seen.named[host.name] = naming.at - job.marked if naming else None

"""The runs of several machines: asked over ssh, all at the same time."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import NamedTuple

from holdfast.analysis.job.run_paths import RUN_ID
from holdfast.analysis.nodes import Absence
from holdfast.errors import ConfigError, EnvironmentFailure
from holdfast.nodes.channel import Channel
from holdfast.nodes.channel_errors import ChannelError
from holdfast.nodes.handshake import Introduction
from holdfast.nodes.reach.hosts import HostSpec
from holdfast.nodes.reach.remote_command import remote_command
from holdfast.nodes.reach.ssh import members_over_ssh
from holdfast.run.runs import bundle, redact, registry
from holdfast.run.runs.archive import Archive, BundledFile, new_archive
from holdfast.run.runs.bundle import Bundle
from holdfast.run.runs.nodes import messages
from holdfast.run.runs.nodes.seen_runs import SeenRun, by_run, each_once, labels
from holdfast.run.runs.registry import RunState
from holdfast.text import size

ASKER = Introduction(node="asker")
REACH_SECONDS = 20.0
"""to log in and to start Python"""
CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 30.0
"""for the next message: a disk may be slow, and a launcher says every two seconds that it ends"""
QUIET_SECONDS = 2.0
"""after which the user hears what is waited for"""

Say = Callable[[str], None]


class Machines(NamedTuple):
    """What to ask, and of whom."""

    hosts: Sequence[HostSpec]
    root: str
    """the folder of runs, the same path everywhere"""
    remote_python: str | None
    say: Say


class ListedRuns(NamedTuple):
    runs: list[SeenRun]
    absent: list[Absence]


class StoppedRun(NamedTuple):
    run: str
    said: dict[str, str]
    """node -> what was done"""
    failed: list[Absence]
    """nodes where it may still run, and why"""
    absent: list[Absence]


class GatheredBundle(NamedTuple):
    run: str
    nodes: list[str]
    bundle: Bundle
    absent: list[Absence]


def list_runs(machines: Machines) -> ListedRuns:
    async def ask() -> ListedRuns:
        async with _asked(machines) as asked:
            return ListedRuns(asked.runs, asked.absent)

    return asyncio.run(ask())


def stop(machines: Machines, wanted: str) -> StoppedRun:
    """Every node of the run is told: where the launchers cannot talk to each other, this can."""

    async def end(one: SeenRun, channel: Channel) -> str:
        await channel.send(messages.StopRun(root=machines.root, id=one.summary.id))
        while isinstance(reply := await _reply(channel), messages.StillStopping):
            if reply.line:
                machines.say(f"{one.node}: {reply.line}")
        return reply.sentence if isinstance(reply, messages.RunStopped) else ""

    async def ask() -> StoppedRun:
        async with _asked(machines) as asked:
            folders = _chosen(asked.runs, wanted, machines.root)
            alive = [one for one in folders if one.summary.state is RunState.RUNNING]
            # one channel serves one question at a time, and a machine may have two launchers
            locks = {one.machine: asyncio.Lock() for one in alive}

            async def guarded(one: SeenRun) -> str | ChannelError | EnvironmentFailure:
                try:
                    async with locks[one.machine]:
                        return await end(one, asked.channels[one.machine])
                except (ChannelError, EnvironmentFailure) as problem:
                    return problem

            answers = await asyncio.gather(*map(guarded, alive))
            said: dict[str, str] = {}
            failed: list[Absence] = []
            for one, answer in zip(alive, answers, strict=True):
                if isinstance(answer, str):
                    said[one.node] = answer
                else:
                    failed.append(Absence(name=one.node, why=answer.sentence, hint=answer.hint))
            failed += [
                Absence(name=one.node, why="its launcher cannot be seen from the machines asked")
                for one in folders
                if one.summary.state is RunState.UNKNOWN
            ]
            return StoppedRun(folders[0].summary.run, said, failed, asked.absent)

    return asyncio.run(ask())


def write_bundle(machines: Machines, wanted: str, target: str | None) -> GatheredBundle:
    """RUN/NODE/… in one archive; the coordinator's folder first, so that `explain` knows from its
    journal what to read of the others."""

    async def ask() -> GatheredBundle:
        async with _asked(machines) as asked:
            folders = _chosen(asked.runs, wanted, machines.root)
            run = _run_id(folders[0])
            where = target or f"{run}.tar.gz"
            names = [_harmless(name.replace("/", "-")) or "node" for name in labels(folders)]
            notes = [f"{one.name}: left out, {one.why}" for one in asked.absent]
            with new_archive(where) as archive:
                progress = _Progress(archive, len(folders), machines.say)
                for one, node in zip(folders, names, strict=True):
                    progress.node = node
                    got = _fetch(asked.channels[one.machine], one, machines.root, len(folders))
                    try:
                        async for file in got:
                            if isinstance(file, BundledFile):
                                archive.add(f"{run}/{node}", file)
                                progress()
                            else:
                                notes += [f"{node}: {note}" for note in file]
                    except (ChannelError, EnvironmentFailure) as problem:
                        notes.append(f"{node}: incomplete, {problem.sentence}")
                    progress.done += 1
                packed = archive.files
                archive.add(run, bundle.contents(notes))
            return GatheredBundle(run, names, Bundle(where, packed, tuple(notes)), asked.absent)

    return asyncio.run(ask())


async def _fetch(
    channel: Channel, one: SeenRun, root: str, nodes: int
) -> AsyncIterator[BundledFile | tuple[str, ...]]:
    """Its files, and at the end its notes."""
    values = redact.values_of(os.environ)  # of this shell; those of the run are gone already
    question = messages.SendRun(root=root, id=one.summary.id, most=bundle.share(nodes))
    await channel.send(question)
    while isinstance(reply := await _reply(channel), messages.RunFile):
        content = redact.from_file(reply.name, reply.content, values) if values else reply.content
        yield BundledFile(_harmless(reply.name), content, reply.written)
    if isinstance(reply, messages.RunSent):
        yield reply.notes


def _run_id(one: SeenRun) -> str:
    """As it is said by another machine; here it becomes a path."""
    run = one.summary.run
    if not re.match(RUN_ID, run):
        raise EnvironmentFailure(f"{one.machine} calls its run {run[:60]!r}, which is no run's id")
    return run


def _harmless(name: str) -> str:
    """A name from another machine becomes one in an archive that people unpack."""
    return "/".join(part for part in name.split("/") if part not in ("", ".", ".."))


class _Asked(NamedTuple):
    runs: list[SeenRun]
    absent: list[Absence]
    channels: dict[str, Channel]


@contextlib.asynccontextmanager
async def _asked(machines: Machines) -> AsyncIterator[_Asked]:
    """All machines, each with the list of its runs."""
    command = remote_command(
        ["runs", "--member"], same_python=sys.executable, remote_python=machines.remote_python
    )
    loop = asyncio.get_running_loop()
    count = len(machines.hosts)
    waiting = f"asking {count} machine{'s' * (count > 1)} over ssh"
    remark = loop.call_later(QUIET_SECONDS, machines.say, waiting)
    try:
        async with members_over_ssh(
            machines.hosts,
            command,
            understands=messages.RunsReply,
            me=ASKER,
            seconds=REACH_SECONDS,
            connect_seconds=CONNECT_SECONDS,
        ) as reached:

            async def listed(name: str, channel: Channel) -> list[SeenRun] | Absence:
                try:
                    await channel.send(messages.ListRuns(root=machines.root))
                    reply = await _reply(channel)
                except (ChannelError, EnvironmentFailure) as problem:
                    return Absence(name=name, why=problem.sentence, hint=problem.hint)
                runs = reply.runs if isinstance(reply, messages.RunsListed) else ()
                return [SeenRun(machine=name, summary=run) for run in runs]

            answers = await asyncio.gather(
                *(listed(member.name, member.channel) for member in reached.members)
            )
            remark.cancel()
            found = [one for answer in answers if isinstance(answer, list) for one in answer]
            absent = [one for one in answers if isinstance(one, Absence)]
            yield _Asked(
                each_once(found),
                [*reached.absent, *absent],
                {member.name: member.channel for member in reached.members},
            )
    finally:
        remark.cancel()


async def _reply(channel: Channel) -> messages.RunsReply:
    reply: messages.RunsReply = await channel.receive(seconds=ANSWER_SECONDS)
    if isinstance(reply, messages.CouldNot):
        raise EnvironmentFailure(reply.sentence, hint=reply.hint)
    return reply


def _chosen(seen: Sequence[SeenRun], wanted: str, root: str) -> list[SeenRun]:
    """The folders of the run that was named, its leading one first."""
    if not seen:
        raise ConfigError(
            f"no runs in {root} on any machine that answered",
            hint="give their folder: `--runs DIR`",
        )
    found = registry.parts([one.summary for one in seen], wanted, where=root)
    chosen = [one for one in seen if any(one.summary is summary for summary in found)]
    return by_run(chosen)[0]


class _Progress:
    """A line every two seconds."""

    def __init__(self, archive: Archive, nodes: int, say: Say) -> None:
        self._archive = archive
        self._nodes = nodes
        self._say = say
        self._next = time.monotonic() + QUIET_SECONDS
        self.node = ""
        self.done = 0

    def __call__(self) -> None:
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + QUIET_SECONDS
            self._say(
                f"packed {size(self._archive.bytes)}, {self.done} of {self._nodes} nodes; "
                f"now {self.node}"
            )

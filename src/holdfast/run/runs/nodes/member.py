"""One machine answers for its runs, to the holdfast that started it over ssh."""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import socket

from holdfast.analysis.job.run_paths import RunPaths
from holdfast.errors import ConfigError, Error
from holdfast.nodes.channel import Channel
from holdfast.nodes.channel_errors import ChannelError
from holdfast.nodes.handshake import Introduction
from holdfast.nodes.pipes import channel_over_stdio
from holdfast.run.runs import bundle, registry
from holdfast.run.runs.nodes import messages

JOIN_SECONDS = 30.0
IDLE = 600.0
"""seconds without a question: the asker may be packing what other machines sent"""
NEWS_EVERY = 2.0
SENDING_SECONDS = 300.0
"""the asker writes what comes to a disk that may be slow"""


def serve_over_pipes() -> None:
    """Until the asker is gone."""
    asyncio.run(_serve())


async def _serve() -> None:
    with contextlib.suppress(ChannelError):
        async with channel_over_stdio(
            understands=messages.Question,
            me=Introduction(node=socket.gethostname()),
            seconds=JOIN_SECONDS,
        ) as channel:
            while True:
                await _answer(channel, await channel.receive(seconds=IDLE))


async def _answer(channel: Channel, asked: messages.Question) -> None:
    try:
        if isinstance(asked, messages.ListRuns):
            runs = tuple(registry.list_runs(asked.root))
            await channel.send(messages.RunsListed(runs=runs), seconds=SENDING_SECONDS)
        elif isinstance(asked, messages.StopRun):
            await _stop(channel, asked)
        else:
            await _send(channel, asked)
    except ChannelError:
        raise
    except Error as problem:
        await channel.send(messages.CouldNot(sentence=problem.sentence, hint=problem.hint))
    except OSError as problem:
        await channel.send(messages.CouldNot(sentence=f"{problem.filename}: {problem.strerror}"))


def _paths(asked: messages.StopRun | messages.SendRun) -> RunPaths:
    paths = RunPaths(asked.root, os.path.basename(asked.id))
    if registry.marker_of(paths) is None:
        raise ConfigError(f"no run {asked.id!r} in {asked.root}")
    return paths


async def _stop(channel: Channel, asked: messages.StopRun) -> None:
    run = registry.read_run(_paths(asked))
    news: queue.SimpleQueue[str] = queue.SimpleQueue()
    ending = asyncio.create_task(asyncio.to_thread(registry.stop, run, tell=news.put))
    while not ending.done():
        await asyncio.wait([ending], timeout=NEWS_EVERY)
        line = "" if news.empty() else news.get()
        await channel.send(messages.StillStopping(line=line))
    await channel.send(messages.RunStopped(sentence=await ending))


async def _send(channel: Channel, asked: messages.SendRun) -> None:
    notes: list[str] = []
    paths = _paths(asked)
    for file in bundle.files_of(paths, environment=os.environ, notes=notes, most=asked.most):
        told = messages.RunFile(name=file.name, content=file.content, written=file.written)
        await channel.send(told, seconds=SENDING_SECONDS)
    await channel.send(messages.RunSent(notes=tuple(notes)))

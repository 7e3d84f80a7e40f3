"""How a member finds its coordinator: it tries until the deadline, and says what it saw last."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import threading
from typing import Any

from holdfast.nodes import frames
from holdfast.nodes.channel import Channel
from holdfast.nodes.channel_errors import (
    ChannelClosed,
    ChannelError,
    ChannelTimeout,
    CouldNotJoin,
    NotHoldfast,
    endpoint,
)
from holdfast.nodes.framed_stream import FramedStream, words
from holdfast.nodes.handshake import Introduction, greet_coordinator
from holdfast.nodes.keepalive import notice_loss
from holdfast.nodes.token import Token

FIRST_PAUSE = 0.05
LONGEST_PAUSE = 1.0
ONE_TRY = 5.0
"""seconds for one connect, and for one greeting"""


async def join(
    host: str,
    port: int,
    *,
    token: Token,
    understands: Any,
    me: Introduction,
    seconds: float,
    limit: int = frames.LARGEST_MESSAGE,
) -> Channel:
    """A channel to the coordinator, which may start later than we do.

    Tries again while nothing listens there or the connection is lost. What will not change by
    waiting (`WrongVersion`, `WrongToken`, `Refused`, `NotHoldfast`) is raised at once;
    `CouldNotJoin` says what the last try saw.
    """
    where = endpoint(host, port)
    end = asyncio.get_running_loop().time() + seconds
    pause, tries, last = FIRST_PAUSE, 0, "nothing was tried"
    while (left := end - asyncio.get_running_loop().time()) > 0:
        tries += 1
        try:
            return await _one_try(
                host, port, token=token, understands=understands, me=me, seconds=left, limit=limit
            )
        except (ChannelClosed, ChannelTimeout) as problem:
            last = problem.sentence
        except asyncio.TimeoutError:
            last = f"no answer from {where}"
        except OSError as problem:
            last = words(problem)
        await asyncio.sleep(min(pause * random.uniform(0.5, 1), max(0.0, left)))
        pause = min(pause * 1.6, LONGEST_PAUSE)
    raise CouldNotJoin(where, tries=tries, seconds=seconds, last=last)


async def _one_try(
    host: str,
    port: int,
    *,
    token: Token,
    understands: Any,
    me: Introduction,
    seconds: float,
    limit: int,
) -> Channel:
    limit_of_try = min(seconds, ONE_TRY)
    reader, writer = await asyncio.wait_for(_connected(host, port), limit_of_try)
    notice_loss(writer)
    stream = FramedStream(reader, writer, peer=endpoint(host, port))
    try:
        theirs = await greet_coordinator(stream, me, token=token, seconds=limit_of_try)
    except ChannelError as problem:
        stream.abort(problem)
        if isinstance(problem, NotHoldfast):
            problem.hint = f"see what listens there: ss -ltnp 'sport = :{port}'"
        raise
    except BaseException:
        stream.abort()
        raise
    stream.largest = limit
    return Channel(stream, understands=understands, node=theirs.node)


async def _connected(host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """To the first of its addresses that answers; a dead one must not use up the time of all."""
    problems: list[OSError] = []
    for found in await _resolved(host, port):
        attempt = asyncio.open_connection(found[4][0], found[4][1], family=found[0])
        try:
            return await asyncio.wait_for(attempt, 2.0)
        except asyncio.TimeoutError:
            problems.append(TimeoutError(f"no answer from {endpoint(str(found[4][0]), port)}"))
        except OSError as problem:
            problems.append(problem)
    raise problems[-1]


Addresses = list[tuple[Any, Any, int, str, tuple[Any, ...]]]


async def _resolved(host: str, port: int) -> Addresses:
    """In a thread that may be left behind: asyncio's own would keep the process from ending for as
    long as a dead resolver takes.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Addresses] = loop.create_future()

    def settle(result: Addresses | OSError) -> None:
        if answer.done():
            return
        if isinstance(result, OSError):
            answer.set_exception(result)
        else:
            answer.set_result(result)

    def resolve() -> None:
        result: Any
        try:
            result = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError as problem:
            result = problem
        except UnicodeError:
            result = OSError(f"{host!r} is no valid host name")
        with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(settle, result)

    threading.Thread(target=resolve, name="resolve", daemon=True).start()
    return await answer

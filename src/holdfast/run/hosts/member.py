"""On one host: look, try addresses, start the launcher, pass its output on and signals to it.

The launcher is a process of its own. When the connection ends it gets SIGHUP, as from a terminal
that is closed, and ends its ranks in order; with nohup it continues, and its output is in the run's
folder.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Collection

import holdfast
from holdfast.errors import EnvironmentFailure
from holdfast.nodes.channel import Channel
from holdfast.nodes.channel_errors import ChannelError, ChannelTimeout
from holdfast.nodes.framed_stream import words
from holdfast.nodes.handshake import Introduction
from holdfast.nodes.pipes import channel_over_stdio
from holdfast.nodes.reach.meeting import DEFAULT_STORE_PORT
from holdfast.run.hosts import messages
from holdfast.run.launch import ports
from holdfast.system.kernel_calls import memory_file

JOIN_SECONDS = 30.0
IDLE_SECONDS = 3600.0
FOREVER = 1e9
"""seconds: a terminal may be paused for a weekend, and ends no job by that"""
TRY_SECONDS = 2.0
CHUNK = 1 << 16
LAST_OUTPUT_SECONDS = 2.0
"""after the launcher has exited: a process that it left behind may hold its output open"""


def serve_over_pipes(own_addresses: Callable[[], Collection[str]]) -> None:
    asyncio.run(_Host(own_addresses).serve())


class _Host:
    def __init__(self, own_addresses: Callable[[], Collection[str]]) -> None:
        self._own_addresses = own_addresses
        self._held: socket.socket | None = None

    async def serve(self) -> None:
        with contextlib.suppress(ChannelError):
            async with channel_over_stdio(
                understands=messages.ToHost,
                me=Introduction(node=socket.gethostname()),
                seconds=JOIN_SECONDS,
            ) as channel:
                while True:
                    asked = await channel.receive(seconds=IDLE_SECONDS)
                    if isinstance(asked, messages.StartLauncher):
                        self._let_go()
                        await _Launcher(channel, asked).run()
                    else:
                        await channel.send(await self._answer(asked))

    async def _answer(self, asked: messages.ToHost) -> messages.FromHost:
        if isinstance(asked, messages.LookAtHost):
            return messages.HostLook(
                host=socket.gethostname(),
                addresses=tuple(sorted(self._own_addresses())),
                folder=os.path.isdir(asked.folder) and os.access(asked.folder, os.X_OK),
                release=holdfast.__version__,
            )
        if isinstance(asked, messages.HoldPort):
            return self._hold(asked.port)
        assert isinstance(asked, messages.TryPlaces)
        return await _tried(asked)

    def _hold(self, port: int) -> messages.PortHeld:
        everywhere = "::" if os.path.exists("/proc/net/if_inet6") else "0.0.0.0"
        try:
            if port:
                self._held = ports.listen_on(port, everywhere)
            else:
                self._held = _default_port(everywhere) or ports.listen_anywhere(everywhere)
        except EnvironmentFailure as failed:
            return messages.PortHeld(port=0, problem=failed.sentence)
        return messages.PortHeld(port=self._held.getsockname()[1])

    def _let_go(self) -> None:
        if self._held is not None:
            self._held.close()


def _default_port(address: str) -> socket.socket | None:
    """The one that torchrun's users have open in their firewalls, where it is free."""
    with contextlib.suppress(EnvironmentFailure):
        return ports.listen_on(DEFAULT_STORE_PORT, address)
    return None


async def _tried(asked: messages.TryPlaces) -> messages.PlacesTried:
    async def one(place: str) -> str:
        try:
            connecting = asyncio.open_connection(place, asked.port)
            _, writer = await asyncio.wait_for(connecting, TRY_SECONDS)
        except asyncio.TimeoutError:
            return f"no answer within {TRY_SECONDS:g} s"
        except OSError as problem:
            return words(problem)
        writer.close()  # we first: the TIME_WAIT is ours, and not at the port of the meeting
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        return ""

    answers = await asyncio.gather(*map(one, asked.places))
    told = list(zip(asked.places, answers, strict=True))
    return messages.PlacesTried(
        reached=tuple(place for place, why in told if not why),
        failed=tuple(f"{place}: {why}" for place, why in told if why),
    )


class _Launcher:
    def __init__(self, channel: Channel, order: messages.StartLauncher) -> None:
        self._channel = channel
        self._order = order
        self._connected = True

    async def run(self) -> None:
        process = await self._start()
        assert process.stdout is not None
        assert process.stderr is not None
        listening = asyncio.create_task(self._obey(process))
        output = [
            asyncio.create_task(self._pass_on(process.stdout, 1)),
            asyncio.create_task(self._pass_on(process.stderr, 2)),
        ]
        code = await process.wait()
        await asyncio.wait(output, timeout=LAST_OUTPUT_SECONDS if self._connected else 0.1)
        for task in (listening, *output):
            task.cancel()
        # One reader at a time: the next order is read from the same channel.
        await asyncio.gather(listening, *output, return_exceptions=True)
        ended = messages.LauncherExited(code=code if code >= 0 else 128 - code, killed=code < 0)
        await self._send(ended)

    async def _start(self) -> asyncio.subprocess.Process:
        """The token is in memory that only this process and the launcher have: neither its
        command line nor its environment, which ranks inherit, shows it."""
        order = self._order
        arguments = list(order.arguments)
        handed: list[int] = []
        if order.token:
            secret = memory_file("holdfast-token")
            os.fchmod(secret, 0o600)
            os.write(secret, order.token.encode())
            handed = [secret]
            arguments = ["--token-file", f"/proc/self/fd/{secret}", *arguments]
        try:
            return await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "holdfast", "run", *arguments),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=order.folder,
                env={**os.environ, **order.environment},
                pass_fds=handed,
                start_new_session=True,
            )
        finally:
            for number in handed:
                os.close(number)

    async def _obey(self, process: asyncio.subprocess.Process) -> None:
        try:
            while True:
                with contextlib.suppress(ChannelTimeout):
                    asked = await self._channel.receive(seconds=IDLE_SECONDS)
                    if isinstance(asked, messages.SendSignal):
                        _signal(process, asked.number)
        except ChannelError:
            self._connected = False
            if not self._order.goes_on_alone:
                _signal(process, signal.SIGHUP)

    async def _pass_on(self, stream: asyncio.StreamReader, number: int) -> None:
        """To the end, also when the connection is gone: a full pipe would stop the ranks."""
        while content := await stream.read(CHUNK):
            await self._send(messages.LauncherOutput(number=number, content=content))

    async def _send(self, message: messages.FromHost) -> None:
        if self._connected:
            try:
                await self._channel.send(message, seconds=FOREVER)
            except ChannelError:
                self._connected = False


def _signal(process: asyncio.subprocess.Process, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(number)

"""From one machine: reach all hosts, find where they can meet, start the launchers, show what they
print, pass signals on, and end with the job's exit code."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeVar

from holdfast.analysis.machine import addresses
from holdfast.analysis.nodes import Absence
from holdfast.errors import EnvironmentFailure
from holdfast.nodes.channel import Channel
from holdfast.nodes.channel_errors import ChannelError, ChannelTimeout, endpoint
from holdfast.nodes.etcd import access
from holdfast.nodes.handshake import Introduction
from holdfast.nodes.reach.hosts import HostSpec
from holdfast.nodes.reach.meeting import is_address
from holdfast.nodes.reach.remote_command import remote_command
from holdfast.nodes.reach.ssh import SshMember, members_over_ssh
from holdfast.nodes.token import fresh_token
from holdfast.run.hosts import messages, typed
from holdfast.run.hosts.shown_lines import ShownLine, ShownLines
from holdfast.run.hosts.typed import HostsCommand

STARTER = Introduction(node="starter")
REACH_SECONDS = 20.0
CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 15.0
LISTEN_SECONDS = 3600.0
TO_ALL = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1,
          signal.SIGUSR2)  # fmt: skip
AGAIN = 3
"""times that a launcher is started again on one host"""
TOO_FEW_SECONDS = 10.0
"""for launchers to end by themselves, once too few of them are left"""

A = TypeVar("A", bound=messages.HostsMessage)
Say = Callable[[str], None]
Write = Callable[[int, bytes], None]


class JobToStart(NamedTuple):
    command: HostsCommand
    hosts: Sequence[HostSpec]
    folder: str
    environment: dict[str, str]
    goes_on_alone: bool


def run(job: JobToStart, *, say: Say, write: Write) -> int:
    """The job's exit code. Raises EnvironmentFailure when not all hosts can be reached."""
    return asyncio.run(_Driver(job, say, write).run())


class _Driver:
    def __init__(self, job: JobToStart, say: Say, write: Write) -> None:
        self._job = job
        self._say = say
        self._write = write
        self._codes: dict[str, int] = {}
        self._lost: set[str] = set()
        self._broken: set[int] = set()
        self._orders: dict[str, messages.StartLauncher] = {}
        self._started_again: Counter[str] = Counter()
        self._told = False
        """a signal asked us to end the job"""
        self._left = asyncio.Event()
        """a launcher or a connection has ended"""

    async def run(self) -> int:
        job = self._job
        command = remote_command(
            ["run", "--launched"],
            same_python=sys.executable,
            remote_python=job.command.remote_python,
        )
        loop = asyncio.get_running_loop()
        count = len(job.hosts)
        waiting = f"reaching {count} host{'s' * (count > 1)} over ssh"
        remark = loop.call_later(2.0, self._say, waiting)
        try:
            async with members_over_ssh(
                job.hosts,
                command,
                understands=messages.FromHost,
                me=STARTER,
                seconds=REACH_SECONDS,
                connect_seconds=CONNECT_SECONDS,
                options=ALIVE,
            ) as reached:
                remark.cancel()
                _refuse_absent(reached.absent, len(job.hosts))
                return await self._start(reached.members)
        finally:
            remark.cancel()

    async def _start(self, members: Sequence[SshMember]) -> int:
        job = self._job
        looks = await asyncio.gather(*(_look(member, job.folder) for member in members))
        _refuse_folders(members, looks, job.folder)
        _refuse_releases(members, looks)
        where = await self._meeting(members, looks[0])
        token = fresh_token().secret.decode() if len(members) > 1 else ""
        with self._signals(members):
            for index, member in enumerate(members):
                arguments = typed.launcher_arguments(
                    job.command,
                    index=index,
                    hosts=len(members),
                    endpoint=where,
                    slots=member.host.slots,
                )
                order = messages.StartLauncher(
                    arguments=arguments,
                    folder=job.folder,
                    environment=job.environment,
                    token=token,
                    goes_on_alone=job.goes_on_alone,
                )
                self._orders[member.name] = order
                await member.channel.send(order)
            self._shown = ShownLines([member.name for member in members])
            watching = asyncio.create_task(self._end_when_too_few(members))
            await asyncio.gather(*map(self._follow, members))
            watching.cancel()
        return self._exit_code(members)

    async def _meeting(self, members: Sequence[SshMember], first: messages.HostLook) -> str:
        """HOST:PORT of the first host, as all others can reach it."""
        job, lead, others = self._job, members[0], members[1:]
        if not others or job.command.value("--rdzv-backend") in access.BACKENDS:
            return ""
        port = int(job.command.value("--master-port") or 0)
        held = await _asked(lead.channel, messages.HoldPort(port=port), messages.PortHeld)
        if held.problem:
            raise EnvironmentFailure(f"{lead.name}: {held.problem}")
        places = candidates(first.addresses, lead.host.name)
        question = messages.TryPlaces(places=places, port=held.port)
        answers = await asyncio.gather(
            *(_asked(other.channel, question, messages.PlacesTried) for other in others)
        )
        place = common_place(places, [answer.reached for answer in answers])
        if place is None:
            raise _cannot_meet(lead.name, held.port, others, answers)
        self._say(
            f"starting on {len(members)} nodes ({', '.join(m.name for m in members)}), which meet "
            f"at {endpoint(place, held.port)} of {lead.name}"
        )
        return endpoint(place, held.port)

    # --- while it runs -------------------------------------------------------------------------

    async def _follow(self, member: SshMember) -> None:
        name = member.name
        try:
            while name not in self._codes:
                with contextlib.suppress(ChannelTimeout):
                    news = await member.channel.receive(seconds=LISTEN_SECONDS)
                    if isinstance(news, messages.LauncherOutput):
                        await self._show(self._shown.add(name, news.number, news.content))
                    elif isinstance(news, messages.LauncherExited):
                        await self._show(self._shown.rest(name))
                        if not await self._start_again(member, news):
                            self._codes[name] = news.code
        except ChannelError as problem:
            await self._show(self._shown.rest(name))
            self._lost.add(name)
            what = (
                "its launcher continues"
                if self._job.goes_on_alone
                else "its launcher ends as after SIGHUP, if it lives"
            )
            self._say(f"lost the connection to {name}: {problem.sentence}; {what}")
        self._left.set()

    async def _start_again(self, member: SshMember, ended: messages.LauncherExited) -> bool:
        """A launcher that was killed, and did not end by itself: the others wait for its node."""
        name = member.name
        others = self._orders.keys() - self._codes.keys() - self._lost - {name}
        if self._told or not (ended.killed and others) or self._started_again[name] >= AGAIN:
            return False
        self._started_again[name] += 1
        self._say(
            f"the launcher on {name} was killed by {_signal_name(ended.code - 128)}: starting it "
            f"again ({self._started_again[name]} of {AGAIN})"
        )
        await member.channel.send(self._orders[name])
        return True

    async def _show(self, lines: Sequence[ShownLine]) -> None:
        """In a thread: a screen that takes nothing must not keep Ctrl-C from the nodes."""
        for number in (1, 2):
            text = b"".join(line.text for line in lines if line.number == number)
            if text and number not in self._broken:
                try:
                    await asyncio.to_thread(self._write, number, text)
                except OSError:  # `| head`: the job continues, as on one machine
                    self._broken.add(number)

    async def _end_when_too_few(self, members: Sequence[SshMember]) -> None:
        """A launcher that has ended by itself does not come back; the others would wait for it."""
        least = typed.least_nodes(self._job.command, len(members))
        while True:
            await self._left.wait()
            self._left.clear()
            living = [one for one in members if one.name not in self._codes]
            failed = [one.name for one in members if self._codes.get(one.name)]
            if not failed or not living or len(living) >= least:
                continue
            await asyncio.sleep(TOO_FEW_SECONDS)
            living = [
                one for one in living if one.name not in self._codes and one.name not in self._lost
            ]
            if living:
                self._say(
                    f"the launcher on {', '.join(failed)} has ended and {least} nodes are needed: "
                    f"ending {', '.join(one.name for one in living)}"
                )
                self._told = True
                await _send_all(living, signal.SIGINT)
            return

    @contextlib.contextmanager
    def _signals(self, members: Sequence[SshMember]) -> Iterator[None]:
        """Each goes to all nodes: the launchers know what a first and a second one mean."""
        loop = asyncio.get_running_loop()
        sending: set[asyncio.Task[None]] = set()

        def pass_on(number: signal.Signals) -> None:
            self._told = self._told or number not in (signal.SIGUSR1, signal.SIGUSR2)
            task = loop.create_task(_send_all(members, number))
            sending.add(task)
            task.add_done_callback(sending.discard)

        heard = [one for one in TO_ALL if signal.getsignal(one) is not signal.SIG_IGN]
        for number in heard:
            loop.add_signal_handler(number, pass_on, number)
        try:
            yield
        finally:
            for number in heard:
                loop.remove_signal_handler(number)

    def _exit_code(self, members: Sequence[SshMember]) -> int:
        code = job_code([self._codes.get(member.name) for member in members])
        if code is None:
            raise EnvironmentFailure(
                "the connections to all nodes are lost",
                hint="see what runs: `holdfast runs --hosts …`",
            )
        return code


ALIVE = ("-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=4")
"""a connection that is gone is noticed after a minute, also where nothing is printed"""


# --- pure -----------------------------------------------------------------------------------------


def candidates(own: Sequence[str], name: str) -> tuple[str, ...]:
    """Where others may reach a host: its own addresses, IPv4 first; then the name it has here,
    which is all there is behind NAT."""
    usable = [
        one for one in own if not addresses.is_loopback(one) and not addresses.is_link_local(one)
    ]
    usable.sort(key=lambda one: ":" in one)
    return tuple(dict.fromkeys([*usable, name]))


def common_place(places: Sequence[str], reached: Sequence[Sequence[str]]) -> str | None:
    """The first that all others reach; an address before a name."""
    common = [place for place in places if all(place in one for one in reached)]
    return min(common, key=lambda place: not is_address(place), default=None)


def job_code(codes: Sequence[int | None]) -> int | None:
    """By node rank; None for a node whose connection is lost. The first node's launcher decides
    for all, unless it was killed itself."""
    first, others = codes[0], [code for code in codes[1:] if code is not None]
    if first not in (None, 128 + signal.SIGKILL) or not others:
        return first
    return max(others)


# --- questions to one host ------------------------------------------------------------------------


async def _look(member: SshMember, folder: str) -> messages.HostLook:
    return await _asked(member.channel, messages.LookAtHost(folder=folder), messages.HostLook)


async def _asked(channel: Channel, question: messages.ToHost, kind: type[A]) -> A:
    await channel.send(question)
    answer = await channel.receive(seconds=ANSWER_SECONDS)
    if not isinstance(answer, kind):
        raise EnvironmentFailure(f"{channel.peer} gave another answer than was asked for")
    return answer


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


async def _send_all(members: Sequence[SshMember], number: signal.Signals) -> None:
    async def one(member: SshMember) -> None:
        with contextlib.suppress(ChannelError):
            await member.channel.send(messages.SendSignal(number=int(number)))

    await asyncio.gather(*map(one, members))


# --- why nothing is started -----------------------------------------------------------------------


def _refuse_absent(absent: Sequence[Absence], hosts: int) -> None:
    if not absent:
        return
    first = absent[0]
    more = [f"{one.name}: {one.why}" for one in absent[1:]]
    sentence = "; ".join([f"{first.name}: {first.why}", *more])
    raise EnvironmentFailure(
        f"{len(absent)} of {hosts} hosts cannot be used, nothing was started. {sentence}",
        hint=first.hint,
    )


def _refuse_folders(
    members: Sequence[SshMember], looks: Sequence[messages.HostLook], folder: str
) -> None:
    without = [m.name for m, look in zip(members, looks, strict=True) if not look.folder]
    if without:
        raise EnvironmentFailure(
            f"{', '.join(without)}: no folder {folder}, from which the job is started here; "
            "nothing was started",
            hint="start it from a folder that all hosts have, or copy it there",
        )


def _refuse_releases(members: Sequence[SshMember], looks: Sequence[messages.HostLook]) -> None:
    found: dict[str, list[str]] = {}
    for member, look in zip(members, looks, strict=True):
        found.setdefault(look.release, []).append(member.name)
    if len(found) > 1:
        told = "; ".join(f"{release} on {', '.join(names)}" for release, names in found.items())
        raise EnvironmentFailure(
            f"the hosts have different versions of holdfast: {told}; nothing was started",
            hint="install the same version on all of them, or name the Python: --remote-python",
        )


def _cannot_meet(
    lead: str,
    port: int,
    others: Sequence[SshMember],
    answers: Sequence[messages.PlacesTried],
) -> EnvironmentFailure:
    told = [
        f"{other.name} tried {'; '.join(answer.failed)}"
        for other, answer in zip(others, answers, strict=True)
        if answer.failed
    ]
    return EnvironmentFailure(
        f"port {port} of {lead} can be reached by no address from all other hosts, nothing was "
        f"started: {'. '.join(told)}",
        hint=f"let port {port} in on {lead}, or name one that is open: --master-port PORT; "
        "`holdfast check --hosts …` shows every path",
    )

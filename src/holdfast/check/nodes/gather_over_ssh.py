"""Members at the end of ssh connections; the coordinator need not be a node, nor listen."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Callable, Sequence

from holdfast.analysis.nodes import Absence
from holdfast.check.nodes import messages
from holdfast.check.nodes.gather import COORDINATOR, NEXT_WAIT, START_SECONDS, Gathered
from holdfast.nodes.channel_errors import ChannelError
from holdfast.nodes.reach import rack
from holdfast.nodes.reach.hosts import HostSpec
from holdfast.nodes.reach.remote_command import remote_command
from holdfast.nodes.reach.ssh import SshMember, SshOutcome, members_over_ssh


@contextlib.asynccontextmanager
async def gather_over_ssh(
    hosts: Sequence[HostSpec],
    *,
    remote_python: str | None,
    wait: float | None,
    say: Callable[[str], None],
) -> AsyncIterator[Gathered]:
    """Start a member on every host; one that does not answer is absent, with ssh's own words."""
    command = remote_command(
        ["check", "--member"], same_python=sys.executable, remote_python=remote_python
    )
    came = 0

    def progress(outcome: SshOutcome) -> None:
        nonlocal came
        if isinstance(outcome, SshMember):
            came += 1
            say(f"{outcome.name} is here: {came} of {len(hosts)} nodes")
        else:
            say(f"{outcome.name} is not: {outcome.why}")

    async with members_over_ssh(
        hosts,
        command,
        understands=messages.Reply,
        me=COORDINATOR,
        seconds=max(wait or 0.0, START_SECONDS),
        connect_seconds=wait or NEXT_WAIT,
        progress=progress,
    ) as reached:
        arrivals = await asyncio.gather(*map(_arrived, reached.members))
        members = {
            member.name: member.channel
            for member, lost in zip(reached.members, arrivals, strict=True)
            if not lost
        }
        absent = [*reached.absent, *filter(None, arrivals)]
        racks = dict(zip(members, rack.from_names(list(members)), strict=True))
        yield Gathered(members, tuple(absent), racks)


async def _arrived(member: SshMember) -> Absence | None:
    """It says who it is, though we know: the first message of every member."""
    try:
        await member.channel.receive(seconds=START_SECONDS)
    except ChannelError as problem:
        return Absence(name=member.name, why=problem.sentence)
    return None

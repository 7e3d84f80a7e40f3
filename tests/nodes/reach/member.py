"""What ssh starts in tests: a member that answers until its stdin ends.

python -m tests.nodes.reach.member PIDFILE
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from pathlib import Path

from holdfast.nodes.channel_errors import ChannelError
from holdfast.nodes.handshake import Introduction
from holdfast.nodes.pipes import channel_over_stdio
from tests.nodes.conversation import LONG, Answer, Messages


async def serve() -> None:
    me = Introduction(node=os.uname().nodename)
    async with channel_over_stdio(understands=Messages, me=me, seconds=LONG) as channel:
        with contextlib.suppress(ChannelError):
            while True:
                asked = await channel.receive(seconds=600)
                await channel.send(Answer(asked.number + 1, os.uname().nodename))


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(str(os.getpid()))
    asyncio.run(serve())
    Path(sys.argv[1]).unlink(missing_ok=True)

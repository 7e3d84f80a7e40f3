"""A member on a lab host, for tests: requests and replies are lines of JSON on its pipes."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Mapping

import msgspec

from holdfast.check.nodes.smoke.member import SmokeMember
from holdfast.check.nodes.smoke.messages import Replies, Requests
from holdfast.drill.lab import Host, Lab


class MemberProcess:
    """`ask` it as a coordinator would."""

    def __init__(self, lab: Lab, host: Host, env: Mapping[str, str | None]) -> None:
        self.process: subprocess.Popen[str] = lab.start(
            host,
            [sys.executable, "-m", "tests.check.nodes.smoke.member_process"],
            env=env,
            stdin=subprocess.PIPE,
            stderr=None,
        )

    async def ask(self, request: Requests) -> Replies:
        return await asyncio.to_thread(self._ask, request)

    def _ask(self, request: Requests) -> Replies:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(msgspec.json.encode(request).decode() + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise ConnectionError("the member is gone")
        return msgspec.json.decode(line, type=Replies)  # type: ignore[no-any-return]


async def serve() -> None:
    member = SmokeMember()
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    try:
        while line := await reader.readline():
            request: Requests = msgspec.json.decode(line, type=Requests)
            print(msgspec.json.encode(await member.handle(request)).decode(), flush=True)
    finally:
        member.close()


if __name__ == "__main__":
    asyncio.run(serve())

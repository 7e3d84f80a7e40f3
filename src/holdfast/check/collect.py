"""Collect every fact of this machine at once, no question longer than the deadline."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from typing import Any, get_type_hints

import msgspec

from holdfast.analysis.machine import MachineFacts, Plan, Unread
from holdfast.system import deadline
from holdfast.text import printable

Reader = Callable[[Plan], object]
"""One reader answers one field of MachineFacts; it may raise, and it may hang."""
OF_DRIVERS = ("nvidia", "cuda", "gpu_direct", "rdma_cards", "rdma_ports")
"""facts that a vendor's driver is asked for: it may be slow where everything is well"""
_WORDS = {
    **dict.fromkeys(("nvidia", "cuda", "gpu_direct"), "NVIDIA's driver"),
    **dict.fromkeys(("rdma_cards", "rdma_ports"), "the RDMA cards"),
}
AFTER = {"cuda": "nvidia"}
"""a program that tries GPUs would be taken for one that holds their memory"""


def collect(
    plan: Plan,
    readers: Mapping[str, Reader],
    *,
    seconds: float,
    say: Callable[[str], None] = deadline.say_nothing,
) -> MachineFacts:
    """Run every reader in its own process; what did not answer within `seconds`, or within a
    driver's own longer deadline, is `Unread`, and so is what has no reader here. `say` is told what
    takes long."""
    hints = get_type_hints(MachineFacts)

    def question(reader: Reader) -> deadline.Question:
        return lambda: _encode(reader(plan))

    raw = deadline.ask(
        {name: question(r) for name, r in readers.items()},
        seconds=seconds,
        longer=_of_drivers(seconds),
        after=AFTER,
        when_slow=lambda names: say(_waiting(names, seconds)),
    )
    asked = {"plan", "host", "smoke", *readers}
    unasked = {name: Unread(why="not asked for") for name in hints if name not in asked}
    answers: dict[str, Any] = {
        name: answer if isinstance(answer, Unread) else _decode(answer, hints[name])
        for name, answer in raw.items()
    }
    return MachineFacts(plan=plan, host=socket.gethostname(), smoke=None, **answers, **unasked)


def _waiting(names: list[str], seconds: float) -> str:
    """'waiting for NVIDIA's driver, up to 30 s'."""
    words = dict.fromkeys(_WORDS.get(name, name) for name in sorted(names))
    return f"waiting for {', '.join(words)}, up to {longest(seconds):.0f} s"


def longest(seconds: float) -> float:
    """How long a `collect` with this deadline may take."""
    return max(_of_drivers(seconds).values())


def _of_drivers(seconds: float) -> dict[str, float]:
    """The deadlines of drivers' facts, counted from the start like all."""
    own = max(seconds, deadline.DRIVER_SECONDS)
    return {**dict.fromkeys(OF_DRIVERS, own), **dict.fromkeys(AFTER, 1.5 * own)}


def _encode(answer: object) -> bytes:
    try:
        return msgspec.msgpack.encode(answer)
    except UnicodeEncodeError:  # a path or a name in it is not text
        return msgspec.msgpack.encode(printable(msgspec.to_builtins(answer)))


def _decode(answer: bytes, kind: Any) -> object:
    try:
        return msgspec.msgpack.decode(answer, type=kind)
    except msgspec.ValidationError as problem:
        return Unread(why=f"its reader's answer was not understood: {problem}")

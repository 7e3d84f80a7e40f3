"""A coordinator's and launchers' ends of links over real sockets, and waiting for what they see."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any, Literal, TypeVar

from holdfast.nodes.token import Token, fresh_token
from holdfast.run.nodes.link.coordinator_link import ListeningLink
from holdfast.run.nodes.link.interface import NodeSaid
from holdfast.run.nodes.link.launcher_link import JoinedLink
from holdfast.run.nodes.messages import NodeCard

TOKEN = fresh_token()
LONG = 30.0
"""seconds: a deadline that only a bug or a frozen machine reaches"""
T = TypeVar("T")


def until(look: Callable[[], T | Literal[False] | None], seconds: float = LONG) -> T:
    """What `look` returns once it is true."""
    end = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < end, f"not within {seconds} s"
        time.sleep(0.02)
    return found


def a_card(name: str = "b", identity: str = "", **fields: Any) -> NodeCard:
    return NodeCard(name=name, identity=identity or f"{name}-1", nproc=1, **fields)


@contextlib.contextmanager
def coordinating(*addresses: str, token: Token = TOKEN, **fields: Any) -> Iterator[ListeningLink]:
    fields = {"node": "a", "run": "20261116-a", "port": 0, **fields}
    link = ListeningLink(addresses or ("127.0.0.1",), token=token, **fields)
    try:
        yield link
    finally:
        link.close()


@contextlib.contextmanager
def joined(
    port: int, host: str = "127.0.0.1", card: NodeCard | None = None, token: Token = TOKEN,
    seconds: float = LONG, **fields: Any,
) -> Iterator[JoinedLink]:  # fmt: skip
    link = JoinedLink(host, port, token=token, card=card or a_card(), seconds=seconds, **fields)
    try:
        yield link
    finally:
        link.close()


class NewsOf:
    """All that came to a link so far."""

    def __init__(self, link: Any) -> None:
        self.link = link
        self.all: list[Any] = []

    def of(self, kind: type[T]) -> list[T]:
        self.all += self.link.news()
        return [news for news in self.all if isinstance(news, kind)]

    def first(self, kind: type[T]) -> T:
        return until(lambda: self.of(kind))[0]

    def said(self, node: str) -> list[Any]:
        return [said.message for said in self.of(NodeSaid) if said.node == node]

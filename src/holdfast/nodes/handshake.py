"""How two nodes greet each other: versions first, then both prove that they know the token.

    member       preamble, Greeting(protocol, release, name, run, nonce)
    coordinator  preamble, Greeting(…)
    member       Proof   HMAC(token, "member" + both Greetings)
    coordinator  Proof   HMAC(token, "coordinator" + both Greetings), or NotAdmitted(why)

What is protected: neither side accepts a peer that does not know the token. Both nonces, the
roles, the versions and the names are under the MAC, so that a recorded proof fits no second
connection, a proof sent back to its maker fits no role, and nothing in a Greeting can be changed.
The token gives both sides a key for this connection, and every later frame carries a MAC with its
direction and number (about 2 µs each: cheap beside a write to a socket). Without it a machine that
sits between two nodes could wait for the proofs and then speak in a node's name.

What is not: nothing is encrypted, and that machine can read all of it and can end the connection.
On ssh (`token=None`) ssh has done all this already: the Greetings are exchanged, nothing is proven.

A Greeting keeps its form for ever (fields may be added), so that any two versions can at least name
each other. Nothing but a Greeting and a Proof is decoded before the token is proven.
"""

from __future__ import annotations

import asyncio
import dataclasses
import enum
import hashlib
import hmac
import os
import secrets
from collections.abc import Awaitable, Callable
from typing import Annotated, TypeVar

import msgspec

import holdfast
from holdfast.nodes import frames
from holdfast.nodes.channel_errors import (
    BadMessage,
    ChannelTimeout,
    Refused,
    WrongToken,
    WrongVersion,
)
from holdfast.nodes.framed_stream import FramedStream, quoted
from holdfast.nodes.token import VARIABLE, Token

Short = Annotated[str, msgspec.Meta(max_length=253, pattern="^[ -~]*$")]
"""what a peer says of itself goes to screens: printable ASCII only"""
Digest = Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]


class Side(enum.Enum):
    """Who speaks; the preambles differ so that an echo is not taken for an answer."""

    MEMBER = "member"
    COORDINATOR = "coordinator"

    @property
    def preamble(self) -> bytes:
        return b"\x00holdfast " + self.value.encode() + b"\x00\n"

    @property
    def other(self) -> Side:
        return Side.COORDINATOR if self is Side.MEMBER else Side.MEMBER


class Greeting(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The first message of each side."""

    protocol: int
    holdfast: Short
    """release"""
    node: Short
    """its own name"""
    run: Short
    """which run it belongs to; '' where it does not know"""
    secret: bool
    """whether its token is a secret, or the open one that anybody can compute"""
    nonce: Digest


class Proof(msgspec.Struct, frozen=True, tag=True):
    mac: Digest


class NotAdmitted(msgspec.Struct, frozen=True, tag=True):
    why: Annotated[str, msgspec.Meta(max_length=1000)]
    wrong_token: bool = False


@dataclasses.dataclass(frozen=True)
class Introduction:
    """What this node says of itself."""

    node: str
    run: str = ""

    def hello(self, token: Token | None) -> Greeting:
        return Greeting(
            protocol=frames.PROTOCOL,
            holdfast=holdfast.__version__,
            node=quoted(os.fsencode(self.node)).encode("ascii", "replace").decode(),
            run=quoted(os.fsencode(self.run)).encode("ascii", "replace").decode(),
            secret=token is not None and token.proves,
            nonce=secrets.token_bytes(32),
        )


Admit = Callable[[Greeting], str]
"""asked by the coordinator once a member has proven the token: '' or why it is not admitted"""

_first_message = msgspec.msgpack.Decoder(Greeting)
_proof = msgspec.msgpack.Decoder(Proof)
_answer = msgspec.msgpack.Decoder(Proof | NotAdmitted)
T = TypeVar("T")


async def greet_coordinator(
    stream: FramedStream, me: Introduction, *, token: Token | None, seconds: float
) -> Greeting:
    """As a member; the coordinator's Greeting. The stream is sealed where there is a token."""

    async def talk() -> Greeting:
        own = msgspec.msgpack.encode(me.hello(token))
        await stream.write(own, seconds=seconds, preamble=Side.MEMBER.preamble)
        await stream.read_preamble(Side.COORDINATOR.preamble)
        raw, theirs = await _read_hello(stream, seconds)
        keys = _Keys(token, member=own, coordinator=raw) if token else None
        mac = keys.proof(Side.MEMBER) if keys else bytes(32)
        await stream.write(msgspec.msgpack.encode(Proof(mac)), seconds=seconds)
        answer = await _read(stream, _answer, seconds)
        if isinstance(answer, NotAdmitted):
            if answer.wrong_token:
                raise _wrong_token(_named(stream, theirs), token, theirs)
            raise Refused(_named(stream, theirs), quoted(answer.why.encode(), longest=1000))
        if keys:
            keys.check(answer, Side.COORDINATOR, stream, theirs)
            keys.seal(stream, Side.MEMBER)
        return theirs

    return await _within(seconds, stream, talk())


async def greet_member(
    stream: FramedStream,
    me: Introduction,
    *,
    token: Token | None,
    seconds: float,
    admit: Admit = lambda _: "",
    skip_noise: Callable[[FramedStream], Awaitable[None]] | None = None,
) -> Greeting:
    """As the coordinator; the member's Greeting once it has proven the token and is admitted.

    After `WrongVersion`, `WrongToken` and `Refused` close the stream, do not abort it: the answer
    that names the reason is still on its way.
    """

    async def talk() -> Greeting:
        if skip_noise:
            await skip_noise(stream)
        else:
            await stream.read_preamble(Side.MEMBER.preamble)
        own = msgspec.msgpack.encode(me.hello(token))
        try:
            raw, theirs = await _read_hello(stream, seconds)
        except WrongVersion:  # answer first: the other side names us as well
            await stream.write(own, seconds=seconds, preamble=Side.COORDINATOR.preamble)
            raise
        await stream.write(own, seconds=seconds, preamble=Side.COORDINATOR.preamble)
        proof = await _read(stream, _proof, seconds)
        keys = _Keys(token, member=raw, coordinator=own) if token else None
        if keys:
            try:
                keys.check(proof, Side.MEMBER, stream, theirs)
            except WrongToken:
                answer = NotAdmitted("", wrong_token=True)
                await stream.write(msgspec.msgpack.encode(answer), seconds=seconds)
                raise
        if why := _other_run(me, theirs) or admit(theirs):
            answer = NotAdmitted(why[:1000])
            await stream.write(msgspec.msgpack.encode(answer), seconds=seconds)
            raise Refused(_named(stream, theirs), why, by_us=True)
        mac = keys.proof(Side.COORDINATOR) if keys else bytes(32)
        await stream.write(msgspec.msgpack.encode(Proof(mac)), seconds=seconds)
        if keys:
            keys.seal(stream, Side.COORDINATOR)
        return theirs

    return await _within(seconds, stream, talk())


class _Keys:
    """All that follows from the token and the two Greetings of this connection."""

    def __init__(self, token: Token, *, member: bytes, coordinator: bytes) -> None:
        self._token = token
        said = hashlib.sha256(member).digest() + hashlib.sha256(coordinator).digest()
        self._said = b"holdfast nodes %d\0" % frames.PROTOCOL + said

    def _derive(self, purpose: str) -> bytes:
        return hmac.digest(self._token.secret, purpose.encode() + b"\0" + self._said, "sha256")

    def proof(self, side: Side) -> bytes:
        return self._derive(f"proof of {side.value}")

    def check(self, proof: Proof, side: Side, stream: FramedStream, theirs: Greeting) -> None:
        if not hmac.compare_digest(proof.mac, self.proof(side)):
            raise _wrong_token(_named(stream, theirs), self._token, theirs)

    def seal(self, stream: FramedStream, own: Side) -> None:
        stream.seal(
            incoming=frames.Seal(self._derive(f"frames of {own.other.value}")),
            outgoing=frames.Seal(self._derive(f"frames of {own.value}")),
        )


def _wrong_token(peer: str, ours: Token | None, theirs: Greeting) -> WrongToken:
    mine = ours is not None and ours.proves
    if theirs.secret == mine:
        why = "has another token; it is of another run, or is no node of yours"
    elif mine:
        why = "came without a token, and this run wants one"
    else:
        why = "wants a token, and this node has none"
    hint = f"set {VARIABLE} to the same secret on every node"
    return WrongToken(f"{peer} {why}", hint=hint)


def _other_run(me: Introduction, theirs: Greeting) -> str:
    if me.run and theirs.run and me.run != theirs.run:
        return f"it belongs to run {theirs.run}, this is run {quoted(me.run.encode())}"
    return ""


def _named(stream: FramedStream, theirs: Greeting) -> str:
    return f"{theirs.node} ({stream.peer})" if theirs.node else stream.peer


async def _read_hello(stream: FramedStream, seconds: float) -> tuple[bytes, Greeting]:
    raw = await stream.read(seconds=seconds, any_version=True)
    theirs = _decoded(stream, _first_message, raw)
    if theirs.protocol != frames.PROTOCOL:
        raise WrongVersion(
            _named(stream, theirs),
            theirs=theirs.protocol,
            ours=frames.PROTOCOL,
            their_release=theirs.holdfast,
        )
    return raw, theirs


async def _read(stream: FramedStream, decoder: msgspec.msgpack.Decoder[T], seconds: float) -> T:
    return _decoded(stream, decoder, await stream.read(seconds=seconds))


def _decoded(stream: FramedStream, decoder: msgspec.msgpack.Decoder[T], raw: bytes) -> T:
    try:
        return decoder.decode(raw)
    except (msgspec.DecodeError, ValueError, RecursionError):
        raise BadMessage(stream.peer, "sent a greeting that cannot be read") from None


async def _within(seconds: float, stream: FramedStream, talk: Awaitable[T]) -> T:
    try:
        return await asyncio.wait_for(talk, seconds)
    except asyncio.TimeoutError:
        raise ChannelTimeout(
            f"{stream.peer} did not complete the handshake within {seconds:g} s"
        ) from None

"""The secret that the nodes of one run share, and where it came from.

A coordinator and its members prove to each other that they know it (handshake.py). It is never
sent. Where none can be handed over, `open_token` stands in: it lets nodes of one command meet and
keeps strangers' programs apart by mistake, but anybody who knows the endpoint can compute it. The
trust is then that of torch's own store, and `Token.proves` says so for the screen.
"""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import os
import secrets
import stat
from collections.abc import Mapping

from holdfast.errors import ConfigError

VARIABLE = "HOLDFAST_TOKEN"
SHORTEST = 16
"""characters; a word can be guessed offline by a peer that records one handshake"""
LONGEST = 4096


class TokenSource(enum.Enum):
    FRESH = "made for this run"
    FILE = "read from a file"
    ENVIRONMENT = f"taken from {VARIABLE}"
    ETCD = "made for this run and kept in etcd"
    OPEN = "derived from the endpoint"


@dataclasses.dataclass(frozen=True)
class Token:
    """Known to the nodes of one run only, except where `source` is OPEN."""

    secret: bytes = dataclasses.field(repr=False)
    source: TokenSource

    @property
    def proves(self) -> bool:
        """Whether it keeps out a stranger who can reach the port."""
        return self.source is not TokenSource.OPEN

    def in_words(self) -> str:
        if self.proves:
            return f"token {self.source.value}: only nodes that know it are admitted"
        return (
            "no token: every program that reaches the port can join, as with torch's own store; "
            f"set {VARIABLE} to the same secret on every node to close it"
        )


def fresh_token() -> Token:
    """For one run; hand it over ssh's stdin, a 0600 file or the scheduler's environment."""
    return Token(secrets.token_hex(32).encode(), TokenSource.FRESH)


def token_from_etcd(text: str) -> Token:
    """Who may read the run's keys in etcd is trusted."""
    return Token(_usable(text, "the token in etcd"), TokenSource.ETCD)


def token_from_file(path: str) -> Token:
    """From a file that only its owner can read: the mode is asked of the open file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a FIFO must not block us
        with open(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise ConfigError(f"the token file {path} is not a regular file")
            raw = file.read(LONGEST + 1)
    except OSError as problem:
        raise ConfigError(f"cannot read the token file {path}: {problem.strerror}") from None
    if status.st_mode & 0o077:
        raise ConfigError(
            f"others can read or change the token file {path} (mode {status.st_mode & 0o777:04o})",
            hint=f"chmod 600 {path}",
        )
    if status.st_uid not in (os.geteuid(), 0):
        raise ConfigError(f"the token file {path} belongs to another user (uid {status.st_uid})")
    text = raw.decode(errors="replace")
    return Token(_usable(text, f"the token in {path}"), TokenSource.FILE)


def token_from_environment(environment: Mapping[str, str]) -> Token | None:
    text = environment.get(VARIABLE)
    if text is None:
        return None
    return Token(_usable(text, VARIABLE), TokenSource.ENVIRONMENT)


def open_token(endpoint: str) -> Token:
    """What every node can compute from what the job shares anyway; it is no secret."""
    derived = hashlib.sha256(b"holdfast open token\0" + endpoint.strip().lower().encode())
    return Token(derived.hexdigest().encode(), TokenSource.OPEN)


def _usable(text: str, name: str) -> bytes:
    token = text.strip()
    if not SHORTEST <= len(token) <= LONGEST:
        raise ConfigError(
            f"{name} must have {SHORTEST} to {LONGEST} characters, got {len(token)}",
            hint="make one: openssl rand -hex 32",
        )
    return token.encode(errors="surrogateescape")

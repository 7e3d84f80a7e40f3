"""The configuration that defines the run: rank 0's, without what differs between ranks.

every rank, in Checkpoint():   counts config/DIGEST, posts config/RANK {key: digest}
rank 0, before it is needed:   one question where all are equal; else reads what was posted
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

import msgspec

from holdfast.checkpoint.config_texts import PER_RANK, texts, without_lasting_text
from holdfast.checkpoint.message_board import MessageBoard
from holdfast.rank.print_line import say
from holdfast.text import plural

_NAMED = 6
"""keys that a line names"""


class _Digests(msgspec.Struct, frozen=True):
    """What one rank's configuration is, without its values."""

    digests: dict[str, str] | None
    """None where it was given none: it has no say"""


class RunConfig:
    """One per Checkpoint and rank; only rank 0's is stored and compared."""

    def __init__(self, config: object, board: MessageBoard) -> None:
        self._board, self._texts = board, texts(config)
        self._is_agreed = board.world_size == 1 or config is None
        if board.rank == 0 and (unstable := without_lasting_text(self._texts)):
            say(
                f"config: {_names(unstable)} {plural(unstable, 'is', 'are')} not compared at a "
                "resume: an object that is printed with its address, which changes at every start"
            )
        if board.world_size > 1:
            digests = None if config is None else self._digests()
            board.post(f"config/{board.rank}", _Digests(digests))
            board.count(f"config/{self._digest()}")

    def texts(self, *, wait: bool) -> dict[str, str]:
        """Rank 0's, for the manifest and for all ranks to compare. `wait`: for ranks that are not
        here yet, which only a resume may do: all of them take part in it."""
        if not self._is_agreed and self._board.rank == 0:
            self._is_agreed = self._agree(wait=wait)
        return self._texts

    def _agree(self, *, wait: bool) -> bool:
        board, others = self._board, range(1, self._board.world_size)
        if board.count(f"config/{self._digest()}", 0) == board.world_size:
            return True
        if not wait and not all(board.is_posted(f"config/{rank}") for rank in others):
            return False
        posted = [
            board.receive(f"config/{rank}", _Digests, sender=rank, purpose="resume").digests
            for rank in others
        ]
        if differ := differing(self._digests(), [each for each in posted if each is not None]):
            say(
                f"config: {_names(differ)} {plural(differ, 'differs', 'differ')} between ranks: "
                "not compared at a resume"
            )
            self._texts |= dict.fromkeys(differ, PER_RANK)
        return True

    def _digests(self) -> dict[str, str]:
        return {key: _digest(text) for key, text in self._texts.items()}

    def _digest(self) -> str:
        return _digest(repr(sorted(self._texts.items())))


def differing(own: Mapping[str, str], others: Iterable[Mapping[str, str]]) -> list[str]:
    """The keys that are not the same on every rank, sorted."""
    found: set[str] = set()
    for other in others:
        found |= {key for key in own.keys() | other.keys() if own.get(key) != other.get(key)}
    return sorted(found)


def _names(keys: list[str]) -> str:
    more = f" and {len(keys) - _NAMED} more" if len(keys) > _NAMED else ""
    return ", ".join(keys[:_NAMED]) + more


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:16]

"""Errors that are part of the product: each says what was seen and what to do next.

HoldfastError
├── UsageError      the user asked for something that cannot be: exit code 2
└── CannotWorkError holdfast itself could not do its work: exit code 2
"""


class HoldfastError(Exception):
    """One clear sentence, and the next command."""

    def __init__(self, sentence: str, *, hint: str = "") -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.hint = hint


class UsageError(HoldfastError):
    """What was typed does not make sense; nothing was started."""


class CannotWorkError(HoldfastError):
    """What was asked for is fine, but this machine does not let us do it."""

"""Errors that are part of the product: each says what was seen and what to do next.

Error
├── ConfigError         the user asked for something that cannot be: exit code 2
│   ├── ResumeRefused   a checkpoint is not from this run
│   └── RanksDiffer     ranks hold different state, and only rank 0's would be saved
├── EnvironmentFailure  this machine did not let holdfast do its work: exit code 2
│   └── FolderNotShared a checkpoint folder that is another one on another machine
└── CollectiveTimeout   a collective did not finish in time
"""

from __future__ import annotations

from collections.abc import Iterable


class Error(Exception):
    """The base of all errors that holdfast raises; `str()` has the sentence and the hint.

    Attributes:
        sentence: what went wrong.
        hint: what to do about it; "" when there is nothing to add.
        slugs: the faults that it is about, e.g. ("config-changed",), where there are any.
    """

    slugs: tuple[str, ...] = ()

    def __init__(self, sentence: str, *, hint: str = "") -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.hint = hint

    def __str__(self) -> str:
        """The slugs are in the text as well, so that `explain` finds them in any log."""
        named = f" [{', '.join(self.slugs)}]" if self.slugs else ""
        hint = f"\nhint: {self.hint}" if self.hint else ""
        return f"{self.sentence}{named}{hint}"


class ConfigError(Error, ValueError):
    """An argument, a flag or a file does not make sense; nothing was started."""


class ResumeRefused(ConfigError):  # noqa: N818 - its name is what happened
    """A checkpoint does not belong to this run; `slugs` says why."""

    def __init__(self, sentence: str, *, hint: str = "", slugs: Iterable[str] = ()) -> None:
        super().__init__(sentence, hint=hint)
        self.slugs = tuple(slugs)


class RanksDiffer(ConfigError):  # noqa: N818 - its name is what happened
    """Ranks hold different state, and only rank 0's would be saved."""

    slugs = ("ranks-differ",)


class EnvironmentFailure(Error, RuntimeError):  # noqa: N818 - no error of the caller
    """What was asked for is fine, but this machine does not let holdfast do it."""


class CheckpointsGone(EnvironmentFailure):
    """The run had saved checkpoints, and they are no longer there."""

    slugs = ("restart-from-zero",)


class FolderNotShared(EnvironmentFailure):
    """Machines of a job have folders of their own where they should share one."""

    slugs = ("folder-not-shared",)


class CollectiveTimeout(Error, TimeoutError):  # noqa: N818 - its name is what happened
    """A collective did not finish in time. Its group is out of step: do not use it again."""

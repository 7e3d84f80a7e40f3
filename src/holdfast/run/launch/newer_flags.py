"""Options of the newest torchrun (2.15) that an older one does not have: `run` takes them too."""

from __future__ import annotations

import argparse
import os

TEMPLATE = "--log-line-prefix-template"
TEMPLATE_HELP = (
    "what --tee puts before each line: text with ${role_name}, ${local_rank}, ${rank} and "
    "${hostname}. Default: '[${role_name}${local_rank}]:'"
)
COMPLETION = "--print-completion"
COMPLETION_HELP = "print the script that completes holdfast's options in this shell, and exit"
SHELLS = ("bash", "zsh", "fish")


class CompletionAsked(Exception):  # noqa: N818 - an answer to give, not an error
    """--print-completion was typed: there is nothing to start."""

    def __init__(self, shell: str) -> None:
        super().__init__(shell)
        self.shell = shell


def _asked(shell: str) -> str:
    """torchrun prints a script for `torchrun`, by a package that few have; we have our own."""
    if shell in SHELLS:
        raise CompletionAsked(shell)
    raise argparse.ArgumentTypeError(f"unknown shell {shell!r} (choose from {', '.join(SHELLS)})")


def add(parser: argparse.ArgumentParser) -> None:
    # Ours takes the place of torchrun's, where it has one.
    group = parser.add_argument_group("options of newer torchruns", conflict_handler="resolve")
    group.add_argument(*_spellings(COMPLETION), type=_asked, metavar="SHELL", help=COMPLETION_HELP)
    known = {option for action in parser._actions for option in action.option_strings}  # noqa: SLF001
    if TEMPLATE not in known:
        group.add_argument(
            *_spellings(TEMPLATE),
            type=str,
            default=os.environ.get("PET_LOG_LINE_PREFIX_TEMPLATE", ""),
            help=TEMPLATE_HELP,
        )


def _spellings(option: str) -> tuple[str, str]:
    return option, "--" + option[2:].replace("-", "_")

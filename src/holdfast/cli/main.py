"""`holdfast VERB …`: picks the verb and turns every error into a sentence and an exit code."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Protocol

from holdfast import __version__
from holdfast.cli import (
    bundle,
    check,
    checkpoint,
    completion,
    drill,
    env,
    explain,
    lint,
    run,
    runs,
    stop,
    streams,
)
from holdfast.errors import ConfigError, EnvironmentFailure, Error


class Verb(Protocol):
    """What each file of this folder offers."""

    SUMMARY: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...
    def run(self, arguments: argparse.Namespace) -> int: ...


VERBS: dict[str, Verb] = {
    "check": check,
    "lint": lint,
    "env": env,
    "run": run,
    "runs": runs,
    "stop": stop,
    "bundle": bundle,
    "explain": explain,
    "checkpoint": checkpoint,
    "drill": drill,
    "completion": completion,
}


TORCHRUNS_LANGUAGE = {"run": run.launch, "drill": drill.hold}
"""verbs whose words argparse never sees: they are torchrun's, and the script's own"""


READS_LINUX = ("check", "env", "run", "runs", "stop", "drill")
"""verbs that ask /proc and the kernel; the others read files that may come from elsewhere"""


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="holdfast",
        description="Makes distributed PyTorch training start, keep going and explain itself.",
        epilog="Exit codes: 0 fine, 1 something found, 2 bad usage or holdfast could not work.",
    )
    parser.add_argument("--version", action="version", version=f"holdfast {__version__}")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for name, module in VERBS.items():
        verb = verbs.add_parser(name, help=module.SUMMARY, description=module.SUMMARY)
        module.add_arguments(verb)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    streams.prepare()
    try:
        words = list(sys.argv[1:] if argv is None else argv)
        if not words:
            streams.remark(build_parser().format_help().rstrip())
            return 2
        _refuse_other_systems(words[0])
        if words[0] in TORCHRUNS_LANGUAGE:
            return TORCHRUNS_LANGUAGE[words[0]](words[1:])
        command: list[str] = []
        if words[:1] == ["env"]:  # after -- comes the job it is asked about
            words, command = env.cut_command(words)
        arguments = build_parser().parse_args(words, argparse.Namespace(command=command))
        return VERBS[arguments.verb].run(arguments)
    except (Error, FileNotFoundError) as problem:
        error = _in_words(problem)
        streams.remark(f"error: {error.sentence}")
        if error.hint:
            streams.remark(f"hint: {error.hint}")
        return 2
    except KeyboardInterrupt:
        streams.remark("interrupted")
        return 130
    except BrokenPipeError:
        # The reader of our output went away (`| head`); that is no error of ours.
        streams.silence(sys.stdout)
        return 0


def _in_words(problem: Error | FileNotFoundError) -> Error:
    """Any verb may ask for the current folder, and finds that it was removed."""
    if isinstance(problem, Error):
        return problem
    try:
        os.getcwd()
    except FileNotFoundError:
        return EnvironmentFailure(
            "the current folder has been removed", hint="change to a folder that exists"
        )
    raise problem


def _refuse_other_systems(verb: str) -> None:
    if sys.platform != "linux" and verb in READS_LINUX:
        raise ConfigError(
            f"holdfast {verb} needs Linux, and this is {sys.platform}",
            hint="use it where the job runs, or in a container or WSL; `holdfast lint` and "
            "`holdfast explain LOG` only read files",
        )

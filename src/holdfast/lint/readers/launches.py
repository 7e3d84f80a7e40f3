"""Commands -> launches and containers.

Commands that start commands (`srun torchrun …`, `docker run image torchrun …`) come as one command
each, the inner one with the outer ones among its `wrappers`; so every command is one launch at
most.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import msgspec

from holdfast.analysis.source.source import Command, ContainerRun, Flag, Launch, ShellWord
from holdfast.lint.readers import launch_options as known
from holdfast.lint.readers.arguments import Options, SplitOptions, split
from holdfast.lint.readers.container_engines import ENGINES, container

PYTHON = re.compile(r"(?:python|pypy)[0-9.]*")
MODULES = {
    "torch.distributed.run": "torchrun",
    "torch.distributed.launch": "torch.distributed.launch",
    "torch.distributed.elastic.run": "torchrun",
    "accelerate.commands.launch": "accelerate",
    "deepspeed.launcher.runner": "deepspeed",
    "horovod.runner.launch": "horovodrun",
}
OPTIONS: dict[str, Options] = {
    "torchrun": known.TORCHRUN,
    "torch.distributed.launch": known.TORCHRUN,
    "holdfast": known.TORCHRUN,
    "accelerate": known.ACCELERATE,
    "deepspeed": known.DEEPSPEED,
    "horovodrun": known.HOROVODRUN,
    "mpirun": known.MPIRUN,
    "srun": known.SRUN,
}
TOOLS = frozenset(
    ["pip", "venv", "virtualenv", "pytest", "unittest", "build", "http.server", "json.tool", "site"]
)
"""modules that are no training"""
STARTS_A_COMMAND = ("horovodrun", "mpirun", "srun")
"""what follows their options is a program, not a Python file"""
OUTER = {
    **{name: name for name in (*ENGINES, "srun", "horovodrun", "ssh", "pdsh", "clush", "kubectl")},
    **dict.fromkeys(known.MPI_PROGRAMS, "mpirun"),
}


def launches(commands: Iterable[Command]) -> tuple[Launch, ...]:
    return tuple(found for command in commands if (found := launch(command)) is not None)


def containers(commands: Iterable[Command]) -> tuple[ContainerRun, ...]:
    found = (container(command) for command in commands if command.name in ENGINES)
    return tuple(one for one in found if one is not None)


def launch(command: Command) -> Launch | None:
    kind, at = _kind(command)
    if not kind:
        return None
    if kind == "python":
        return _python(command)
    behind = command.words[at:]
    options = split(behind, OPTIONS[kind])
    if any(flag.name in ("help", "version", "check-build") for flag in options.flags):
        return None
    return _launch(command, kind, options, behind)


def _kind(command: Command) -> tuple[str, int]:
    """What it is, and where its options begin."""
    words = command.words
    second = words[1].text if len(words) > 1 else ""
    name = command.name
    if name in ("torchrun", "deepspeed", "horovodrun", "srun"):
        return name, 1
    if name in known.MPI_PROGRAMS:
        return "mpirun", 1
    if name == "accelerate-launch":
        return "accelerate", 1
    if (name, second) in (("accelerate", "launch"), ("holdfast", "run")):
        return name, 2
    return _python_kind(words) if PYTHON.fullmatch(name) else ("", 0)


def _python_kind(words: Sequence[ShellWord]) -> tuple[str, int]:
    """`python -m torch.distributed.run` is torchrun."""
    at = 1 + split(words[1:], known.PYTHON).rest
    for index, word in enumerate(words[:at]):
        if word.text == "-m" and index + 1 < len(words):
            module = words[index + 1].text
            if module == "holdfast":
                run = index + 2 < len(words) and words[index + 2].text == "run"
                return ("holdfast", index + 3) if run else ("", 0)
            return (MODULES[module], index + 2) if module in MODULES else ("python", at)
    return "python", at


def _launch(
    command: Command, kind: str, options: SplitOptions, behind: Sequence[ShellWord]
) -> Launch:
    flags, rest = options.flags, behind[options.rest :]
    script, arguments = "", tuple(rest)
    if kind not in STARTS_A_COMMAND and rest:
        script, arguments = rest[0].text, tuple(rest[1:])
    return Launch(
        kind=kind,
        flags=flags,
        place=command.place,
        script=script,
        script_arguments=arguments,
        settings=command.settings,
        command=command,
        around=tuple(OUTER[name] for name in command.wrappers if name in OUTER),
    )


def _python(command: Command) -> Launch | None:
    """`python train.py`, `python -m package.train`; not `python -c`, `python --version`."""
    behind = command.words[1:]
    options = split(behind, known.PYTHON)
    names = {flag.name for flag in options.flags}
    if names & {"c", "V", "version", "h", "help"}:
        return None
    rest = behind[options.rest :]
    if not rest or rest[0].text == "-" or ("m" in names and rest[0].text in TOOLS):
        return None
    if "m" not in names and rest[0].known and not rest[0].text.endswith((".py", ".pyc")):
        return None
    flags = tuple(_module(flag) if flag.name == "m" else flag for flag in options.flags)
    split_again = SplitOptions(flags=flags, rest=options.rest)
    return _launch(command, "python", split_again, behind)


def _module(flag: Flag) -> Flag:
    return msgspec.structs.replace(flag, name="module")

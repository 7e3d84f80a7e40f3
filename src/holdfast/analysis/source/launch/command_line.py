"""What several faults ask about a launch, a command or a word."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence

from holdfast.analysis.source.source import Command, Flag, Launch, ShellWord, Source, SourceSetting

TORCHRUN = frozenset({"torchrun", "torch.distributed.launch"})
"""launchers that read the options of torch/distributed/run.py"""
STARTERS = frozenset(
    [*TORCHRUN, "deepspeed", "accelerate", "horovodrun", "mpirun", "srun", "holdfast"]
)
"""kinds of Launch that start ranks, and not a lone Python process or a scheduler's request"""
REMOTE = frozenset({"ssh", "pdsh", "clush", "parallel-ssh", "pssh", "srun", "mpirun", "mpiexec"})
"""programs that carry a command to other machines"""
KILLERS = frozenset({"pkill", "killall", "kill", "fuser", "skill"})


def number(flag: Flag | None) -> int | None:
    """The count it gives; None where it gives none, or only when it runs."""
    if flag is None or not flag.known:
        return None
    text = flag.value.strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def hides_flags(launch: Launch) -> bool:
    """`torchrun $ARGS train.py`, `torchrun … train.py`: what is not seen may still be given."""
    if launch.command is None:
        return False
    values = {flag.value for flag in launch.flags}
    for word in launch.command.words[1:]:
        if word.text == launch.script:
            return False
        if not word.known and not word.text.startswith("-") and word.text not in values:
            return True
    return False


def nodes(launch: Launch) -> tuple[int, int] | None:
    """Fewest and most machines that torchrun's --nnodes asks for."""
    flag = launch.flag("nnodes")
    if flag is None or not flag.known:
        return None
    low, _, high = flag.value.partition(":")
    if not low.isdecimal() or not (high.isdecimal() or not high) or len(flag.value) > 20:
        return None
    return int(low), int(high or low)


def after(source: Source, command: Command) -> Iterator[Command]:
    return (other for other in source.commands if other.number > command.number)


def line(words: Iterable[ShellWord]) -> str:
    """A command line as one would type it; what is only known when it runs stays as written.
    '' where a word cannot be shown on one line of ours."""
    typed = " ".join(_typed(word) for word in words)
    return typed if typed.isprintable() and "`" not in typed else ""


def _typed(word: ShellWord) -> str:
    if word.known:
        return shlex.quote(word.text)
    bare = re.fullmatch(r"[\w$\"'(){}@:=,./+%<>\-]+", word.text)
    return word.text if bare or word.text.startswith(("$(", "`")) else f'"{word.text}"'


def command_of(source: Source, launch_or_container: object) -> Command | None:
    """The command whose place it has."""
    place = getattr(launch_or_container, "place", None)
    return next((c for c in source.commands if c.place == place), None)


def exported(launch: Launch, name: str) -> SourceSetting | None:
    """What the launcher finds under this name, where this piece tells."""
    setting = launch.setting(name)
    gone = setting is None or setting.by == "unset" or not setting.exported
    return None if gone else setting


def arguments(words: Sequence[ShellWord], taking_values: frozenset[str]) -> list[ShellWord]:
    """The words that are neither options nor values of options."""
    found: list[ShellWord] = []
    skip = only = False
    for word in words[1:]:
        if skip:
            skip = False
        elif only or not word.text.startswith("-") or word.text == "-":
            found.append(word)
        elif word.text == "--":
            only = True
        else:
            skip = word.text in taking_values
    return found


def is_loopback(address: str) -> bool:
    """A name or address by which every machine and container means itself."""
    return address in ("localhost", "::1", "[::1]") or bool(re.fullmatch(r"127(\.\d+){3}", address))


def endpoint(text: str) -> tuple[str, int | None]:
    """Host and port of 'host:29400' or '[::1]:29400'; None where it names no port."""
    host, colon, port = text.strip().rpartition(":")
    digits = port.isascii() and port.isdigit() and len(port) < 10
    if colon and digits and not host.endswith(":"):
        return host.removeprefix("[").removesuffix("]"), int(port)
    return text.strip(), None


def without(words: list[ShellWord], option: Flag) -> list[ShellWord]:
    """A command line less `--name=value`, or `--name value`."""
    for at, word in enumerate(words):
        if word.text == f"--{option.name}={option.value}":
            return [*words[:at], *words[at + 1 :]]
        following = words[at + 1].text if at + 1 < len(words) else ""
        if word.text == f"--{option.name}" and following == option.value:
            return [*words[:at], *words[at + 2 :]]
    return words

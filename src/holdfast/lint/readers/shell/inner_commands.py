"""Which command, or which text, a command starts: `bash -c`, `ssh`, `srun`, `docker run`."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import msgspec

from holdfast.analysis.source.source import Command, ShellWord
from holdfast.lint.readers import launch_options as known
from holdfast.lint.readers.arguments import Options, split
from holdfast.lint.readers.container_engines import ENGINES, container_words

DEEPEST = 8
"""of commands that start commands"""


class InnerCommand(msgspec.Struct, frozen=True, kw_only=True):
    at: int
    """its first word"""
    text: bool = False
    """it is text for a shell, not a command"""
    one_word: bool = False
    """only that word is the text; the others are its arguments"""
    inherits: bool = True
    """it finds the environment of what starts it"""
    skip: int = 0
    """characters of that word before the text: `--wrap=`"""
    here: bool = False
    """text for this very shell: eval"""


Finder = Callable[[Sequence[ShellWord]], InnerCommand | None]


def inner_command(command: Command) -> InnerCommand | None:
    """None where it starts nothing, or it is not clear what."""
    finder = FINDERS.get(command.name)
    found = finder(command.words) if finder else None
    if found is None or (not found.text and found.at >= len(command.words)):
        return None
    return found


def _shell(words: Sequence[ShellWord]) -> InnerCommand | None:
    """`bash -lc '…'`; a shell with no script reads what it is fed."""
    for at, word in enumerate(words[1:], 1):
        if re.fullmatch(r"-[a-zA-Z]*c", word.text):
            return InnerCommand(at=at + 1, text=True, one_word=True)
        if word.text == "-s":
            break
        if not word.text.startswith(("-", "+")):
            return None
    return InnerCommand(at=len(words), text=True)


def _behind_options(options: Options) -> Finder:
    def find(words: Sequence[ShellWord]) -> InnerCommand | None:
        return InnerCommand(at=1 + split(words[1:], options).rest)

    return find


def _remote(options: Options, *, hosts: int) -> Finder:
    """What follows options and host is joined, and read by a shell over there."""

    def find(words: Sequence[ShellWord]) -> InnerCommand | None:
        at = 1 + split(words[1:], options).rest + hosts
        while hosts and at < len(words) and all(map(_is_variable, words[at - 1 : at + 1])):
            at += 1  # ssh $OPTIONS $host …
        while at < len(words) and hosts and words[at].text.startswith("-"):  # ssh host -p 22 …
            at += 1 + split(words[at:], options).rest - 1
        return InnerCommand(at=min(at, len(words)), text=True, inherits=False)

    return find


def _is_variable(word: ShellWord) -> bool:
    return not word.known and re.fullmatch(r"\$\S+", word.text) is not None


def _container(words: Sequence[ShellWord]) -> InnerCommand | None:
    at = container_words(words)
    if at is None:
        return None
    entry = [i for i, word in enumerate(words[:at]) if word.text.startswith("--entrypoint")]
    shell_entry = entry and re.search(r"\b(?:ba|z|da|k)?sh$", words[entry[-1]].text)
    named = entry and entry[-1] + 1 < at and re.search(r"(?:ba)?sh$", words[entry[-1] + 1].text)
    if (shell_entry or named) and at < len(words) and words[at].text in ("-c", "-lc", "-ec"):
        return InnerCommand(at=at + 1, text=True, one_word=True, inherits=False)
    return InnerCommand(at=at, inherits=False)


def _kubectl(words: Sequence[ShellWord]) -> InnerCommand | None:
    texts = [word.text for word in words]
    if "exec" in texts and "--" in texts:
        return InnerCommand(at=texts.index("--") + 1, inherits=False)
    return None


def _eval(words: Sequence[ShellWord]) -> InnerCommand | None:
    return InnerCommand(at=1, text=True, here=True) if len(words) > 1 else None


def _trap(words: Sequence[ShellWord]) -> InnerCommand | None:
    return InnerCommand(at=1, text=True, one_word=True) if len(words) > 2 else None


def _su(words: Sequence[ShellWord]) -> InnerCommand | None:
    for at, word in enumerate(words[1:-1], 1):
        if word.text in ("-c", "--command"):
            return InnerCommand(at=at + 1, text=True, one_word=True)
    return None


def _tmux(words: Sequence[ShellWord]) -> InnerCommand | None:
    texts = [word.text for word in words]
    verbs = [i for i, t in enumerate(texts) if t in ("new-session", "new", "new-window", "neww")]
    if not verbs:
        return None
    options = Options(values=frozenset("sncetxyF"), switches=frozenset("dADEPXkS"))
    at = verbs[0] + 1
    return InnerCommand(at=at + split(words[at:], options).rest, text=True)


def _sbatch(words: Sequence[ShellWord]) -> InnerCommand | None:
    for at, word in enumerate(words):
        if word.text == "--wrap":
            return InnerCommand(at=at + 1, text=True, one_word=True)
        if word.text.startswith("--wrap="):
            return InnerCommand(at=at, text=True, one_word=True, skip=len("--wrap="))
    reads_a_script = split(words[1:], known.SRUN).rest + 1 < len(words)
    return None if reads_a_script else InnerCommand(at=len(words), text=True)


SCREEN = Options(values=frozenset("SsthcTp"), switches=frozenset("dmDLRUqv"))
WATCH = Options(values=frozenset("n"), switches=frozenset("dtbegcx"))
FLOCK = Options(values=frozenset("wE"), switches=frozenset("sxeunoF"))

FINDERS: dict[str, Finder] = {
    **dict.fromkeys(("bash", "sh", "zsh", "dash", "ksh"), _shell),
    **dict.fromkeys(known.MPI_PROGRAMS, _behind_options(known.MPIRUN)),
    **dict.fromkeys(("srun", "salloc"), _behind_options(known.SRUN)),
    **dict.fromkeys(ENGINES, _container),
    "horovodrun": _behind_options(known.HOROVODRUN),
    "ssh": _remote(known.SSH, hosts=1),
    "pdsh": _remote(known.PDSH, hosts=0),
    "clush": _remote(known.PDSH, hosts=0),
    "pssh": _remote(Options(values=frozenset("HhlptoeOx"), switches=frozenset("viAP")), hosts=0),
    "kubectl": _kubectl,
    "eval": _eval,
    "trap": _trap,
    "su": _su,
    "tmux": _tmux,
    "screen": _behind_options(SCREEN),
    "watch": _behind_options(WATCH),
    "flock": lambda words: InnerCommand(at=2 + split(words[1:], FLOCK).rest),
    "sbatch": _sbatch,
}

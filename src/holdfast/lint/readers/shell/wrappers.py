"""Programs that only start another one: sudo, env, nohup, timeout and the like, taken off."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from holdfast.analysis.source.source import ShellWord
from holdfast.lint.readers.arguments import names, program

ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")


class Wrapper(msgspec.Struct, frozen=True, kw_only=True):
    with_value: frozenset[str] = frozenset()
    """options that take the next word"""
    positional: int = 0
    """its own words before the program: the seconds of timeout"""
    assigns: bool = False
    """takes NAME=value words: env, sudo"""
    verb: str = ""
    """starts a program only under this subcommand: `conda run`"""


WRAPPERS = {
    "sudo": Wrapper(
        with_value=names(
            "-u -g -h -p -C -r -t -T -U -D -R --user --group --host --prompt --close-from --role "
            "--type --command-timeout --other-user --chdir --chroot"
        ),
        assigns=True,
    ),
    "doas": Wrapper(with_value=names("-u -C")),
    "env": Wrapper(with_value=names("-u --unset -C --chdir"), assigns=True),
    "nohup": Wrapper(),
    "exec": Wrapper(with_value=names("-a")),
    "time": Wrapper(with_value=names("-f -o --format --output")),
    "timeout": Wrapper(with_value=names("-s -k --signal --kill-after"), positional=1),
    "nice": Wrapper(with_value=names("-n --adjustment")),
    "ionice": Wrapper(with_value=names("-c -n -p -P -u --class --classdata")),
    "chrt": Wrapper(positional=1),
    "numactl": Wrapper(
        with_value=names(
            "-i -w -p -m -N -C --interleave --preferred --membind --cpunodebind --physcpubind"
        )
    ),
    "taskset": Wrapper(positional=1),
    "stdbuf": Wrapper(with_value=names("-i -o -e --input --output --error")),
    "setsid": Wrapper(),
    "command": Wrapper(),
    "builtin": Wrapper(),
    "unbuffer": Wrapper(),
    "catchsegv": Wrapper(),
    "strace": Wrapper(with_value=names("-o -e -p -s -u -E -a -b -I -O -P -S -X")),
    "dumb-init": Wrapper(),
    "tini": Wrapper(),
    "gosu": Wrapper(positional=1),
    "nsys": Wrapper(
        with_value=names("-o -t -s -c -y -d -f -w -b -e -x --output --trace --sample --delay"),
        verb="profile",
    ),
    "conda": Wrapper(with_value=names("-n -p --name --prefix --cwd"), verb="run"),
    "micromamba": Wrapper(with_value=names("-n -p --name --prefix --cwd"), verb="run"),
    "poetry": Wrapper(verb="run"),
    "pipenv": Wrapper(verb="run"),
    "uv": Wrapper(with_value=names("--with --python -p --extra --group --env-file"), verb="run"),
}


class Unwrapped(msgspec.Struct, frozen=True, kw_only=True):
    words: tuple[ShellWord, ...]
    wrappers: tuple[str, ...] = ()
    assigned: tuple[ShellWord, ...] = ()
    """NAME=value words of env and sudo"""


def unwrap(words: Sequence[ShellWord]) -> Unwrapped:
    """A wrapper with nothing behind it is the command itself (`env`, `exec 3>file`)."""
    at = 0
    names: list[str] = []
    assigned: list[ShellWord] = []
    while at < len(words) and (wrapper := WRAPPERS.get(program(words[at]))) is not None:
        name = program(words[at])
        then, given = _behind(words, at + 1, wrapper)
        if then is None or then >= len(words) or _asks(name, words[at:then]):
            break
        names.append(name)
        assigned.extend(given)
        at = then
    return Unwrapped(words=tuple(words[at:]), wrappers=tuple(names), assigned=tuple(assigned))


def _asks(name: str, own: Sequence[ShellWord]) -> bool:
    """`command -v torchrun`, `sudo -l`: a question, nothing is started."""
    options = {word.text for word in own}
    return name == "command" and bool(options & {"-v", "-V"})


def _behind(
    words: Sequence[ShellWord], at: int, wrapper: Wrapper
) -> tuple[int | None, list[ShellWord]]:
    """Where the program behind a wrapper begins, and what is assigned on the way."""
    assigned: list[ShellWord] = []
    positional = wrapper.positional
    if wrapper.verb:
        if at >= len(words) or words[at].text != wrapper.verb:
            return None, assigned
        at += 1
    while at < len(words):
        text = words[at].text
        if text == "--":
            at += 1
            break
        if text.startswith("-") and len(text) > 1:
            at += 2 if text in wrapper.with_value else 1
        elif wrapper.assigns and ASSIGNMENT.match(text):
            assigned.append(words[at])
            at += 1
        elif positional:
            positional -= 1
            at += 1
        else:
            break
    return at, assigned

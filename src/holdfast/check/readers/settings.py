"""The variables in force for a job, by NCCL's own order of precedence."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator

from holdfast.analysis import variables
from holdfast.analysis.machine import Plan, Setting
from holdfast.redaction import REDACTED, is_secret_name, redact

MORE_PREFIXES = ("TORCH_", "DS_", "MASTER_", "LOCAL_", "GROUP_")
"""beside those of the table of variables, and every name and family that it holds"""
LARGEST_FILE = 1 << 20
LONGEST_NAME = LONGEST_VALUE = 1023
"""NCCL cuts both there (src/misc/param.cc)"""


def read_settings(plan: Plan, root: str = "/") -> tuple[Setting, ...]:
    """Each variable once, with the value that wins: NCCL sets from a file only what is unset."""
    in_force: dict[str, Setting] = {}
    for setting in _in_order(plan, root):
        in_force.setdefault(setting.name, setting)
    return tuple(_without_secret(s) for s in in_force.values())


def read_overridden(plan: Plan, root: str = "/") -> tuple[Setting, ...]:
    """What files say of a variable that has its value from elsewhere already."""
    seen: set[str] = set()
    lost = []
    for setting in _in_order(plan, root):
        if setting.name in seen:
            lost.append(_without_secret(setting))
        seen.add(setting.name)
    return tuple(lost)


def _in_order(plan: Plan, root: str) -> Iterator[Setting]:
    """The winner of each name first."""
    for name, value in plan.environment.items():
        if name == _text(name) and is_relevant(name):
            yield Setting(name=name, value=_text(value), origin="environment")
    for path in _files(plan, root):
        yield from (setting for setting in _read_file(path) if is_relevant(setting.name))


def _text(value: str) -> str:
    """The environment may hold any bytes; what is reported must be text."""
    return os.fsencode(value).decode(errors="replace")


def is_relevant(name: str) -> bool:
    """Spaces around a name count for NCCL, not for us: such a mistake must be seen."""
    plain = name.strip()
    relevant = (*variables.prefixes(), *MORE_PREFIXES)
    known = plain.startswith(relevant) or variables.lookup(plain) is not None
    return known or bool(variables.misspelt(plain))


def _files(plan: Plan, root: str) -> Iterator[str]:
    if named := plan.environment.get("NCCL_CONF_FILE"):
        yield named
    else:
        # The account's home and not $HOME: NCCL asks getpwuid().
        try:
            home = pwd.getpwuid(os.getuid()).pw_dir
        except KeyError:
            home = ""
        if home:
            yield os.path.join(root, home.lstrip("/"), ".nccl.conf")
    yield os.path.join(root, "etc/nccl.conf")


def _read_file(path: str) -> Iterator[Setting]:
    try:
        if not os.path.isfile(path):  # of a folder NCCL reads nothing; a FIFO would block us
            return
        with open(path, "rb") as file:
            content = file.read(LARGEST_FILE)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return  # NCCL, too, continues without a message
    yield from parse(content, path)


def parse(content: bytes, path: str) -> Iterator[Setting]:
    """Lines as NCCL takes them: nothing is trimmed, and the first line for a name wins.

    'NCCL_DEBUG = INFO' so names a variable 'NCCL_DEBUG ' that no program reads. Only a carriage
    return at the end goes, as in newer NCCL; one before kept it in the value.
    """
    for number, raw in enumerate(content.split(b"\n"), start=1):
        line = raw.removesuffix(b"\r").split(b"\0", 1)[0]
        name, equals, value = line.partition(b"=")
        if equals and name and not line.startswith(b"#"):
            yield Setting(
                name=name[:LONGEST_NAME].decode(errors="replace"),
                value=value[:LONGEST_VALUE].decode(errors="replace"),
                origin=f"{path}:{number}",
            )


def _without_secret(setting: Setting) -> Setting:
    """A secret shows by its name or by its form; both are judged on NAME=value."""
    start = f"{setting.name}="
    value = redact(start + setting.value).removeprefix(start)
    if setting.value and is_secret_name(setting.name.strip()):
        value = REDACTED  # as a whole: the form ends at the first blank
    return Setting(name=setting.name, value=value, origin=setting.origin)

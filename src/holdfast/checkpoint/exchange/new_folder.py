"""A folder that is there whole or not at all, and never in the place of another."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterator

from holdfast.errors import ConfigError, EnvironmentFailure


@contextlib.contextmanager
def new_folder(target: str) -> Iterator[str]:
    """A temporary folder beside the target, which it becomes when the block ends well."""
    target = os.path.abspath(target)
    if os.path.lexists(target):
        raise ConfigError(f"{target} exists already: give a new path")
    parent, name = os.path.split(target)
    temporary = os.path.join(parent, f".{name}.tmp-{secrets.token_hex(4)}")
    try:
        os.makedirs(parent, exist_ok=True)
        os.mkdir(temporary)
    except OSError as error:
        raise EnvironmentFailure(f"{target} cannot be made: {error.strerror}") from error
    try:
        yield temporary
        sync(temporary)
        os.rename(temporary, target)  # fails if there is a folder with anything in it by now
        sync(parent)
    except OSError as error:
        shutil.rmtree(temporary, ignore_errors=True)
        raise EnvironmentFailure(f"{target} cannot be written: {error.strerror}") from error
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def sync(path: str) -> None:
    with contextlib.suppress(OSError):  # some file systems cannot sync a folder
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

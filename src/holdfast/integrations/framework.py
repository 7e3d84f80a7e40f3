"""What the modules for single frameworks share: is it installed, and which options are ours."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from importlib import metadata
from typing import Any

from packaging.version import Version

from holdfast.checkpoint.checkpoint import Checkpoint
from holdfast.errors import ConfigError


class FrameworkError(ConfigError, ImportError):
    """The framework is not installed, or older than what we know how to resume."""


def require(package: str, oldest: str, newest_tried: str) -> None:
    """Raise, in one sentence, unless `package` is here in a version that works."""
    fix = f"pip install '{package}>={oldest}' (tried up to {newest_tried})"
    try:
        found = metadata.version(package)
    except metadata.PackageNotFoundError:
        raise FrameworkError(
            f"holdfast.integrations.{package} needs {package}, which is not installed", hint=fix
        ) from None
    if Version(found) < Version(oldest):
        raise FrameworkError(
            f"holdfast.integrations.{package} needs {package} >= {oldest}, found {found}", hint=fix
        )


def checkpoint_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """For `Checkpoint`, which is made much later: a wrong name is said at once."""
    possible = list(inspect.signature(Checkpoint).parameters)[2:]  # not the folder, not the state
    for name in given:
        if name not in possible:
            raise ConfigError(f"unknown option {name!r} (choose from {', '.join(possible)})")
    return dict(given)

"""How long ranks may take to save and exit after SIGTERM, before SIGKILL. Pure."""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping

from holdfast.errors import ConfigError
from holdfast.rank import delivery

DEFAULT = 30.0
"""torchrun's, and that of Kubernetes and Slurm"""
TORCHS = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"
HELP = (
    "seconds that ranks have to save and exit between SIGTERM (or Ctrl-C) and SIGKILL. The first "
    f"of these counts: --grace, --shutdown-timeout, {delivery.GRACE}, {TORCHS}; default: 30, as "
    "torchrun. A rank that raised has as long for its exit handlers"
)


def seconds(typed: argparse.Namespace, environment: Mapping[str, str]) -> float:
    """Of all who may say so, the first that did: what was typed, then what was set."""
    said = {
        "--grace": typed.grace,
        # not before torch 2.12
        "--shutdown-timeout": getattr(typed, "shutdown_timeout", None),
        delivery.GRACE: environment.get(delivery.GRACE) or None,
        TORCHS: environment.get(TORCHS) or None,
    }
    for name, value in said.items():
        if value is not None:
            return _read(name, value)
    return DEFAULT


def _read(name: str, value: float | str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not (math.isfinite(number) and number >= 0):
        raise ConfigError(f"{name} must be >= 0 seconds, got {value}")
    return number

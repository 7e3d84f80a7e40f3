"""Gradients of several micro-batches, exchanged between ranks once: the wrappers' own switches."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any


def exchange_only_when(model: Any, *, exchange: bool) -> AbstractContextManager[None]:
    """FSDP2 has a switch, DDP and FSDP1 have `no_sync`; a model with neither is left alone."""
    if switch := getattr(model, "set_requires_gradient_sync", None):
        return _switched(switch, on=exchange)
    if not exchange and (no_sync := getattr(model, "no_sync", None)):
        found: AbstractContextManager[None] = no_sync()
        return found
    return nullcontext()


@contextmanager
def _switched(switch: Any, *, on: bool) -> Iterator[None]:
    switch(on)
    try:
        yield
    finally:
        switch(True)

"""What the torch that runs the tests can do: `make versions` runs them with several."""

from __future__ import annotations

import pytest
import torch

TORCH = tuple(int(part) for part in torch.__version__.split(".")[:2])

needs_live_recorders = pytest.mark.skipif(
    TORCH < (2, 10), reason="before torch 2.10 Gloo's flight recorder answers no question"
)


def without_gloos_lines(text: str) -> str:
    """Up to torch 2.10 Gloo prints to stdout how many peers it is connected to."""
    lines = text.splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith("[Gloo] Rank "))

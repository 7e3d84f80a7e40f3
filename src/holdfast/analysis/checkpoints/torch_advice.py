"""What torch.load says when a file does not load, less what it advises. Pure.

Whatever is wrong with the file, it says that loading it with `weights_only=False` "will likely
succeed". Of a damaged checkpoint that is not true, and it lets a file run any code that is in it:
we repeat the error, and not the advice.
"""

from __future__ import annotations

import re

MARK = "Weights only load failed"
_ADVICE = (
    re.compile(
        r"(?:\(\d\) )?In PyTorch [\d.]+, we changed the default value of the `weights_only`"
        r"[^\n]{0,300}?(?:trusted source\.|$)",
        re.MULTILINE,
    ),
    re.compile(
        r"This file can still be loaded, to do so you have two options,[^\n]{0,200}?checkpoint"
        r"(?:\x1b\[0m)?\."
    ),
    re.compile(
        r"\(\d\) Alternatively, to load with `weights_only=True` please check the recommended "
        r"steps in the following error message\."
    ),
    re.compile(
        r"Please file an issue with the following so that we can make `weights_only=True` "
        r"compatible with your use case:"
    ),
    re.compile(
        r"Check the documentation of torch\.load to learn more about types accepted by default "
        r"with weights_only\s{1,4}\S{1,200}"
    ),
)
_FAILED = re.compile(rf"{MARK}\.\s*(?:WeightsUnpickler error:\s*)?")


def without(message: str) -> str:
    """'Weights only load failed: Unsupported operand 149'; other messages as they are."""
    if MARK not in message:
        return message
    for advice in _ADVICE:
        message = advice.sub("", message)
    return _FAILED.sub(f"{MARK}: ", message).strip().removesuffix(":")

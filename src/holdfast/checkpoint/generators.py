"""The random number generators of a rank: Python's, NumPy's, torch's on the CPU and on each GPU.

Plain values only, no tensors: a rank that has nothing else to say writes one small file.
"""

from __future__ import annotations

import hashlib
import random
import sys
from collections.abc import Callable
from typing import Any

import torch

from holdfast.checkpoint.tree import DamagedTreeError, to_json

Saved = dict[str, Any]
ACCELERATORS = ("cuda", "xpu", "hpu", "npu", "musa", "mlu")
"""names in torch, some of them brought by the vendor's package"""


def capture() -> Saved:
    """Of every library that this process has loaded."""
    saved: Saved = {
        "python": random.getstate(),
        "torch": _bytes(torch.get_rng_state()),
    }
    if "numpy.random" in sys.modules:
        saved["numpy"] = sys.modules["numpy.random"].get_state(legacy=False)
    for kind, library in accelerators().items():
        if library.is_initialized():
            states = [_bytes(state) for state in library.get_rng_state_all()]
            saved[kind] = {"current": library.current_device(), "devices": states}
    return saved


def accelerators() -> dict[str, Any]:
    """The libraries of accelerators that keep generators as CUDA's does: {"cuda": torch.cuda}."""
    found = {kind: getattr(torch, kind, None) for kind in ACCELERATORS}
    calls = ("is_initialized", "is_available", "device_count", "current_device",
             "get_rng_state_all", "get_rng_state", "set_rng_state")  # fmt: skip
    return {
        kind: library
        for kind, library in found.items()
        if library is not None and all(callable(getattr(library, call, None)) for call in calls)
    }


def as_they_are() -> Callable[[], None]:
    """Of the generators that torch itself draws from, the CPU's and that of the default device:
    what puts them back."""
    before = torch.get_rng_state()
    device = torch.get_default_device()
    library = accelerators().get(device.type)
    if library is None or not library.is_initialized():
        return lambda: torch.set_rng_state(before)
    there = library.get_rng_state(device)

    def put_back() -> None:
        torch.set_rng_state(before)
        library.set_rng_state(there, device)

    return put_back


def restore(saved: Saved) -> list[str]:
    """Returns what could not be restored, in sentences."""
    try:
        random.setstate(saved["python"])
        torch.set_rng_state(_tensor(saved["torch"]))
        if "numpy" in saved:
            import numpy as np  # noqa: PLC0415 - only where it was loaded

            np.random.set_state(saved["numpy"])
        notes = [_restore_on(kind, saved[kind]) for kind in ACCELERATORS if kind in saved]
        return [note for note in notes if note]
    except (KeyError, TypeError, ValueError, RuntimeError) as odd:
        raise DamagedTreeError(f"the saved random number generators are damaged: {odd}") from odd


def _restore_on(kind: str, saved: Saved) -> str:
    """'' or why not, in a sentence."""
    library = accelerators().get(kind)
    if library is None or not library.is_available():
        what = "GPUs" if kind == "cuda" else f"{kind} devices"
        one = "GPU" if kind == "cuda" else f"{kind} device"
        return f"the generators of the {what} are not restored: this process sees no {one}"
    states = [_tensor(state) for state in saved["devices"]]
    for device, state in enumerate(states[: library.device_count()]):
        library.set_rng_state(state, device)
    # After a restart the rank may have another GPU: its own stream of numbers goes with it.
    library.set_rng_state(states[saved["current"]], library.current_device())
    return ""


def derive(of_rank_0: Saved, rank: int) -> int:
    """For a rank that was not there when the state was saved: always the same, its own."""
    seed = seed_of(of_rank_0, rank)
    random.seed(seed)
    torch.manual_seed(seed % (1 << 63))  # of the GPUs, too
    if "numpy.random" in sys.modules:
        words = [seed >> shift & 0xFFFFFFFF for shift in range(0, 128, 32)]
        sys.modules["numpy.random"].seed(words)
    return seed


def seed_of(of_rank_0: Saved, rank: int) -> int:
    """128 bits from rank 0's state on the CPU and the rank."""
    python, native = of_rank_0["python"], of_rank_0["torch"]
    text = to_json([list(python[1]), native.hex(), rank])
    return int.from_bytes(hashlib.sha256(text).digest()[:16], "big")


# --- generators that the user made ---------------------------------------------------------------


def is_generator(thing: object) -> bool:
    return isinstance(thing, (torch.Generator, random.Random, *_numpy_generator()))


def capture_one(generator: Any) -> Any:
    if isinstance(generator, torch.Generator):
        return _bytes(generator.get_state())
    if isinstance(generator, random.Random):
        return generator.getstate()
    return generator.bit_generator.state


def restore_one(generator: Any, saved: Any) -> None:
    if isinstance(generator, torch.Generator):
        generator.set_state(_tensor(saved))
    elif isinstance(generator, random.Random):
        generator.setstate(saved)
    else:
        generator.bit_generator.state = saved


def derive_one(generator: Any, seed: int) -> None:
    if isinstance(generator, torch.Generator):
        generator.manual_seed(seed % (1 << 63))
    elif isinstance(generator, random.Random):
        generator.seed(seed)
    else:
        generator.bit_generator.state = type(generator.bit_generator)(seed).state


def _numpy_generator() -> tuple[type, ...]:
    library = sys.modules.get("numpy.random")
    return (library.Generator,) if library else ()


def _bytes(state: torch.Tensor) -> bytes:
    return state.cpu().numpy().tobytes()


def _tensor(state: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(state), dtype=torch.uint8)

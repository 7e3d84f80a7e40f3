"""The order in which DDP adds gradients up: saved and restored, so that sums keep their bits.

DDP lays its buckets out by guess for a process's first step, and again, in the order in which the
gradients really came, for all later ones. An element's place in its bucket decides in which order
the ranks' values are added, so with more than two ranks the first step after a resume would differ
in the last bits from the same step of a run that was never disturbed.
"""

# ruff: noqa: SLF001 - DDP has no public name for any of this
from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

Buckets = tuple[tuple[int, ...], ...]
"""for each bucket the numbers of its parameters"""

_ASSIGN = "_compute_bucket_assignment_by_size"


def of(model: object) -> Buckets:
    """As laid out in the order of arrival; () before that, or where there is no DDP."""
    wrapped = _ddp(model)
    if wrapped is None:
        return ()
    try:
        said = wrapped._get_ddp_logging_data().get("rebuilt_per_bucket_param_indices", "")
        return tuple(tuple(map(int, bucket.split())) for bucket in said.split(",") if bucket)
    except (AttributeError, RuntimeError, ValueError):
        return ()  # another torch, or the reducer of another kind: only bits are lost


def impose(model: object, saved: Sequence[Sequence[int]]) -> bool:
    """Lay them out so before the first step; False where that cannot be done."""
    wrapped = _ddp(model)
    buckets = [list(bucket) for bucket in saved]
    if wrapped is None or not buckets or _is_special(wrapped):
        return False
    parameters, sparse = wrapped._build_params_for_reducer()
    if sorted(i for bucket in buckets for i in bucket) != list(range(len(parameters))):
        return False
    names = wrapped._build_debug_param_to_name_mapping(parameters)
    # What DDP itself does when it is unpickled.
    with _assigned(buckets, wrapped.bucket_bytes_cap):
        wrapped._ddp_init_helper(parameters, sparse, names, wrapped.static_graph)
    return True


def _ddp(model: object) -> Any:
    """Any: what we need of it has no public name."""
    if not isinstance(model, nn.Module):
        return None
    return next((m for m in model.modules() if isinstance(m, DistributedDataParallel)), None)


def _is_special(wrapped: Any) -> bool:
    """Hooks and the like live in the reducer that would be replaced."""
    return bool(
        wrapped.static_graph
        or getattr(wrapped, "_comm_hooks", None)
        or getattr(wrapped, "mixed_precision", None)
        or getattr(wrapped, "_use_python_reducer", False)
        or getattr(wrapped, "_delay_all_reduce_params", None)
    )


@contextmanager
def _assigned(buckets: list[list[int]], size: int) -> Iterator[None]:
    """DDP computes the layout by a function of torch.distributed, and turns its answer round."""
    usual = getattr(dist, _ASSIGN)
    answer = (buckets[::-1], [size] * len(buckets))
    setattr(dist, _ASSIGN, lambda *_arguments, **_named: answer)
    try:
        yield
    finally:
        setattr(dist, _ASSIGN, usual)

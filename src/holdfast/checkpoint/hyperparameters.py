"""What the script sets in its optimizers and schedulers, and what of it has changed since a save.

A checkpoint has the values of its moment, such as the learning rate in the middle of a schedule. So
it has beside them what the script had set at its start. Where a resume accepts another
configuration, what the script now sets differently takes effect, and all else is as it was saved:
the learning rate goes on as if the script had always been so.
"""

from __future__ import annotations

import copy
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.optim import Optimizer, lr_scheduler

Settings = dict[str, list[dict[str, Any]]]
"""of each optimizer its groups, of each scheduler itself and those inside it"""

_COUNTERS = {"last_epoch", "T_cur", "T_i", "best", "num_bad_epochs", "cooldown_counter", "verbose"}
_PRIVATE = {"_milestones", "_schedule_phases"}
_BY_STEP = (
    lr_scheduler.LambdaLR,
    lr_scheduler.OneCycleLR,
    lr_scheduler.CosineAnnealingWarmRestarts,
)
"""`get_lr` of these follows from the step alone; others continue from the last value"""


def settings_of(things: Mapping[str, Any]) -> Settings:
    """As the script has set them: to be called before anything is trained or restored."""
    return {name: [_settings(part) for part in parts]
            for name, thing in things.items() if (parts := _parts(thing))}  # fmt: skip


def apply_changes(things: Mapping[str, Any], saved: Settings, now: Settings) -> list[str]:
    """What `now` has otherwise than `saved`, put into effect; one phrase each."""
    phrases: dict[str, None] = {}
    touched: set[int] = set()
    for name, part, key, was, wanted in _differing(things, saved, now):
        if key == "momentum" and not (was and wanted):
            phrases[f"{name} momentum is still {was:g}, its state depends on it"] = None
            continue
        if not isinstance(part, dict):
            touched.add(id(part))
            setattr(part, key, copy.deepcopy(wanted))
        elif key in ("lr", "initial_lr"):
            touched.add(id(part))
            _scale(part, was, wanted)
        if isinstance(part, dict) and key != "lr":
            part[key] = wanted
        if key != "base_lrs":  # the optimizer's own, again
            phrases[f"{name} {_spoken(key)} {_short(was)} -> {_short(wanted)}"] = None
    for scheduler in things.values():
        if isinstance(scheduler, lr_scheduler.LRScheduler):
            groups = scheduler.optimizer.param_groups
            if touched & {id(part) for part in (*groups, *_parts(scheduler))}:
                _set_rates(scheduler, groups)
    return list(phrases)


def not_in_force(things: Mapping[str, Any], saved: Settings, now: Settings) -> list[str]:
    """What `now` has otherwise than `saved`, which was restored; one phrase each."""
    found = _differing(things, saved, now)
    return list(
        dict.fromkeys(
            f"the script sets {name} {_spoken(key)} {_short(wanted)}, the checkpoint's "
            f"{_short(was)} is in force"
            for name, _, key, was, wanted in found
            if key != "base_lrs"
        )
    )


def in_force(saved: Settings, now: Settings) -> Settings:
    """What holds after a resume that did not change it: as it was saved."""
    return {
        name: [
            {**given, **{key: was[key] for key in given if key in was}}
            for was, given in zip(saved[name], parts, strict=True)
        ]
        if len(saved.get(name, ())) == len(parts)
        else parts
        for name, parts in now.items()
    }


def _parts(thing: Any) -> list[Any]:
    if isinstance(thing, Optimizer):
        return list(thing.param_groups)
    if isinstance(thing, lr_scheduler.LRScheduler):
        inside = getattr(thing, "_schedulers", ())
        return [thing, *(part for each in inside for part in _parts(each))]
    return []


def _settings(part: Any) -> dict[str, Any]:
    if isinstance(part, dict):  # a group: its switches (fused, amsgrad …) go with the saved state
        return {key: _number(value) for key, value in part.items() if _is_numeric(value)}
    return {
        key: copy.deepcopy(value)
        for key, given in vars(part).items()
        if key not in _COUNTERS and (key in _PRIVATE or not key.startswith("_"))
        if _is_plain(value := [*map(_number, given)] if key == "base_lrs" else given)
    }


def _differing(
    things: Mapping[str, Any], saved: Settings, now: Settings
) -> Iterator[tuple[str, Any, str, Any, Any]]:
    for name in sorted(now.keys() & saved.keys()):
        parts = _parts(things[name])
        if not len(parts) == len(saved[name]) == len(now[name]):
            continue
        for part, was, wanted in zip(parts, saved[name], now[name], strict=True):
            # What a scheduler derives from the initial one is its business.
            derived = {"lr"} if "initial_lr" in was and "initial_lr" in wanted else set()
            for key in sorted(wanted.keys() - derived):
                if key in was and was[key] != wanted[key]:
                    yield name, part, key, was[key], wanted[key]


def _scale(group: dict[str, Any], was: float, wanted: float) -> None:
    """A rate that was changed since the start keeps its part of what it started from."""
    _set_rate(group, wanted if not was else _number(group["lr"]) * (wanted / was))


def _set_rates(scheduler: Any, groups: Sequence[dict[str, Any]]) -> None:
    for group, rate in zip(groups, _rates(scheduler, groups), strict=True):
        _set_rate(group, _number(rate))
    scheduler._last_lr = [_number(group["lr"]) for group in groups]  # noqa: SLF001


def _rates(scheduler: Any, groups: Sequence[dict[str, Any]]) -> Sequence[Any]:
    """Of this step, by the scheduler's own rule where it has one for any step."""
    if isinstance(scheduler, lr_scheduler.SequentialLR):
        at = bisect_right(scheduler._milestones, scheduler.last_epoch)  # noqa: SLF001
        return _rates(scheduler._schedulers[at], groups)  # noqa: SLF001
    if isinstance(scheduler, _BY_STEP):
        scheduler._get_lr_called_within_step = True  # noqa: SLF001 - else it warns
        try:
            return scheduler.get_lr()
        finally:
            scheduler._get_lr_called_within_step = False  # noqa: SLF001
    if (rule := getattr(scheduler, "_get_closed_form_lr", None)) is not None:
        found: Sequence[Any] = rule()
        return found
    return [group["lr"] for group in groups]  # which was scaled


def _set_rate(group: dict[str, Any], rate: float) -> None:
    if isinstance(group["lr"], torch.Tensor):
        group["lr"].fill_(rate)
    else:
        group["lr"] = rate


def _number(value: Any) -> Any:
    return value.item() if isinstance(value, torch.Tensor) else value


def _is_numeric(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return bool(value) and all(_is_numeric(each) for each in value)
    if isinstance(value, torch.Tensor):
        return value.numel() == 1
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_plain(value: Any) -> bool:
    if isinstance(value, dict):
        return all(_is_plain(each) for pair in value.items() for each in pair)
    if isinstance(value, tuple | list):
        return all(_is_plain(each) for each in value)
    return value is None or isinstance(value, int | float | str)


def _spoken(key: str) -> str:
    return {"initial_lr": "lr", "_milestones": "milestones", "_schedule_phases": "phases"}.get(
        key, key
    )


def _short(value: Any) -> str:
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return text if len(text) <= 30 else f"{text[:29]}…"

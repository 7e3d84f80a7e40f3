"""What scripts and launchers print when they save, restart and load a checkpoint."""

from __future__ import annotations

import functools

from holdfast.analysis.logs.pattern import LogPattern, Role

_PATTERN = functools.partial(LogPattern, slug="restart-from-zero")

RESTARTED = _PATTERN(
    name="restart-from-zero: restarted",
    pattern=r"attempts left; will restart worker group|Restarting worker group",
    anchors=("will restart worker group", "Restarting worker group"),
    example="[default] Worker group FAILED. 2/3 attempts left; will restart worker group",
    role=Role.CONFIRMATION,
)
SAVED = _PATTERN(
    name="restart-from-zero: saved",
    pattern=r"(?i:saved checkpoint|saving model checkpoint to|checkpoint saved)"
    r"(?:.*?(?:iteration|step)\D{0,8}(?P<step>\d+))?",
    anchors=("saved checkpoint", "Saved checkpoint", "Saving model checkpoint", "heckpoint saved"),
    example="  successfully saved checkpoint from iteration    1200 to /ckpts",
    role=Role.CONTEXT,
)
LOADING = _PATTERN(
    name="restart-from-zero: loading",
    pattern=r"(?i:loading checkpoint (?:from|at)|loading (?:model|states?) from"
    r"|resum(?:ed|ing) (?:\w+ )?from"
    r"|restor(?:ed|ing) .*?checkpoint|successfully loaded checkpoint|loaded checkpoint)"
    r"(?:\D*?(?P<path>/[^\s'\",]+))?",
    anchors=(
        "oading checkpoint",
        "oading model from",
        "oading state",
        "esumed from",
        "esuming from",
        "esuming training from",
        "estored ",
        "estoring ",
        "oaded checkpoint",
    ),
    example=" loading checkpoint from /ckpts at iteration 1200",
    role=Role.CONTEXT,
)
NOTHING_FOUND = _PATTERN(
    name="restart-from-zero: nothing-found",
    pattern=r"will not load any checkpoints and will start from random"
    r"|could not find the metadata file (?P<path>\S+)",
    anchors=("will not load any checkpoints", "could not find the metadata file"),
    example="WARNING: could not find the metadata file /ckpts/latest_checkpointed_iteration.txt",
    role=Role.CONTEXT,
)
STEP_ZERO = _PATTERN(
    name="restart-from-zero: step-zero",
    pattern=r"(?i)\b(?:step|iteration)\s?[:=]?\s?0(?:[\s,:/|]|$)|\bfrom scratch\b",
    anchors=(
        "step 0 ",
        "step 0:",
        "step 0,",
        "step 0/",
        "step=0 ",
        "step=0,",
        "step: 0 ",
        "step: 0,",
        "iteration 0 ",
        "iteration 0:",
        "from scratch",
    ),
    example="step 0: loss 6.93",
    role=Role.CONTEXT,
)

ALL = (
    RESTARTED,
    SAVED,
    LOADING,
    NOTHING_FOUND,
    STEP_ZERO,
)

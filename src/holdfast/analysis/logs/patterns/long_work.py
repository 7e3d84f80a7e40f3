"""What a rank prints during long work that other ranks wait for."""

from __future__ import annotations

import functools

from holdfast.analysis.logs.pattern import LogPattern, Role

_PATTERN = functools.partial(LogPattern, slug="slow-rank-timeout")

WORKING = _PATTERN(
    name="slow-rank-timeout: working",
    pattern=r"(?P<work>\b(?:Map|Filter|Tokeni[sz]ing|Running tokenizer|Grouping texts|Packing"
    r"|Saving the dataset|Generating \w+ split|Converting format|Downloading \w+"
    r"|Extracting data files|Loading "
    r"checkpoint shards|Creating (?:json|parquet) from)\b)[^|]{0,120}?(?P<percent>\d{1,3})%\|"
    r"(?:[^|]*\|[^\[|]*\[(?P<elapsed>[\d:]+)<)?",
    anchors=(
        "Map: ",
        "Map (num_proc",
        "Filter:",
        "Filter (num_proc",
        "okenizing",
        "okenising",
        "Running tokenizer",
        "Grouping texts",
        "Packing",
        "Saving the dataset",
        "Generating ",
        "Converting format",
        "Downloading ",
        "Extracting data files",
        "Loading checkpoint shards",
        "Creating json from",
        "Creating parquet from",
    ),
    example="Running tokenizer on dataset (num_proc=16):  38%|███▊      | 38/100 [28:51<47:05]",
    role=Role.CONTEXT,
)
SAVING = _PATTERN(
    name="slow-rank-timeout: saving",
    pattern=r"(?i)(?P<work>\bsaving (?:\w+ ){0,3}"
    r"(?:checkpoint|model|state|weights|optimizer|snapshot)"
    r"|\bwriting (?:model |the )?(?:checkpoint|weights|cache)|\bconsolidating"
    r"|\bgathering (?:full |the )?state|\buploading|\bbuilding (?:the )?(?:dataset|index|vocab)"
    r"|\bpre-?processing (?:the )?data|\btokeni[sz]ing|\brunning (?:evaluation|validation)"
    r"|\bevaluating\b)",
    anchors=(
        "aving ",
        "riting ",
        "onsolidating",
        "athering ",
        "ploading",
        "uilding ",
        "rocessing ",
        "okenizing",
        "okenising",
        "unning Evaluation",
        "unning evaluation",
        "unning Validation",
        "unning validation",
        "valuating",
    ),
    example="INFO:trainer:Saving model checkpoint to output/checkpoint-500",
    role=Role.CONTEXT,
)
FIRST = _PATTERN(
    name="slow-rank-timeout: main-first",
    pattern=r"\b(?P<call>(?:local_)?main_process_first)\(",
    anchors=("main_process_first(",),
    example='    with training_args.main_process_first(desc="dataset map pre-processing"):',
    role=Role.CONTEXT,
)

ALL = (
    WORKING,
    SAVING,
    FIRST,
)

"""The JSON documents of the verbs, all with `"schema": "holdfast/1"`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast.analysis.drill.outcome import DrillReport, DrillRow
from holdfast.analysis.machine import Smoke, Software, Unread
from holdfast.analysis.nodes import NodesFacts
from holdfast.analysis.nodes.pairs import pair_states, round_trips
from holdfast.analysis.variables import Variable
from holdfast.analysis.variables.status import SettingStatus, Timeout, VariableInfo
from holdfast.errors import ConfigError
from holdfast.findings import Diagnosis, Evidence, Finding, Page, RuleFinding
from holdfast.text import printable
from holdfast.view.drill_table import counts

SCHEMA = "holdfast/1"
ENCODING = "utf-8"
"""of JSON wherever it goes (RFC 8259), also where the terminal knows only ASCII"""


def check(
    findings: Sequence[Finding],
    counts: dict[str, int],
    seconds: float,
    smoke: Smoke | Unread | None,
) -> str:
    """What `holdfast check --json` prints."""
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "command": "check",
        "findings": [_finding(one) for one in findings],
        "counts": counts,
        "seconds": round(seconds, 3),
    }
    if smoke is not None:
        document["smoke"] = smoke
    return _dump(document)


def check_nodes(
    facts: NodesFacts, findings: Sequence[Finding], counts: dict[str, int], seconds: float
) -> str:
    """What `holdfast check --json` prints of several nodes."""
    trips = round_trips(facts)
    smoke = {} if facts.smoke is None else {"smoke": facts.smoke}
    return _dump(
        {
            "schema": SCHEMA,
            "command": "check",
            **smoke,
            "nodes": [
                {"name": node.name, "rack": node.rack, "clock": node.clock} for node in facts.nodes
            ],
            "absent": facts.absent,
            "coordinator": facts.coordinator,
            "paths": [
                {
                    "from": pair[0],
                    "to": pair[1],
                    "state": state.sign.value,
                    "partly": state.partly,
                    "round_trip_seconds": trips.get(pair),
                }
                for pair, state in pair_states(facts).items()
            ],
            "findings": [_finding(one) for one in findings],
            "counts": counts,
            "seconds": round(seconds, 3),
        }
    )


def lint(
    findings: Sequence[Finding],
    counts: dict[str, int],
    files: int,
    unread: Sequence[tuple[str, str]],
    seconds: float,
) -> str:
    """What `holdfast lint --json` prints; `files` were looked at, `unread` could not be."""
    return _dump(
        {
            "schema": SCHEMA,
            "command": "lint",
            "findings": [_finding(one) for one in findings],
            "counts": {name: counts[name] for name in ("note", "warning", "error", "skipped")},
            "files": files,
            "unread": [{"file": file, "why": why} for file, why in unread],
            "seconds": round(seconds, 3),
        }
    )


def _finding(finding: Finding) -> dict[str, Any]:
    """Only what lint finds has a place."""
    fields = msgspec.structs.asdict(finding)
    place = fields.pop("place")
    if place is not None:
        fields |= {"file": place.file, "line": place.line, "column": place.column}
    return fields


def explain(pages: Sequence[Page]) -> str:
    """What `holdfast explain WORD --json` prints."""
    return _dump({"schema": SCHEMA, "command": "explain", "pages": pages})


def diagnoses(
    found: Sequence[Diagnosis],
    *,
    failed: bool,
    anomalies: Sequence[Evidence],
    remarks: Sequence[str],
    places: Sequence[Evidence] = (),
    ras: Sequence[str] = (),
    rules: Sequence[RuleFinding] = (),
    undecided: str = "",
) -> str:
    """What `holdfast explain PATH --json` prints; `places` and `ras` only of a job that still
    lives, `rules` only where the user has some and they found something. `undecided`
    says what is odd about a running job where no diagnosis is made."""
    listed = [
        {name: value for name, value in msgspec.structs.asdict(one).items() if name != "order"}
        | {"grade": one.grade}
        for one in found
    ]
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "command": "explain",
        "diagnoses": listed,
        "failed": failed,
        "anomalies": anomalies,
        "remarks": remarks,
    }
    if places:
        document["places"] = places
    if ras:
        document["ras"] = ras
    if rules:
        document["rules"] = rules
    if undecided and not found:
        document["undecided"] = undecided
    return _dump(document)


def env(
    software: Software | Unread,
    settings: Sequence[SettingStatus],
    timeouts: Sequence[Timeout],
    findings: Sequence[Finding],
    remarks: Sequence[str],
    rows: Sequence[Variable],
) -> str:
    """What `holdfast env --json` prints; `rows` only with --all."""
    document = {
        "schema": SCHEMA,
        "command": "env",
        "software": software,
        "settings": settings,
        "clocks": timeouts,
        "findings": [_finding(one) for one in findings],
        "remarks": remarks,
    }
    return _dump(document | {"table": rows} if rows else document)


def env_variables(answers: Sequence[VariableInfo], rows: Sequence[Variable]) -> str:
    """What `holdfast env NAME --json` prints; `rows` of families."""
    return _dump({"schema": SCHEMA, "command": "env", "variables": answers, "rows": rows})


def env_export(lines: Sequence[tuple[str, str | None, str]], remarks: Sequence[str]) -> str:
    """What `holdfast env --export json` prints: (name, value or None for unset, reason)."""
    return _dump(
        {
            "schema": SCHEMA,
            "command": "env",
            "set": {name: value for name, value, _ in lines if value is not None},
            "unset": [name for name, value, _ in lines if value is None],
            "reasons": {name: reason for name, _, reason in lines},
            "remarks": remarks,
        }
    )


def drill(report: DrillReport) -> str:
    """What `holdfast drill --json` prints; the curves are for the page alone."""
    fields = msgspec.structs.asdict(report)
    rows, job, _ = fields.pop("rows"), fields.pop("command"), fields.pop("reference")
    document = {
        "schema": SCHEMA,
        "command": "drill",
        "job": job,
        **fields,
        "repeats_itself": report.repeats_itself,
        "counts": counts(report),
        "drills": [_without(row, "trained") for row in rows],
    }
    return _dump(_to_milliseconds(msgspec.to_builtins(document)))


def drill_report(document: str | bytes) -> DrillReport:
    """The other way round; raises ConfigError where it is no such document."""
    try:
        read = msgspec.json.decode(document, type=dict[str, Any])
        if (read.get("schema"), read.get("command")) != (SCHEMA, "drill"):
            raise ConfigError(f'not printed by `holdfast drill --json`: no "schema": "{SCHEMA}"')
        renamed = {**read, "command": read.get("job"), "rows": read.get("drills")}
        return msgspec.convert(renamed, DrillReport)
    except msgspec.MsgspecError as problem:
        raise ConfigError(f"not printed by `holdfast drill --json`: {problem}") from problem


def _to_milliseconds(value: Any) -> Any:
    """Every number with a fraction is a time."""
    if isinstance(value, dict):
        return {key: _to_milliseconds(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_to_milliseconds(item) for item in value]
    return round(value, 3) if isinstance(value, float) else value


def _without(row: DrillRow, left_out: str) -> dict[str, Any]:
    return {k: v for k, v in msgspec.structs.asdict(row).items() if k != left_out}


def plain(command: str, **fields: Any) -> str:
    """What a verb prints whose answer needs no arranging."""
    return _dump({"schema": SCHEMA, "command": command, **fields})


def _dump(document: dict[str, Any]) -> str:
    encoded = msgspec.json.encode(printable(msgspec.to_builtins(document)))
    return msgspec.json.format(encoded, indent=2).decode()

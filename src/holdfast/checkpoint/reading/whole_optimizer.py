"""One optimizer out of the parts that ranks with different parameters had. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def merged(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """State by the names of parameters; groups of the same options are one group."""
    groups = [dict(group) for group in one["param_groups"]]
    known = {name for group in groups for name in group["params"]}
    for group in other["param_groups"]:
        new = [name for name in group["params"] if name not in known]
        same = next((each for each in groups if _options(each) == _options(group)), None)
        if same is not None:
            same["params"] = [*same["params"], *new]
        elif new:
            groups.append({**group, "params": new})
    return {"state": {**other["state"], **one["state"]}, "param_groups": groups}


def _options(group: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in group.items() if key not in ("params", "param_names")}

"""Signs in a launch script that its machines may be taken away."""

from __future__ import annotations

import re

from holdfast.analysis.source.source import Launch, Source

_TELLING = re.compile(r"(?<![a-z])(?:spot|preempt(?:ible|able)?|interruptible|scavenge)(?![a-z])")
NAMED_BY = ("partition", "qos", "account", "reservation", "constraint", "comment", "job-name")
_MADE_SO = re.compile(
    r"--(?:preemptible|spot|use-spot|provisioning-model[= ]SPOT|instance-market-options)\b"
)


def sign(source: Source, launch: Launch) -> str:
    """What says so, as written; '' when nothing does."""
    for other in (launch, *(one for one in source.launches if one.kind in ("sbatch", "srun"))):
        if other.kind in ("sbatch", "srun"):
            if other.flag("requeue") is not None:
                return "--requeue"
            for name in NAMED_BY:
                flag = other.flag(name)
                if flag is not None and _TELLING.search(flag.value.lower()):
                    return f"--{name}={flag.value}"
    for command in source.commands:
        line = " ".join(word.text for word in command.words)
        if match := _MADE_SO.search(line):
            return match[0]
    for setting in source.settings:
        if _TELLING.search(setting.name.lower().replace("_", " ")) and setting.value not in (
            *("", "0", "false", "no"),
        ):
            return f"{setting.name}={setting.value}"
    return ""

"""What frameworks hand to init_process_group: their own defaults, and how to change them."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.analysis.variables.status import Timeout
from holdfast.analysis.versions import release
from holdfast.env.job import Job
from holdfast.env.timeouts import lookup
from holdfast.env.timeouts.lookup import TimeoutValue, by_script

HALF_AN_HOUR = 1800.0


def timeouts(job: Job) -> Iterator[Timeout]:
    for package in _used(job):
        if package == "deepspeed":
            yield _deepspeed(job)
        elif package == "transformers":
            yield _trainer(job)
        elif package in ("lightning", "pytorch-lightning"):
            yield _lightning(job, package)


def _used(job: Job) -> list[str]:
    """What the script imports or the launcher stands for; without a script, what is installed."""
    packages = {p.replace("_", "-") for p in job.frameworks}
    if any(launch.kind == "deepspeed" for launch in job.launches):
        packages.add("deepspeed")
    if not job.script and job.software:
        packages |= set(job.software.packages)
    order = ("deepspeed", "transformers", "lightning", "pytorch-lightning")
    found = [name for name in order if name in packages]
    return found[:-1] if found[-2:] == ["lightning", "pytorch-lightning"] else found


def _deepspeed(job: Job) -> Timeout:
    """Read when it is imported; 10 minutes since 0.19, 30 before (deepspeed/constants.py)."""
    version = job.version("deepspeed")
    minutes = 30.0 if version and release(version) < release("0.19") else 10.0
    value = lookup.by_variable(job, "DEEPSPEED_TIMEOUT", minutes * 60, scale=60.0)
    value = value or TimeoutValue(minutes * 60, f"default of DeepSpeed {version or '0.19'}")
    return Timeout(
        name="groups made by DeepSpeed",
        key="group-deepspeed",
        stage="run",
        seconds=value.seconds,
        origin=value.origin,
        does="as above, for deepspeed.init_distributed(); the variable counts minutes",
        source="deepspeedai/DeepSpeed deepspeed/constants.py, comm/comm.py (0.19.6)",
        sure=False,
        remark="init_distributed(timeout=…) overrides it",
    )


def _trainer(job: Job) -> Timeout:
    own = next((a for a in job.asked if a.call == "TrainingArguments" and a.given), None)
    typed = _typed_timeout(job)
    version = job.version("transformers")
    default = TimeoutValue(HALF_AN_HOUR, f"default of transformers {version}".rstrip())
    value = typed or (by_script(own) if own else default)
    return Timeout(
        name="groups of the Hugging Face Trainer",
        key="group-trainer",
        stage="run",
        seconds=value.seconds,
        origin=value.origin,
        does="as above: TrainingArguments(ddp_timeout=…), whatever the backend",
        source="huggingface/transformers src/transformers/training_args.py (5.22.2)",
        sure=bool(typed or own),
        remark="" if typed or own else "only where the script uses the Trainer",
    )


def _typed_timeout(job: Job) -> TimeoutValue | None:
    """`--ddp_timeout 7200` after the script: HfArgumentParser reads it."""
    for launch in job.launches:
        words = [word.text for word in launch.script_arguments]
        for word, after in zip(words, [*words[1:], ""], strict=False):
            name, equals, value = word.partition("=")
            if name in ("--ddp_timeout", "--ddp-timeout"):
                text = value if equals else after
                return TimeoutValue(lookup.plain(text), f"{name} {text}")
    return None


def _lightning(job: Job, package: str) -> Timeout:
    version = job.version(package)
    strategies = [a for a in job.asked if a.call.endswith("Strategy") and a.given]
    default = TimeoutValue(HALF_AN_HOUR, f"default of Lightning {version}".rstrip())
    value = by_script(strategies[0]) if strategies else default
    return Timeout(
        name="groups made by Lightning",
        key="group-lightning",
        stage="run",
        seconds=value.seconds,
        origin=value.origin,
        does="as above: DDPStrategy(timeout=…), for NCCL too",
        source="Lightning-AI/pytorch-lightning fabric/strategies/ddp.py (2.6.6)",
        sure=bool(strategies),
        remark="" if strategies else "only where the script uses Lightning",
    )

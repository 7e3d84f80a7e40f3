"""The run that resumes is not the run that was saved.

What you see   With holdfast: `… is not from this run: the configuration has changed (lr: 0.1 then,
               0.01 now)`. Without it: `size mismatch for layer.weight`, `Missing key(s) in
               state_dict`, or no error at all and an unexplained kink in the loss curve.
Why            Something was edited between two starts: a flag, a configuration file, the model. A
               restart by the launcher uses the files as they are now, not as they were at the
               start. A folder of another experiment has the same effect.
How to be sure holdfast stores with every checkpoint what you passed as `config=`, and the names,
               shapes and types of all tensors. It compares both before anything is loaded.
Fix            Start as before, or in an empty folder. If the change is intended:
               `resume(accept={"config"})` or HOLDFAST_ACCEPT=config. Different tensors cannot be
               accepted: there is no right way to load them.
Known limits   Only what is passed as `config=` is compared: a changed constant in the code or an
               edited data file is not seen.
Sources        https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html (load_state_dict,
               strict)
               https://docs.pytorch.org/docs/stable/elastic/train_script.html
"""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.analysis.job import resume_refused
from holdfast.analysis.logs.pattern import Role
from holdfast.analysis.logs.wreckage import Sighting, Wreckage
from holdfast.analysis.scene.scene import Scene
from holdfast.fault import Fault, RunTraits
from holdfast.findings import Culprit, Diagnosis, Evidence, Verdict

FAULT = Fault(
    code="HOLD807",
    slug="config-changed",
    traits=RunTraits(priority=245, blocks_start=True),
    related=("world-size-mismatch", "data-position-lost", "checkpoint-lacks-state"),
)


@FAULT.run
def ranks_refused_to_resume(scene: Scene) -> Verdict | None:
    return resume_refused.verdict(FAULT.verdict, scene, FAULT.slug)


@FAULT.run
def changed_config_was_accepted(scene: Scene) -> Verdict | None:
    last = scene.checkpoints.accepted("config", attempt=scene.attempt)
    if last is None:
        return None
    return FAULT.verdict(
        f"resumed at step {last.step} with a different configuration than it was saved with (the "
        "change was accepted): from here on it is a different run",
        ranks=(),
        certain=False,
        fix="record it with your results; the manifests in the folder show both configurations",
        evidence=[Evidence(quote="accepted: config", source=last.path)],
    )


# --- in what is left of a job -------------------------------------------------------------------

SHAPE = FAULT.log_pattern(
    "shape",
    r"size mismatch for (?P<name>(?!\S*flat_param)[^\s:]+): copying a param(?:eter)?"
    r" (?:with shape|of) (?P<saved>.+?) from (?:the )?checkpoint,"
    r"(?: (?:where )?the shape (?:in|is)(?: current model)?(?: is)? (?P<now>.+?)\.?$)?"
    r"|Size mismatch between saved (?P<was>.+?) and current: (?P<is>.+?) for (?P<key>\S+)"
    r"|Global shape mismatch for loaded \((?P<loaded>.+?)\) and expected \((?P<expected>.+?)\)"
    r" tensor for key (?P<tensor>\S+)"
    r"|While copying the parameter named \"?(?P<param>[\w.\-]{1,200})\"?, whose dimensions in the "
    r"model are (?P<here>.{1,120}?) and whose dimensions in the checkpoint are "
    r"(?P<there>torch\.Size\([^)]{1,80}\)|.{1,80}?),",
    anchors=(
        "size mismatch for ",
        "Size mismatch between saved",
        "Global shape mismatch for loaded",
        "While copying the parameter named",
    ),
    example="\tsize mismatch for head.weight: copying a param with shape torch.Size([10, 64]) from "
    "checkpoint, the shape in current model is torch.Size([12, 64]).",
)
KEYS = FAULT.log_pattern(
    "keys",
    r"(?P<which>Missing|Unexpected) key\(s\) in state_dict: (?P<keys>.*)"
    r"|Missing key in checkpoint state_dict: (?P<key>\S+?)\.?$",
    anchors=("key(s) in state_dict", "Missing key in checkpoint state_dict"),
    example='\tMissing key(s) in state_dict: "head.weight", "head.bias".',
)
OPTIMIZER = FAULT.log_pattern(
    "optimizer",
    r"loaded state dict (?:contains a parameter group that doesn't match the size"
    r"|has a different number of parameter groups)",
    anchors=("a parameter group that doesn't match", "different number of parameter groups"),
    example="ValueError: loaded state dict contains a parameter group that doesn't match the size "
    "of optimizer's group",
)
ARGUMENT = FAULT.log_pattern(
    "argument",
    r"\b(?P<name>(?!\w*(?:parallel_size|world_size) value)\w+) value from checkpoint "
    r"\((?P<saved>[^)]*)\) is not equal to the (?:input|currently set) argument value "
    r"\((?P<now>[^)]*)\)",
    anchors="value from checkpoint (",
    example="AssertionError: hidden_size value from checkpoint (1024) is not equal to the input "
    "argument value (2048).",
)
ARCHITECTURE = FAULT.log_pattern(
    "architecture",
    # fairseq
    r"please ensure that the architectures match|Optimizer does not match; please reset the opt"
    r"|Criterion does not match; please reset the opt",
    anchors=("ensure that the architectures match", "does not match; please reset the opt"),
    example="Exception: Cannot load model parameters from checkpoint checkpoint_last.pt; please "
    "ensure that the architectures match.",
)
REFUSED = FAULT.log_pattern(
    "refused",
    # What differs is on the lines below, where they were not cut away.
    r"Error\(s\) in loading state_dict for(?: (?P<model>[\w.]{1,80}))?",
    anchors="Error(s) in loading state_dict",
    example="RuntimeError: Error(s) in loading state_dict for LlamaForCausalLM:",
    role=Role.CONFIRMATION,
)
OWN_WORDS = FAULT.log_pattern(
    "holdfast",
    r"is not from this run: (?P<why>.*?) ?\[(?:[a-z-]+, )*config-changed[a-z, -]*\]",
    anchors="config-changed",
    example="holdfast.errors.ConfigError: ckpts/step-1200 is not from this run: the configuration "
    "has changed (lr: 0.1 then, 0.01 now) [config-changed]",
)
CONFIDENCE = (
    (OWN_WORDS, 0.96),
    (ARGUMENT, 0.93),
    (SHAPE, 0.88),
    (OPTIMIZER, 0.88),
    (KEYS, 0.8),
    (ARCHITECTURE, 0.7),
)
"""of the last one: fairseq prints it for whatever went wrong while loading"""
WRAPPED = ("module.", "_orig_mod.", "_fsdp_wrapped_module.", "model.module.")
"""what DDP, torch.compile and FSDP put before every name"""


@FAULT.explain
def checkpoint_does_not_fit(wreckage: Wreckage) -> Diagnosis | None:
    matched = [(seen, sure) for pattern, sure in CONFIDENCE if (seen := wreckage.seen(pattern))]
    if not matched:
        return None
    seen, confidence = matched[0]
    first, prefix = seen[0], _wrapper(wreckage)
    return FAULT.diagnosis(
        _difference(first, prefix),
        confidence=confidence,
        seen=[one for lines, _ in matched for one in lines],
        culprit=Culprit(what=_name(first)),
        fix=f"save `model.module.state_dict()`, or strip '{prefix}' from the names when loading"
        if prefix and first.pattern == KEYS.name
        else "start with the model, optimizer and arguments it was saved from (compare the "
        "configuration stored with the checkpoint); if the change is intended, load only what fits "
        "(strict=False for weights) and start a new run",
    )


@FAULT.explain
def load_state_dict_failed_without_details(wreckage: Wreckage) -> Diagnosis | None:
    seen = wreckage.seen(REFUSED)
    if not seen or wreckage.seen(*(pattern for pattern, _ in CONFIDENCE)) or _sharded(wreckage):
        return None
    model = seen[0].fields.get("model", "the model")
    return FAULT.diagnosis(
        f"the checkpoint does not fit {model}: names or shapes of parameters differ, but the lines "
        "that say which are missing from the log",
        confidence=0.6,
        seen=seen,
        culprit=Culprit(what=model),
        fix="start with the model and arguments it was saved from",
        next="grep -A 20 'Error(s) in loading state_dict' *.log",
        unknown=("what differs: the lines after that one would show it",),
    )


def _sharded(wreckage: Wreckage) -> bool:
    """Shards of a flat parameter depend on the number of ranks: see world-size-mismatch."""
    return any(one.slug == "world-size-mismatch" for one in wreckage.sightings)


def _wrapper(wreckage: Wreckage) -> str:
    """The prefix by which all names differ, where only one side has it."""
    sides: dict[str, str] = {}
    for one in wreckage.seen(KEYS):
        if "which" in one.fields:
            sides.setdefault(one.fields["which"], one.fields["keys"].strip(' "'))
    for prefix in WRAPPED:
        having = [side for side, keys in sides.items() if keys.startswith(prefix)]
        if len(having) == 1:
            return prefix
    return ""


def _name(one: Sighting) -> str:
    named = (one.fields.get(field) for field in ("name", "key", "tensor", "param"))
    keys = one.fields.get("keys", "").strip(' ".').split('"')[0]
    return next((name for name in named if name), "") or keys


def _difference(one: Sighting, prefix: str) -> str:
    fields, name = one.fields, _name(one)
    if one.pattern == KEYS.name:
        return _other_names(fields, name, prefix)
    if one.pattern == OWN_WORDS.name:
        return f"the checkpoint is not from this run: {fields['why']}"
    if one.pattern == ARCHITECTURE.name:
        return "the checkpoint was saved with a different architecture, loss or optimizer"
    if one.pattern == OPTIMIZER.name:
        return "the optimizer was saved with different parameter groups than this one has"
    then = next((fields[n] for n in ("saved", "was", "loaded", "there") if n in fields), "")
    now = next((fields[n] for n in ("now", "is", "expected", "here") if n in fields), "")
    both = f" ({then} then, {now} now)" if then and now else ""
    if one.pattern == ARGUMENT.name:
        return f"the checkpoint was saved with a different {name} than this run uses{both}"
    return f"{name} has a different shape in the checkpoint than in this model{both}"


def _other_names(fields: Mapping[str, str], name: str, prefix: str) -> str:
    if prefix:
        return (
            f"the names in the checkpoint and in the model differ only by '{prefix}': one of the "
            "two was wrapped"
        )
    if fields.get("which") == "Unexpected":
        return f"the checkpoint has parameters that this model does not have, such as {name}"
    return f"the checkpoint lacks parameters that this model has, such as {name}"

"""The run that resumes is not the run that was saved.

What you see   With holdfast: `… is not from this run: the configuration has changed (lr: 0.1 then,
               0.01 now)`. Without it: `size mismatch for layer.weight`, `Missing key(s) in
               state_dict`, or nothing at all, and a loss curve with a kink nobody can explain.
Why            Something was edited between two starts: a flag, a file of settings, the model. A
               restart by the launcher uses the files as they are now, not as they were at the
               start. A folder of another experiment does the same.
How to be sure holdfast keeps with every checkpoint what you gave as `config=`, and the names,
               shapes and types of all tensors. It compares both before anything is loaded.
Fix            Start as before, or in an empty folder. If the change is meant:
               `resume(accept={"config"})` or HOLDFAST_ACCEPT=config. Other tensors cannot be
               accepted: there is no right way to load them.
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

FAULT = Fault(code="HOLD807", slug="config-changed", traits=RunTraits(priority=245))


@FAULT.run
def they_refused_to_resume(scene: Scene) -> Verdict | None:
    found = resume_refused.refused(scene, FAULT.slug)
    if found is None:
        return None
    return resume_refused.verdict(FAULT.verdict, found)


@FAULT.run
def it_was_accepted(scene: Scene) -> Verdict | None:
    resumed = [
        r for r in scene.kept.resumed if r.attempt == scene.attempt and "config" in r.accepted
    ]
    if not resumed:
        return None
    last = resumed[-1]
    return FAULT.verdict(
        f"resumed at step {last.step} under another configuration than it was saved with, as "
        "accepted: from here on it is another run",
        ranks=(),
        certain=False,
        fix="note it where you keep your results; the manifests in the folder show both",
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
    # What differs stands on the lines below, where they were not cut away.
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
SURE = (
    (OWN_WORDS, 0.96),
    (ARGUMENT, 0.93),
    (SHAPE, 0.88),
    (OPTIMIZER, 0.88),
    (KEYS, 0.8),
    (ARCHITECTURE, 0.7),
)
"""of the last one: fairseq says so of whatever went wrong while loading"""
WRAPPED = ("module.", "_orig_mod.", "_fsdp_wrapped_module.", "model.module.")
"""what DDP, torch.compile and FSDP put before every name"""


@FAULT.explain
def it_is_another_model(wreckage: Wreckage) -> Diagnosis | None:
    heard = [(seen, sure) for wording, sure in SURE if (seen := wreckage.seen(wording))]
    if not heard:
        return None
    seen, sure = heard[0]
    first, prefix = seen[0], _wrapper(wreckage)
    return FAULT.diagnosis(
        _difference(first, prefix),
        confidence=sure,
        seen=[one for lines, _ in heard for one in lines],
        culprit=Culprit(what=_name(first)),
        fix=f"the names differ by '{prefix}' only: save `model.module.state_dict()`, or strip it "
        "when loading"
        if prefix and first.signature == KEYS.name
        else "start with the model, optimizer and arguments it was saved from; if the change is "
        "meant, load only what fits (strict=False for weights) and begin a new run",
        next="" if prefix else "diff the configuration kept with the checkpoint with today's",
    )


@FAULT.explain
def it_was_refused_without_a_word_why(wreckage: Wreckage) -> Diagnosis | None:
    seen = wreckage.seen(REFUSED)
    if not seen or wreckage.seen(*(wording for wording, _ in SURE)) or _sharded(wreckage):
        return None
    model = seen[0].fields.get("model", "the model")
    return FAULT.diagnosis(
        f"the checkpoint does not fit {model}: names or shapes of parameters differ, and the lines "
        "that say which are not here",
        confidence=0.6,
        seen=seen,
        culprit=Culprit(what=model),
        fix="start with the model and arguments it was saved from",
        next="grep -A 20 'Error(s) in loading state_dict' *.log",
        unknown=("what differs: the lines below that one would tell",),
    )


def _sharded(wreckage: Wreckage) -> bool:
    """Shares of a flat parameter are cut by the number of ranks: world-size-mismatch's."""
    return any(one.slug == "world-size-mismatch" for one in wreckage.sightings)


def _wrapper(wreckage: Wreckage) -> str:
    """The prefix that makes all the difference, where one side has it and the other has not."""
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
    if one.signature == KEYS.name:
        return _other_names(fields, name, prefix)
    if one.signature == OWN_WORDS.name:
        return f"the checkpoint is not from this run: {fields['why']}"
    if one.signature == ARCHITECTURE.name:
        return "the checkpoint was saved from another architecture, loss or optimizer"
    if one.signature == OPTIMIZER.name:
        return "the optimizer was saved with other parameter groups than this one has"
    then = next((fields[n] for n in ("saved", "was", "loaded", "there") if n in fields), "")
    now = next((fields[n] for n in ("now", "is", "expected", "here") if n in fields), "")
    both = f" ({then} then, {now} now)" if then and now else ""
    if one.signature == ARGUMENT.name:
        return f"the checkpoint was saved with another {name} than this run was started with{both}"
    return f"{name} has another shape in the checkpoint than in this model{both}"


def _other_names(fields: Mapping[str, str], name: str, prefix: str) -> str:
    if prefix:
        return f"the names in the checkpoint and in the model differ by '{prefix}': one was wrapped"
    if fields.get("which") == "Unexpected":
        return f"the checkpoint holds parameters that this model has not, such as {name}"
    return f"the checkpoint lacks parameters that this model has, such as {name}"

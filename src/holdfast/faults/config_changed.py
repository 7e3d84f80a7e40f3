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

from holdfast import refusal
from holdfast.model import Evidence, Fault, Verdict
from holdfast.signals import Scene

FAULT = Fault(code="HOLD807", slug="config-changed")

MAY_BE_ACCEPTED = "the configuration has changed"


@FAULT.notice
def they_refused_to_resume(scene: Scene) -> Verdict | None:
    found = refusal.refused(scene, FAULT.slug)
    if found is None:
        return None
    meant = MAY_BE_ACCEPTED in found.sentence
    fix = (
        "start as before; if the change is meant: HOLDFAST_ACCEPT=config"
        if meant
        else "start with the model and optimizer it was saved from, or in an empty folder"
    )
    return refusal.verdict(FAULT, found, fix=fix)


@FAULT.notice
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

"""Whether a script resumes from what an earlier start had saved."""

from __future__ import annotations

import ast
import re
from typing import NamedTuple

from holdfast.analysis.source.program import Call, Program, constant, dotted
from holdfast.analysis.source.source import Launch

LOADS = re.compile(
    r"(?i)load(?!er)|resum|restor|recover|from_checkpoint|check_?point|ckpt|snapshot"
)
"""words of a call that may load a checkpoint; DataLoader is none"""

SAVES = re.compile(r"(?i)save|write|dump|upload|(?<!re)store")
NO_CHECKPOINT = re.compile(
    r"(?i)^(?:load_dataset\w*|load_dotenv|loads|safe_load|load_from_disk|from_pretrained"
    r"|gradient_checkpointing\w*|checkpoint|checkpoint_wrapper|apply_activation_checkpointing"
    r"|checkpoint_sequential|load_library|load_inline|load_extension|load_digits|load_iris|upload\w*"
    r"|download\w*|load_data\w*|load_json|load_config|load_yaml|load_tokenizer\w*)$"
)
OF_DATA = ("json.", "yaml.", "numpy.", "toml", "datasets.", "torchvision.datasets", "sklearn.")
KEYWORDS = ("resume_from_checkpoint", "ckpt_path", "resume", "resume_from", "load_checkpoint")
TRAINERS = ("transformers.Trainer", "transformers.Seq2SeqTrainer")
LIGHTNING = ("lightning.Trainer", "lightning.pytorch.Trainer", "pytorch_lightning.Trainer")


class ResumeOption(NamedTuple):
    """An option without which nothing is loaded."""

    option: str
    """'--resume'"""
    load: Call


def may_load(program: Program) -> bool:
    """Anything that might load state, here or in a module it calls: then nothing is said."""
    return any(_loads(call) for call in program.calls) or _imports_a_loader(program)


def _loads(call: Call) -> bool:
    if call.name.startswith("horovod.") and ".elastic." in call.name:
        return True  # its State is handed on from rank to rank, in memory
    method = call.method or getattr(call.node.func, "attr", "")
    if any(k.arg in KEYWORDS and constant(k.value) is not False for k in call.node.keywords):
        return True
    if NO_CHECKPOINT.match(method) or call.name.startswith(OF_DATA):
        return False
    return bool(LOADS.search(method)) and not SAVES.search(method)


def _imports_a_loader(program: Program) -> bool:
    """`from my_lib import CheckpointManager`: it may do anything when it is made."""
    return any(
        re.search(r"(?i)check_?point|ckpt|resume|restore|snapshot|holdfast", name)
        and not name.startswith(("torch.utils.checkpoint", "torch.distributed.algorithms"))
        for name in (*program.imports.values(), *program.stars)
    )


def load_calls(program: Program) -> list[Call]:
    """Calls that do load a checkpoint: torch.load, `x.load_state_dict`, dcp.load."""
    plain = ("torch.load", "torch.serialization.load", "torch.distributed.checkpoint.load")
    return [c for c in program.calls if c.name in plain or c.method == "load_state_dict"]


def only_if_asked(program: Program, started_by: tuple[Launch, ...]) -> ResumeOption | None:
    """Every load is under an option that is off unless given, and no launch gives it."""
    found: ResumeOption | None = None
    for call in [c for c in program.calls if _loads(c)]:
        option = next((o for o in _options(program, call) if _off(program, o)), None)
        if option is None:
            return None
        found = found or ResumeOption(option, call)
    if found is None or not load_calls(program):
        return None
    given = [word.text for one in started_by for word in one.script_arguments]
    sure = all(word.known for one in started_by for word in one.script_arguments)
    asked = any(word.partition("=")[0].replace("_", "-") == _dashed(found.option) for word in given)
    return found if started_by and sure and not asked else None


def _dashed(option: str) -> str:
    return option.replace("_", "-")


def _options(program: Program, call: Call) -> list[str]:
    """'--resume' of `if args.resume:` and `if args.resume is not None:` around a call."""
    found: list[str] = []
    child: ast.AST = call.node
    for above in program.above(call.node):
        if isinstance(above, ast.If) and child in above.body:
            test = above.test
            if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.IsNot | ast.NotEq):
                test = test.left
            name = dotted(test)
            if name.count(".") == 1:
                found.append("--" + name.rpartition(".")[2])
        child = above
    return found


def _off(program: Program, option: str) -> bool:
    """Defined here by argparse, and off unless it is given."""
    for call in program.calls:
        if call.method != "add_argument":
            continue
        words = [constant(a) for a in call.node.args]
        if not any(isinstance(w, str) and _dashed(w) == _dashed(option) for w in words):
            continue
        action, default = constant(call.keyword("action")), call.keyword("default")
        if action == "store_true":
            return default is None or constant(default) is False
        off = default is None or (isinstance(default, ast.Constant) and not default.value)
        return off and call.keyword("required") is None
    return False


def trainer_without_resume(program: Program) -> Call | None:
    """`trainer.train()` of transformers or `trainer.fit(…)` of Lightning, with no checkpoint to
    resume from."""
    makers = {"train": TRAINERS, "fit": LIGHTNING}
    for call in program.calls:
        names = makers.get(call.method)
        if names and call.written.count(".") and program.called(*names) and not call.starred:
            return call
    return None

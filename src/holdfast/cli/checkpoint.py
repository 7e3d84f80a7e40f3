"""`holdfast checkpoint ls|verify|diff|export|import`: checkpoints read by anything."""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.cli import choices, streams
from holdfast.cli.reading import Progress
from holdfast.errors import ConfigError
from holdfast.text import duration, size

if TYPE_CHECKING:
    from holdfast.checkpoint.reading.difference import CheckpointDifference, TensorDifference
    from holdfast.checkpoint.reading.listing import ListedCheckpoint
    from holdfast.checkpoint.reading.verification import Verification

SUMMARY = "list, verify and compare checkpoints; export and import other formats"
FORMATS = ("hf", "dcp")
FEW = 10
"""lines of a kind that a person is shown; --json has all of them"""
HEAD = f"{'CHECKPOINT':<20}  {'STATE':<10}  {'AGE':<11}  {'SIZE':>9}  {'RANKS':>5}  {'KIND':<7}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    def action(name: str, summary: str) -> argparse.ArgumentParser:
        made = actions.add_parser(name, help=summary, description=summary)
        made.add_argument("--json", action="store_true", help="one JSON document on stdout")
        return made

    ls = action("ls", "list the checkpoints of a folder, newest first")
    ls.add_argument("folder", metavar="FOLDER")
    ls.add_argument("--verify", action="store_true", help="read every byte as well")
    verify = action("verify", "compare every byte of a checkpoint with its digests")
    verify.add_argument("folder", metavar="STEP|FOLDER", help="one checkpoint, or all of a folder")
    diff = action("diff", "how two checkpoints differ: step, configuration, shapes, values")
    diff.add_argument("first", metavar="A")
    diff.add_argument("second", metavar="B")
    export = action("export", "write a checkpoint in another format, into a new folder")
    export.add_argument("step", metavar="STEP|FOLDER", help="of a folder the newest that verifies")
    export.add_argument("out", metavar="OUT", help="the folder to make")
    export.add_argument(
        "--to", choices=FORMATS, required=True,
        help="hf: the model as Hugging Face safetensors; dcp: torch.distributed.checkpoint",
    )  # fmt: skip
    export.add_argument(
        "--shard-size", type=_gigabytes, default=5.0, metavar="GB",
        help="hf: the most a file may have, in GB (default: 5)",
    )  # fmt: skip
    export.add_argument("--rank", type=_step, help="whose model, where each rank saved its own")
    bring = action("import", "make a checkpoint from torch.save, DCP or Hugging Face safetensors")
    bring.add_argument("source", metavar="FROM", help="a file, or a folder of DCP or safetensors")
    bring.add_argument("folder", metavar="FOLDER", help="a new folder of checkpoints to make")
    bring.add_argument(
        "--step", type=_step, help="the step it is of (default: what the file says, else 0)"
    )


def run(arguments: argparse.Namespace) -> int:
    return {"ls": _ls, "verify": _verify, "diff": _diff, "export": _export, "import": _import}[
        arguments.action
    ](arguments)


def _gigabytes(text: str) -> float:
    return choices.above_zero(text, most=1e6, unit="GB")


def _step(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise argparse.ArgumentTypeError(f"must be a whole number >= 0, got {text!r}")
    return int(text)


def _answer_json(action: str, **fields: Any) -> None:
    from holdfast.view import document

    streams.answer(
        document.plain("checkpoint", action=action, **fields), encoding=document.ENCODING
    )


def _shown(text: str) -> str:
    from holdfast.view.text import harmless

    return harmless(text)


# --- ls ----------------------------------------------------------------------------------------


def _ls(arguments: argparse.Namespace) -> int:
    import msgspec

    from holdfast.checkpoint.reading.listing import list_folder

    found = list_folder(arguments.folder)
    if arguments.verify:
        verified = {each.path: not each.damaged for each in _verify_all(
            [each.path for each in found if each.state == "complete"]
        )}  # fmt: skip
        found = [msgspec.structs.replace(each, verified=verified.get(each.path)) for each in found]
    if arguments.json:
        _answer_json("ls", folder=os.path.abspath(arguments.folder), checkpoints=found)
    elif found:
        lines = [line(each, now=time.time()) for each in found]
        streams.answer("\n".join([HEAD, *lines]))
        if not arguments.verify:
            streams.remark("hint: not verified, only sizes were compared; add --verify")
    else:
        streams.remark(f"no checkpoints in {_shown(arguments.folder)}")
    damaged = [
        each for each in found if each.state in ("damaged", "unreadable") or each.verified is False
    ]
    return 1 if damaged else 0


def line(each: ListedCheckpoint, *, now: float) -> str:
    """One checkpoint; what is wrong with it under it."""
    state = {True: "verified", False: "damaged"}.get(each.verified, each.state)  # type: ignore[arg-type]
    age = f"{duration(max(0.0, now - each.saved_at))} ago" if each.saved_at else "-"
    marks = [
        *(["kept for good"] if each.kept else []),
        *(["being read"] if each.in_use else []),
        *([f"imported from {each.imported}"] if each.imported else []),
    ]
    row = (
        f"{_shown(each.name):<20}  {state:<10}  {age:<11}  {size(each.bytes):>9}  "
        f"{each.world_size or '-':>5}  {each.kind or '-':<7}  {_shown(', '.join(marks))}"
    )
    return f"{row.rstrip()}\n    {_shown(each.why)}" if each.why else row.rstrip()


# --- verify ------------------------------------------------------------------------------------


def _verify(arguments: argparse.Namespace) -> int:
    from holdfast.checkpoint.reading.listing import list_folder

    paths = [each.path for each in list_folder(arguments.folder)
             if each.state not in ("set aside", "unfinished")]  # fmt: skip
    if not paths:
        raise ConfigError(
            f"no checkpoint of holdfast in {arguments.folder}", hint=_whose(arguments.folder)
        )
    began = time.monotonic()
    found = _verify_all(paths)
    seconds = time.monotonic() - began
    total = sum(each.bytes for each in found)
    if arguments.json:
        _answer_json("verify", checkpoints=found, bytes=total, seconds=round(seconds, 3))
    else:
        streams.answer("\n".join(_verdict(each) for each in found))
        rate = f", {size(total / seconds)}/s" if seconds > 0 and total else ""
        streams.remark(f"read {size(total)} in {seconds:.1f} s{rate}")
    return 1 if any(each.damaged for each in found) else 0


WRITERS = (
    ("trainer_state.json", "a Hugging Face Trainer"),
    (".metadata", "torch.distributed.checkpoint"),
    ("pytorch_model.bin", "Transformers"),
    ("model.safetensors", "Transformers or accelerate"),
    ("model.safetensors.index.json", "Transformers or accelerate"),
    ("zero_to_fp32.py", "DeepSpeed"),
    ("*.ckpt", "Lightning"),
)
"""files by which the folders of others are known, and who writes them"""


def _whose(folder: str) -> str:
    """'' where no file in the folder, or one below it, tells who wrote it."""
    for name, writer in WRITERS:
        for pattern in (name, f"*/{name}"):
            if found := next(Path(folder).glob(pattern), None):
                return f"{found} is of a checkpoint of {writer}, which has no digests to verify"
    return ""


def _verify_all(paths: list[str]) -> list[Verification]:
    from holdfast.checkpoint.reading.find import verify

    progress = Progress(paths)
    found = [verify(path, progress) for path in paths]
    return [each for each in found if each is not None]


def _verdict(each: Verification) -> str:
    if not each.damaged:
        return f"verified  {_shown(each.path)}"
    lines = [f"damaged   {_shown(each.path)}"]
    for piece in each.damaged[:FEW]:
        where = f"{piece.file}, bytes {piece.start} to {piece.end}: " if piece.file else ""
        lines.append(f"    {_shown(where + piece.why)}")
    return "\n".join(lines + _more(len(each.damaged)))


def _more(count: int) -> list[str]:
    return [f"    … and {count - FEW} more (--json has all)"] if count > FEW else []


# --- diff --------------------------------------------------------------------------------------


def _diff(arguments: argparse.Namespace) -> int:
    from holdfast.checkpoint.reading.difference import compare
    from holdfast.checkpoint.reading.find import opened

    with opened(arguments.first) as first, opened(arguments.second) as second:
        found = compare(first, second, Progress([first.path, second.path]))
    if arguments.json:
        _answer_json("diff", first=first.path, second=second.path, difference=found)
    else:
        streams.answer("\n".join(_lines(found)))
    return 1 if found.found else 0


def _lines(found: CheckpointDifference) -> list[str]:
    lines = [f"{_shown(key)}: {_shown(one)} | {_shown(two)}"
             for key, (one, two) in found.facts.items()]  # fmt: skip
    changed = len(found.tensors)
    lines.append(f"tensors: {found.equal} equal, {changed} different" if changed
                 else f"tensors: all {found.equal} equal")  # fmt: skip
    lines += [f"    {_tensor_line(each)}" for each in found.tensors[:FEW]] + _more(changed)
    if found.values:
        lines.append(f"other values: {len(found.values)} different")
        lines += [f"    {_shown(path)}" for path in found.values[:FEW]] + _more(len(found.values))
    return lines


def _tensor_line(each: TensorDifference) -> str:
    if each.first != each.second:
        return _shown(f"{each.name}: {each.first} | {each.second}")
    amount = "values differ" if each.max_abs is None else f"differs by up to {each.max_abs:.3g}"
    nans = f", {each.nan_in_one} NaN in one only" if each.nan_in_one else ""
    return _shown(f"{each.name} ({each.first}): {amount}{nans}")


# --- export and import -------------------------------------------------------------------------


def _export(arguments: argparse.Namespace) -> int:
    import holdfast
    from holdfast.checkpoint.exchange import to_dcp, to_huggingface

    if os.path.lexists(arguments.out):  # before anything is read
        raise ConfigError(f"{arguments.out} exists already: give a new path")
    with holdfast.load(arguments.step, rank=arguments.rank) as saved:
        progress = Progress([saved.path])
        if arguments.to == "dcp":
            made = to_dcp.export(saved, arguments.out, progress=progress)
        else:
            limit = int(arguments.shard_size * 1e9)
            made = to_huggingface.export(saved, arguments.out, shard_size=limit, progress=progress)
    for note in (*saved.notes, *made.notes):
        streams.remark(f"note: {_shown(note)}")
    if arguments.json:
        _answer_json("export", step=saved.step, source=saved.path, made=made)
    else:
        streams.answer(made.path)
        streams.remark(f"{made.tensors} tensors, {size(made.bytes)}, from step {saved.step}")
    return 0


def _import(arguments: argparse.Namespace) -> int:
    from holdfast.checkpoint.exchange.bring_in import bring_in

    made = bring_in(
        arguments.source, arguments.folder, step=arguments.step,
        progress=Progress([arguments.source]),
    )  # fmt: skip
    for note in made.notes:
        streams.remark(f"note: {_shown(note)}")
    if arguments.json:
        _answer_json("import", made=made)
    else:
        streams.answer(made.path)
        streams.remark(f"{made.tensors} tensors, {size(made.bytes)}, as step {made.step}")
    return 0

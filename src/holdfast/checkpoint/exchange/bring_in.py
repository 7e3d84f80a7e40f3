"""`holdfast checkpoint import`: a checkpoint of others becomes one that `resume()` takes."""

from __future__ import annotations

import os
import secrets
import time
from collections import OrderedDict
from typing import Any

import msgspec

from holdfast.analysis.checkpoints.manifest import FileEntry, RankPart, order_of
from holdfast.checkpoint import commit, object_state, tree
from holdfast.checkpoint.commit import SaveControl, SaveFolder
from holdfast.checkpoint.exchange.contents import Contents, sort_out
from holdfast.checkpoint.exchange.sources import read_source
from holdfast.checkpoint.exchange.tensor_stream import Progress, write_tensors
from holdfast.checkpoint.files import DISK, PieceDigests
from holdfast.checkpoint.full_disk import MadeRoom
from holdfast.checkpoint.lock import FolderLock
from holdfast.checkpoint.messages import CheckpointInfo, SaveOrder
from holdfast.checkpoint.reading.saved_state import TensorOnDisk
from holdfast.checkpoint.safetensors_layout import CODES
from holdfast.checkpoint.staging import tensor_file, tree_file
from holdfast.checkpoint.state import BUCKETS, GENERATORS, GROUPS, OWN_STRUCTURE, SCHEMA, versions
from holdfast.checkpoint.tensors import TensorEncoder, dtype_name
from holdfast.checkpoint.tree import Node, Path
from holdfast.errors import ConfigError, EnvironmentFailure
from holdfast.text import printable


class Imported(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    step: int
    tensors: int
    bytes: int
    format: str
    notes: tuple[str, ...]
    """what was left out, or is not known"""


def bring_in(
    source: str, folder: str, *, step: int | None = None, progress: Progress = lambda _: None
) -> Imported:
    """Into a folder that has no checkpoints yet."""
    folder = os.path.abspath(folder)
    if os.path.lexists(folder) and not os.path.isdir(folder):
        raise ConfigError(f"{folder} is not a folder")
    if os.path.isdir(folder) and any(order_of(name) for name in os.listdir(folder)):
        raise ConfigError(f"{folder} has checkpoints already: import into a new folder")
    kind, found = read_source(os.path.abspath(source))
    contents = sort_out(found, lambda value: isinstance(value, TensorOnDisk))
    number = contents.step or 0 if step is None else step
    document, tensors, structure = _document(contents, number)
    about = CheckpointInfo(
        epoch=contents.epoch,
        structure=object_state.fingerprint(structure),
        versions=versions(),
        imported=f"{kind} {os.path.basename(os.path.normpath(source))}"[:200],
    )
    path = _write(folder, number, document, tensors, about, progress)
    notes = list(contents.notes)
    if contents.optimizer is None:
        notes.append("no optimizer in it: it starts fresh at the resume")
    if step is None and contents.step is None:
        notes.append("no step in it: it counts as step 0 (--step N sets another)")
    return Imported(
        path=path,
        step=number,
        tensors=len(tensors),
        bytes=sum(each.size for each in tensors.values()),
        format=kind,
        notes=tuple(notes),
    )


def _document(
    contents: Contents, step: int
) -> tuple[Node, dict[str, TensorOnDisk], dict[str, str]]:
    """The tree as State.capture makes it, with what is known; the tensors it names."""
    encoder = _TensorNames()
    model: OrderedDict[str, Any] = OrderedDict(contents.model)
    shared = {"model": tree.encode(model, encoder.encode, ("model",))}
    groups: dict[str, list[list[str]]] = {}
    if contents.optimizer is not None:
        optimizer, names = _numbered(contents.optimizer)
        shared["optimizer"] = tree.encode(optimizer, encoder.encode, ("optimizer",))
        groups = {"optimizer": names} if names else {}
    structure = {f"model.{name}": str(each) for name, each in contents.model.items()
                 if isinstance(each, TensorOnDisk)}  # fmt: skip
    document = {
        "schema": SCHEMA, "step": step, "epoch": contents.epoch, "shared": shared,
        "structure": printable(structure), BUCKETS: [], OWN_STRUCTURE: {}, GROUPS: groups,
        "own": {GENERATORS: None},
    }  # fmt: skip
    return document, encoder.tensors, structure


def _numbered(optimizer: dict[str, Any]) -> tuple[dict[str, Any], list[list[str]]]:
    """As optimizer.state_dict(); where it has names, they are given beside it."""
    named = [name for group in optimizer["param_groups"] for name in group["params"]]
    if not named or not all(isinstance(name, str) for name in named):
        return optimizer, []
    number = {name: i for i, name in enumerate(named)}
    unknown = [name for name in optimizer["state"] if name not in number]
    if unknown:
        raise ConfigError(f"the optimizer has a state for {unknown[0]!r:.80}, but no parameter")
    return {
        "state": {number[name]: values for name, values in optimizer["state"].items()},
        "param_groups": [
            {**group, "params": [number[name] for name in group["params"]]}
            for group in optimizer["param_groups"]
        ],
    }, [[f"model.{name}" for name in group["params"]] for group in optimizer["param_groups"]]


class _TensorNames:
    """For `tree.encode`: a name for each tensor that is not read yet, one for tied ones."""

    def __init__(self) -> None:
        self.tensors: dict[str, TensorOnDisk] = {}
        self._known: dict[str, str] = {}
        self._others = TensorEncoder()

    def encode(self, value: object, path: Path) -> Node | None:
        if not isinstance(value, TensorOnDisk):
            return self._others.encode(value, path)
        name = self._known.get(value.key)
        if name is None:
            wanted = name = printable(".".join(str(key) for key in path))
            count = 1
            while name in self.tensors or name == "__metadata__":
                count += 1
                name = f"{wanted}#{count}"
            self.tensors[name] = value
            self._known[value.key] = name
        body: dict[str, Node] = {"name": name}
        if dtype_name(value.dtype) not in CODES:
            body |= {"dtype": dtype_name(value.dtype), "shape": list(value.shape)}
        return {"tensor": body}


def _write(
    folder: str,
    step: int,
    document: Node,
    tensors: dict[str, TensorOnDisk],
    about: CheckpointInfo,
    progress: Progress,
) -> str:
    place = SaveFolder(folder, step, secrets.token_hex(6))
    control, began = SaveControl(), time.monotonic()
    lock = FolderLock(folder)
    try:
        commit.make_root(DISK, folder)
        lock.take()
        DISK.make_folder(place.temporary)
        entries = [
            write_tensors(
                os.path.join(place.temporary, tensor_file(0)), tensors, progress=progress
            ),
            _write_text(place.temporary, tree_file(0), tree.to_json(document)),
        ]
        seconds = time.monotonic() - began
        part = RankPart(rank=0, files=tuple(entries), stall=0.0, seconds=seconds)
        order = SaveOrder(
            folder=folder, step=step, token=place.token, rank=0, world_size=1, pieces=(),
            about=about,
        )  # fmt: skip
        path, _ = commit.commit(DISK, place, part, order, control, MadeRoom(DISK, place, order))
    except OSError as error:
        commit.abandon(DISK, place)
        raise EnvironmentFailure(f"{folder} cannot be written: {error.strerror}") from error
    except BaseException:
        commit.abandon(DISK, place)
        raise
    finally:
        lock.release()
    return path


def _write_text(folder: str, name: str, text: bytes) -> FileEntry:
    digests = PieceDigests()
    digests.update(memoryview(text))
    with open(os.path.join(folder, name), "xb") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    return FileEntry(name=name, size=len(text), sha256=digests.hexdigests())

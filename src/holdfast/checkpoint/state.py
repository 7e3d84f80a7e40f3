"""`holdfast.State`: everything a run consists of.

    state = holdfast.State(model=model, optimizer=opt, scheduler=sched, scaler=scaler,
                           data=sampler, ema=ema, best=0.0, per_rank=("ema",))
    state.step, state.epoch            plain numbers
    state.extras["best"]               extras that are plain values live here

What all ranks share (model, optimizer, scheduler, scaler, extras) is written by rank 0. What each
rank knows for itself is written by each: its generators, its data position, the names in
`per_rank`, which may be the model and the optimizer. For checkpoint.py and resume.py:

    captured = state.capture(rank)              its tensors and its tree, at this moment
    notes = state.restore(folder, rank, saved_world)
    state.kind, state.data_scope, state.structure(), captured.structure, versions()

A sharded model and its optimizer are left out here: sharded.py has them, and its own part of the
tree goes in and out as `capture(rank, sharded=node)` and `saved_sharded(folder, rank)`. So has it
every extra that holds DTensors: an average of the weights, a second model.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterable, Set
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn
from torch.optim import Optimizer

import holdfast
from holdfast import text
from holdfast.checkpoint import (
    ddp_buckets,
    generators,
    hyperparameters,
    object_state,
    optimizer_state,
    tree,
)
from holdfast.checkpoint.loading import LaterCopies
from holdfast.checkpoint.optimizer_state import ParameterNames
from holdfast.checkpoint.rank_files import RankFiles
from holdfast.checkpoint.tensors import NamedTensor, TensorEncoder
from holdfast.checkpoint.tree import Node, Path
from holdfast.errors import ConfigError, Error

SCHEMA = "holdfast/state/1"
Scope = Literal["global", "per-rank", "unknown"]
GENERATORS = "generators"
GROUPS = "optimizer_groups"
OWN_STRUCTURE = "own_structure"
BUCKETS = "ddp_buckets"
SETTINGS = "settings"
_NEVER_SHARDED = {"scheduler", "scaler", "data"}


@dataclass(frozen=True)
class CapturedState:
    """One rank's state: values that will change are in `tensors` only, and not copied yet."""

    text: bytes
    tensors: list[NamedTensor]
    structure: str
    """fingerprint; '' on ranks that do not write the shared part"""


@dataclass(frozen=True)
class PreparedState:
    """What was saved, on its way back to the objects it came from."""

    values: dict[str, Any]
    random_state: Any
    step: int
    epoch: int
    buckets: list[Any]


class State:
    """Everything a run consists of: what `holdfast.Checkpoint` saves and restores.

    What all ranks share is saved once, by rank 0; what differs (random number generators, the data
    position, names in `per_rank`) by every rank. Plain values live in `state.extras["name"]`.

    Args:
        model: an nn.Module; inside its DDP wrapper the order of sums is kept, too. FSDP2 and
            DTensor models are saved in shards.
        optimizer: of that model.
        scheduler: a learning-rate scheduler.
        scaler: a torch.amp.GradScaler.
        data: the data position: a `holdfast.Sampler`, a `holdfast.StatefulLoader`, or anything
            with state_dict() and load_state_dict().
        per_rank: names of what differs between ranks and is saved by each: extras, and also
            "model" and "optimizer" (pipeline stages, experts, optimizers that keep a part on each
            rank). With those two, the number of ranks must stay the same.
        **extras: anything else: objects with state_dict(), generators, tensors, plain values.

    Attributes:
        step: optimizer steps done, counted by `Checkpoint.step()`.
        epoch: for the script to set, if it likes.
        extras: the extras that are plain values.

    Raises:
        ConfigError: something has no state that could be saved.
    """

    def __init__(
        self,
        *,
        model: nn.Module | None = None,
        optimizer: Optimizer | None = None,
        scheduler: Any = None,
        scaler: Any = None,
        data: Any = None,
        per_rank: Iterable[str] = (),
        **extras: Any,
    ) -> None:
        self.step, self.epoch = 0, 0
        self.model, self.optimizer, self.data = model, optimizer, data
        named = {"model": model, "optimizer": optimizer, "scheduler": scheduler,
                 "scaler": scaler, "data": data}  # fmt: skip
        given = {name: thing for name, thing in named.items() if thing is not None}
        with_state = {
            name: thing for name, thing in extras.items() if object_state.has_state(thing)
        }
        self._things: dict[str, Any] = given | with_state
        self.extras = {n: value for n, value in extras.items() if n not in with_state}
        self._per_rank = self._which_per_rank(per_rank)
        for name, thing in self._things.items():
            object_state.refuse_stateless(name, thing)
            object_state.refuse_unknown(name, thing, per_rank=name in self._per_rank)
        self._sharded = self._which_sharded()
        self.kind = "sharded" if self._sharded else "plain"
        # Now rather than at the first save, in an hour.
        plain = {name: value for name, value in self.extras.items() if name not in self._sharded}
        tree.encode(plain, TensorEncoder().encode, ("extras",))
        self._buckets: ddp_buckets.Buckets = ()
        self._settings = hyperparameters.settings_of(self._things)

    def _which_sharded(self) -> frozenset[str]:
        """What is saved in shards: whatever holds DTensors, then also the model and optimizer."""
        possible = self._things | self.extras
        found = {
            name
            for name, thing in possible.items()
            if name not in _NEVER_SHARDED and object_state.is_sharded(thing)
        }
        return frozenset(found | ({"model", "optimizer"} & possible.keys() if found else set()))

    def sharded_extras(self) -> dict[str, Any]:
        """An average of the weights, a second model."""
        names = sorted(self._sharded - {"model", "optimizer"})
        return {name: (self._things | self.extras)[name] for name in names}

    @property
    def per_rank(self) -> frozenset[str]:
        """Names of what each rank saves for itself."""
        return self._per_rank

    def _which_per_rank(self, names: Iterable[str]) -> frozenset[str]:
        asked = {names} if isinstance(names, str) else set(names)
        possible = self._things.keys() | self.extras.keys()
        if unknown := sorted(asked - possible):
            raise ConfigError(
                f"per_rank: unknown value {unknown[0]!r} "
                f"(choose from {', '.join(sorted(possible)) or 'nothing'})"
            )
        own = {n for n, thing in self._things.items() if generators.is_generator(thing)}
        return frozenset(asked | own | ({"data"} & self._things.keys()))

    @property
    def names(self) -> frozenset[str]:
        """Of everything that it consists of."""
        return frozenset(self._things.keys() | self.extras.keys())

    @property
    def bound_to_ranks(self) -> tuple[str, ...]:
        """Of model and optimizer what each rank saves for itself: it fits no other number of
        ranks."""
        return tuple(sorted(self._per_rank & {"model", "optimizer"}))

    @property
    def data_scope(self) -> Scope:
        """Does the data position hold for any number of ranks? Its owner says so."""
        if self.data is None:
            return "unknown"
        found: Scope = getattr(self.data, "data_scope", "per-rank")
        return found

    def structure(self) -> dict[str, str]:
        """Names, shapes and types of what all ranks share, which must not differ between saving
        and resuming."""
        return self._structure(self._things.keys() - self._per_rank, self.parameter_names())

    def own_structure(self) -> dict[str, str]:
        """The same of what this rank saves for itself."""
        return self._structure(self._per_rank & self._things.keys(), self.parameter_names())

    def first_structure(self) -> dict[str, str]:
        """As the first release wrote it: of everything, and an optimizer by numbers."""
        return self._structure(self._things.keys(), {})

    def shared_objects(self) -> dict[str, Any]:
        """What rank 0 saves for all ranks, by name; without plain values."""
        return {name: self._things[name] for name in sorted(self._names() & self._things.keys())
                if name not in self._per_rank}  # fmt: skip

    def _structure(self, wanted: Set[str], names: ParameterNames) -> dict[str, str]:
        found: dict[str, str] = {}
        for name in sorted(wanted):
            found |= object_state.structure(name, self._things[name], names)
        return found

    def parameter_names(self) -> ParameterNames:
        """Of all its modules, `model.layer.weight`; a tied one has its first name."""
        names: dict[torch.Tensor, str] = {}
        modules = {n: m for n, m in self._things.items() if isinstance(m, nn.Module)}
        for name, module in modules.items():
            for key, parameter in object_state.parameter_names(module).items():
                names.setdefault(parameter, f"{name}.{key}")
        return names

    def _groups(self, wanted: Set[str]) -> dict[str, optimizer_state.Groups]:
        """Of the optimizers among them."""
        names = self.parameter_names()
        return {
            name: optimizer_state.groups(thing, names)
            for name, thing in self._things.items()
            if name in wanted and isinstance(thing, Optimizer)
        }

    # --- saving --------------------------------------------------------------------------------

    def capture(
        self, rank: int, *, sharded: Node = None, structure: dict[str, str] | None = None
    ) -> CapturedState:
        """Of this moment; the tensors must be copied before the next step changes them.

        `structure` is that of all ranks together, where each has a part of it.
        """
        gather, fingerprint = TensorEncoder(), ""
        document: dict[str, Node] = {"schema": SCHEMA, "step": self.step, "epoch": self.epoch}
        if sharded is not None:
            document["sharded"] = sharded
        if rank == 0:
            names = self._names() - self._per_rank
            document["shared"] = self._encode(names, gather, ())
            document["structure"] = self.structure() if structure is None else structure
            document[SETTINGS] = tree.encode(self._settings, gather.encode, (SETTINGS,))
            fingerprint = object_state.fingerprint(document["structure"])
        if rank == 0 or "model" in self._per_rank:
            self._buckets = ddp_buckets.of(self.model) or self._buckets
            document[BUCKETS] = [list(bucket) for bucket in self._buckets]
        document[OWN_STRUCTURE] = self.own_structure()
        document[GROUPS] = self._groups(self._names() if rank == 0 else self._per_rank)
        own = self._encode(self._per_rank - self._sharded, gather, ("own",))
        own[GENERATORS] = tree.encode(generators.capture(), gather.encode, ("own", GENERATORS))
        document["own"] = own
        return CapturedState(tree.to_json(document), gather.tensors, fingerprint)

    def _names(self) -> frozenset[str]:
        """Of all that is saved here; sharded.py has what is sharded."""
        return self.names - self._sharded

    def _encode(self, names: frozenset[str], gather: TensorEncoder, path: Path) -> dict[str, Node]:
        nodes = {}
        for name in sorted(names):
            is_thing = name in self._things
            value = object_state.state_of(self._things[name]) if is_thing else self.extras[name]
            nodes[name] = tree.encode(value, gather.encode, (*path, name))
        return nodes

    # --- resuming ------------------------------------------------------------------------------

    def restore(
        self,
        folder: str,
        rank: int,
        saved_world: int,
        *,
        accept_data_change: bool = False,
        prepared: PreparedState | None = None,
    ) -> list[str]:
        """Everything that was saved; returns what could not be restored, in sentences.

        All of it is read before anything is changed. Raises DamagedTreeError for files that are
        not ours, ConfigError where something does not take its saved state.
        """
        later = LaterCopies()
        found = prepared or self.prepare(folder, rank, saved_world, later)
        later.fill()
        for name, value in found.values.items():
            self.give(name, value, accept_data_change=accept_data_change)
        self.step, self.epoch = found.step, found.epoch
        if ddp_buckets.impose(self.model, found.buckets):
            self._buckets = tuple(tuple(bucket) for bucket in found.buckets)
        # Last, because loading may draw numbers.
        notes = self._restore_generators(found.random_state, rank, new=rank >= saved_world)
        return notes + [
            f"{name} is not in the checkpoint of rank {rank}: it starts fresh"
            for name in sorted(self._names() - found.values.keys())
            if not generators.is_generator(self._things.get(name))
        ]

    def prepare(
        self, folder: str, rank: int, saved_world: int, later: LaterCopies
    ) -> PreparedState:
        """What `restore` gives to the objects, without its values: those come when `later` is
        filled."""
        first = RankFiles(folder, 0, later)
        is_new = rank >= saved_world
        own_files = first if rank == 0 or is_new else RankFiles(folder, rank, later)
        # Rank 0's data position serves a new rank if it holds for any number of ranks.
        whole = {"data"} if self.data_scope == "global" else set()
        usable = whole if is_new else self._per_rank
        values = self._decode(first, "shared", self._names() - self._per_rank)
        values |= self._decode(own_files, "own", (self._per_rank - self._sharded) & usable)
        self._reorder(values, first, own_files)
        return PreparedState(
            values=values,
            random_state=own_files.value(own_files.part("own").get(GENERATORS)),
            step=first.part("step", int),
            epoch=first.part("epoch", int),
            buckets=(own_files if "model" in self._per_rank else first).part(BUCKETS, list),
        )

    def apply_changed_settings(self, folder: str) -> list[str] | None:
        """After `restore`: what the script sets otherwise than when this was saved takes effect.

        One phrase each; None where it is not known what was set then: the first release.
        """
        saved = _saved_settings(folder)
        if saved is None:
            return None
        return hyperparameters.apply_changes(self._things, saved, self._settings)

    def settings_not_in_force(self, folder: str) -> list[str]:
        """After `restore`: what the script sets otherwise, and what was saved holds instead."""
        saved = _saved_settings(folder)
        if saved is None:
            return []
        kept = hyperparameters.not_in_force(self._things, saved, self._settings)
        self._settings = hyperparameters.in_force(saved, self._settings)  # until it is accepted
        return kept

    def left_behind(self, saved_world: int, world_size: int) -> list[str]:
        """What no rank takes over, in sentences, when fewer ranks resume than saved."""
        whole = {"data"} if self.data_scope == "global" else set()
        own = self._per_rank - whole
        names = sorted(n for n in own if not generators.is_generator(self._things.get(n)))
        if saved_world <= world_size or not names:
            return []
        gone = text.ranks(range(world_size, saved_world))
        return [f"not used, as this job has world size {world_size}: {', '.join(names)} of {gone}"]

    def _decode(self, files: RankFiles, part: str, names: frozenset[str]) -> dict[str, Any]:
        saved = files.part(part)
        return {
            # A module copies the values; others keep the tensors they are given. An optimizer
            # moves them to its parameters, which may be on several devices.
            name: files.value(
                saved[name],
                keep_mapped=isinstance(self._things.get(name), nn.Module),
                on_cpu=optimizer_state.is_elsewhere(self._things.get(name)),
            )
            for name in sorted(names)
            if name in saved
        }

    def _reorder(self, values: dict[str, Any], first: RankFiles, own: RankFiles) -> None:
        """The state of optimizers, by the names of their parameters; the first release had none."""
        for name, now in self._groups(values.keys()).items():
            saved = (own if name in self._per_rank else first).part(GROUPS, object)
            if isinstance(saved, dict) and name in saved:
                values[name] = optimizer_state.in_order(values[name], saved[name], now)

    def give(self, name: str, value: Any, *, accept_data_change: bool = False) -> None:
        """To what has that name, its saved state."""
        if name not in self._things:
            self.extras[name] = object_state.moved_like(value, self.extras.get(name))
            return
        thing = self._things[name]
        try:
            if accept_data_change and hasattr(thing, "data_scope"):  # one of ours
                thing.load_state_dict(value, accept_change=True)
            else:
                object_state.load_state(thing, value)
        except Error:
            raise
        except Exception as refused:
            raise ConfigError(f"{name} did not take its saved state: {refused}") from refused

    def _restore_generators(self, saved: Any, rank: int, *, new: bool) -> list[str]:
        if not new:
            return generators.restore(saved)
        seed = generators.derive(saved, rank)
        own = [thing for thing in self._things.values() if generators.is_generator(thing)]
        for number, thing in enumerate(own):
            generators.derive_one(thing, seed + number + 1)
        return [f"rank {rank} is new: its random numbers are derived from those of rank 0"]


def saved_structure(folder: str) -> dict[str, str]:
    """For the sentence that says what differs (object_state.first_differences)."""
    return dict(RankFiles(folder, 0).part("structure"))


def saved_own_structure(folder: str, rank: int) -> dict[str, str] | None:
    """Of what that rank saved for itself; None where the first release wrote it."""
    saved = RankFiles(folder, rank).part(OWN_STRUCTURE, object)
    return dict(saved) if isinstance(saved, dict) else None


def saved_sharded(folder: str, rank: int) -> Node:
    """What sharded.py gave to `capture`."""
    return RankFiles(folder, rank).part("sharded", object)


def versions() -> dict[str, str]:
    found = {
        "holdfast": holdfast.__version__,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "cuda": torch.version.cuda or "",
    }
    numpy = sys.modules.get("numpy")
    return found | ({"numpy": numpy.__version__} if numpy else {})


def _saved_settings(folder: str) -> hyperparameters.Settings | None:
    """What the script had set when that was saved; None in checkpoints of the first release."""
    first = RankFiles(folder, 0)
    node = first.part(SETTINGS, object)
    return None if node is None else first.value(node)

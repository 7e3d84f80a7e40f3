"""`holdfast.StatefulLoader`: the data position of torchdata's StatefulDataLoader, for resume.

    loader = StatefulLoader(StatefulDataLoader(dataset, batch_sampler=sampler, num_workers=4))
    state = holdfast.State(model=model, optimizer=optimizer, data=loader)
    for batch in loader: …

That loader knows its data position exactly, with the state of the dataset in every worker, but
only for the ranks and workers that saved it. So: with as many ranks as before its own state is
used. With another number, and a `holdfast.Sampler` in it, the sampler's position is used, which
holds for any number; the state that a dataset keeps itself starts fresh. Without such a sampler
(iterable datasets among them) the position is lost, and the resume is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from holdfast.checkpoint.process_group import data_rank
from holdfast.checkpoint.sampler import Sampler
from holdfast.errors import ConfigError, ResumeRefused


class StatefulLoader:
    """Iterates torchdata's StatefulDataLoader, and saves its data position for `holdfast.State`.

    Args:
        loader: a torchdata StatefulDataLoader, best with a `holdfast.Sampler` as its batch_sampler.
        rank: of this process among those that share the data; by default that of the job.
        world_size: the number of ranks that share the data; give both or neither.

    Raises:
        ConfigError: the loader cannot tell its data position.
    """

    def __init__(
        self, loader: Any, *, rank: int | None = None, world_size: int | None = None
    ) -> None:
        for method in ("state_dict", "load_state_dict"):
            if not hasattr(loader, method):
                raise ConfigError(
                    f"a {type(loader).__name__} has no {method}(): its data position is unknown",
                    hint="use torchdata.stateful_dataloader.StatefulDataLoader; a plain "
                    "DataLoader needs no StatefulLoader: follow a holdfast.Sampler",
                )
        self.loader = loader
        sampler = getattr(loader, "batch_sampler", None)
        self.sampler = sampler if isinstance(sampler, Sampler) else None
        if self.sampler is not None and rank is None:
            rank, world_size = self.sampler.shares.rank, self.sampler.shares.world_size
        self.rank, self.world_size = data_rank(rank, world_size)

    @property
    def data_scope(self) -> str:
        """State reads this: does the data position hold for any number of ranks?"""
        return "per-rank" if self.sampler is None else self.sampler.data_scope

    def __iter__(self) -> Iterator[Any]:
        return iter(self.loader) if self.sampler is None else self.sampler.follow(self.loader)

    def __len__(self) -> int:
        return len(self.loader)

    def state_dict(self) -> dict[str, Any]:
        saved: dict[str, Any] = {"rank": self.rank, "world_size": self.world_size}
        if self.sampler is None:
            return saved | {"loader": self.loader.state_dict()}
        saved["sampler"] = self.sampler.state_dict()
        # Outside the loop, and within a global batch, which is repeated as a whole, the loader's
        # own position is not the one to continue from.
        if self.sampler.following and self.sampler.is_last_micro_batch:
            saved["loader"] = self.loader.state_dict()
        return saved

    def load_state_dict(self, saved: dict[str, Any], *, accept_change: bool = False) -> None:
        """Continue there. `accept_change`: where that cannot be, start from the beginning."""
        mine = (saved.get("rank"), saved.get("world_size")) == (self.rank, self.world_size)
        if self.sampler is not None and "sampler" in saved:
            self.sampler.load_state_dict(saved["sampler"], accept_change=accept_change)
            at_saved_place = self.sampler.position == saved["sampler"]["position"]
            usable = mine and at_saved_place and self._fits(saved.get("loader"))
        else:
            usable = mine and self.sampler is None and self._fits(saved.get("loader"))
            if not usable and not accept_change:
                self._refuse(saved)
        # An empty state makes it begin where its sampler says, or at the beginning.
        self.loader.load_state_dict(saved["loader"] if usable else {})

    def _fits(self, state: dict[str, Any] | None) -> bool:
        """The loader's state is made of its workers' states."""
        if state is None:
            return False
        snapshot = state.get("_snapshot")
        main = snapshot.get("_main_snapshot", {}) if isinstance(snapshot, dict) else {}
        workers = getattr(self.loader, "num_workers", 0)
        return bool(main.get("_num_workers", 0) == workers)

    def _refuse(self, saved: dict[str, Any]) -> None:
        what = f"it was saved by {saved.get('world_size')} ranks, and there are {self.world_size}"
        if saved.get("world_size") == self.world_size:
            what = "it was saved by another kind of loader, or one with another number of workers"
        raise ResumeRefused(
            f"data position lost: {what}; only a holdfast.Sampler can resume then, else samples "
            "would be skipped or seen twice",
            slugs=["data-position-lost"],
            hint="start with as many ranks and workers as before; or call "
            'resume(accept={"data"}) or set HOLDFAST_ACCEPT=data to start the data from the '
            "beginning",
        )

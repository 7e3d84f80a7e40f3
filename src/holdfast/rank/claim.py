"""What this rank says it is: number, world size and store, noted before it waits for the others.

When ranks disagree about these, init_process_group never returns; so they are written down at
its entry. No frame of ours may appear in a traceback of the user's, so init_process_group itself
is not wrapped: a small function that it calls first, and that returns at once, looks at the
arguments of its caller.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from holdfast.rank import agent_store, nccl_settings, own_page

UNKNOWN = -1
LONGEST = 300
"""characters of an address: names have at most 253, files may have more"""

_given: dict[str, Any] = {}
_said: dict[str, Any] = {}
"""the claim that stands in the page, with its time"""
_destroyed: Counter[tuple[Any, ...]] = Counter()
"""how many groups of each store and world size this process has destroyed"""


def remember(environment: Mapping[str, str]) -> None:
    """What the launcher gave us, before the script can change it."""
    _given.update(
        given_rank=_number(environment.get("RANK")),
        given_world_size=_number(environment.get("WORLD_SIZE")),
        given_store=_master(environment),
    )


def given_nothing() -> None:
    """This process was started by a rank, not by the launcher."""
    _given.clear()


def _as_given(own: Mapping[str, Any]) -> dict[str, Any]:
    return {f"given_{name}": own[name] for name in ("rank", "world_size", "store")}


def follow(torch: Any, *, entering: Callable[[int], None]) -> None:
    """`entering` is told the number that this process takes in a group."""
    c10d = torch.distributed.distributed_c10d
    name_group: Callable[..., str] = c10d._process_group_name  # noqa: SLF001

    @functools.wraps(name_group)
    def tell_and_name(*args: Any, **kwargs: Any) -> str:
        try:
            caller = sys._getframe(1)  # noqa: SLF001
            if caller.f_code.co_name == "init_process_group":
                _tell(torch, caller.f_locals, entering)
        except Exception as problem:  # noqa: BLE001
            own_page.complain(problem)
        return name_group(*args, **kwargs)

    c10d._process_group_name = tell_and_name  # noqa: SLF001


def _tell(torch: Any, arguments: Mapping[str, Any], entering: Callable[[int], None]) -> None:
    # A fake group has a made-up world size, and never waits.
    if str(arguments.get("backend")) == "fake":
        return
    own = claimed(arguments, os.environ)
    entering(own["rank"])
    if own_page.page is None:
        return
    timeout = arguments.get("timeout")
    said = {
        **own,
        "wall": time.time(),
        "remade": _destroyed[_world(own)],
        "first": not _destroyed,
        "agent_store": agent_store.is_agents(own["store"].rpartition(":")[2]),
        "timeout": timeout.total_seconds() if timeout is not None else 0.0,
        "device": device(torch, arguments.get("device_id")),
        "nccl_aborts": nccl_settings.aborts(os.environ),
        **(_given or _as_given(own)),
    }
    _said.clear()
    _said.update(said, at=time.monotonic())
    _write()


def found_on(torch: Any, parameter_groups: Any) -> None:
    """At its first step: scripts that touch their GPU only after init_process_group could name none
    there."""
    if not _said or _said["device"]:
        return
    first: Any = next((p for group in parameter_groups for p in group["params"]), None)
    if getattr(first, "is_cuda", False):
        _said["device"] = device(torch, first.device)
        _write()


def group_destroyed() -> None:
    """The claim stays legible: others may still wait for this rank in that group."""
    if _said and not _said.get("destroyed"):
        _destroyed[_world(_said)] += 1
        _said["destroyed"] = True
        _write()


def _write() -> None:
    if own_page.page is not None:
        text = json.dumps({name: value for name, value in _said.items() if name != "at"})
        own_page.page.claim(text, _said["at"])


def _world(claim: Mapping[str, Any]) -> tuple[Any, ...]:
    return claim["store"], claim["own_store"], claim["world_size"]


def claimed(arguments: Mapping[str, Any], environment: Mapping[str, str]) -> dict[str, Any]:
    """Rank, world size and store as init_process_group will find them."""
    from urllib.parse import parse_qs, urlsplit  # noqa: PLC0415 - torch has imported it by now

    rank, world = arguments["rank"], arguments["world_size"]
    store = arguments.get("store")
    if store is not None:
        return _claim(rank, world, _address(store), own_store=True)
    url = urlsplit(arguments.get("init_method") or "env://")
    query = parse_qs(url.query)
    by_environment = environment if url.scheme == "env" else {}
    if rank == UNKNOWN:
        rank = query.get("rank", [by_environment.get("RANK")])[0]
    if world == UNKNOWN:
        world = query.get("world_size", [by_environment.get("WORLD_SIZE")])[0]
    if url.scheme == "env":
        place = _master(environment)
    elif url.scheme == "file":
        place = f"{url.netloc}{url.path}"
    else:
        place = f"{url.hostname}:{url.port}"  # and no password, should there be one
    return _claim(rank, world, place, own_store=False)


def _claim(rank: Any, world: Any, store: str, *, own_store: bool) -> dict[str, Any]:
    numbers = {"rank": _number(rank), "world_size": _number(world)}
    return {**numbers, "store": store[:LONGEST], "own_store": own_store}


def _number(value: object) -> int:
    """torch itself refuses what is no number; that is for it to say."""
    text = str(value)
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else UNKNOWN


def _master(environment: Mapping[str, str]) -> str:
    host, port = environment.get("MASTER_ADDR"), environment.get("MASTER_PORT")
    return f"{host}:{port}"[:LONGEST] if host and port else ""


def _address(store: Any) -> str:
    """Of the TCPStore or FileStore below all prefixes, which torch does not tell; other stores
    have none."""
    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    host, port = getattr(store, "host", None), getattr(store, "port", None)
    if host and port:
        return f"{host}:{port}"
    path = getattr(store, "path", None)
    return os.path.abspath(path) if isinstance(path, str) and path else ""


def device(torch: Any, asked: Any) -> str:
    """The GPU this rank is on, by an identity that CUDA_VISIBLE_DEVICES does not change; never
    the first to touch CUDA, which takes memory and forbids a later fork."""
    if not torch.cuda.is_initialized():
        return ""
    index = getattr(asked, "index", None)
    with contextlib.suppress(Exception):  # a broken driver must not cost the rest of the claim
        index = torch.cuda.current_device() if index is None else index
        return str(getattr(torch.cuda.get_device_properties(index), "uuid", ""))
    return ""

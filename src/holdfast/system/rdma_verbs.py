"""Open RDMA cards as NCCL does: the device node by this user, then the card by libibverbs.

Functions and layouts: linux-rdma/rdma-core libibverbs/verbs.h. The library waits five seconds for a
device node that is missing, so it is asked only about cards whose node this user can open; a card
that hangs keeps its own child, and is named.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from holdfast.analysis.machine import RdmaCard, Unread
from holdfast.analysis.machine.rdma import NO_ANSWER, NO_DRIVER, NO_LIBRARY
from holdfast.system import deadline

LIBRARIES = ("libibverbs.so", "libibverbs.so.1")
"""in NCCL's order (src/misc/ibvsymbols.cc); a file of NCCL_IBVERBS_LIB comes before them"""
SECONDS = 1.2
"""for all cards: the reader itself has two"""
MOST_PORTS = 8


class PortAttributes(ctypes.Structure):
    """struct ibv_port_attr, as far as it is read; newer libraries write more, older ones less."""

    _fields_ = (
        ("state", ctypes.c_int),
        ("max_mtu", ctypes.c_int),
        ("active_mtu", ctypes.c_int),
        ("rest", ctypes.c_uint8 * 244),
    )


class _Answer(msgspec.Struct, array_like=True):
    error: str = ""
    active_mtu: dict[int, int] = {}


def open_error(uverbs: str, root: str = "/") -> str:
    """errno's name when this user cannot open the device node; '' when it can."""
    if not uverbs:
        return "ENOENT"
    try:
        os.close(os.open(os.path.join(root, uverbs.lstrip("/")), os.O_RDWR | os.O_CLOEXEC))
    except OSError as refusal:
        return errno.errorcode.get(refusal.errno or 0, str(refusal.errno))
    return ""


def opened(cards: Iterable[RdmaCard], libraries: Iterable[str] = LIBRARIES) -> list[RdmaCard]:
    """These cards with what libibverbs made of them."""
    every = list(cards)
    wanted = [card.name for card in every if not card.open_error]
    answers = _ask(wanted, tuple(libraries)) if wanted else {}
    return [
        msgspec.structs.replace(card, verbs_error=found.error, active_mtu=found.active_mtu)
        if (found := answers.get(card.name)) is not None
        else card
        for card in every
    ]


def _ask(names: list[str], libraries: tuple[str, ...]) -> dict[str, _Answer]:
    """In a child: loading the library and its drivers may hang as well."""

    def question() -> bytes:
        _silence()
        return msgspec.msgpack.encode(_each(names, libraries))

    answer = deadline.ask({"verbs": question}, seconds=SECONDS)["verbs"]
    if isinstance(answer, Unread):
        return dict.fromkeys(names, _Answer(NO_ANSWER))
    return msgspec.msgpack.decode(answer, type=dict[str, _Answer])


def _silence() -> None:
    """libibverbs prints warnings about drivers that it cannot load."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    os.close(nowhere)


def _each(names: list[str], libraries: tuple[str, ...]) -> dict[str, _Answer]:
    library = _load(libraries)
    if library is None:
        return dict.fromkeys(names, _Answer(NO_LIBRARY))
    devices = _devices(library)
    questions = {name: _question(library, devices[name]) for name in names if name in devices}
    answers = deadline.ask(questions, seconds=SECONDS * 0.8)
    return {
        name: _Answer(NO_DRIVER)
        if name not in answers
        else _Answer(NO_ANSWER)
        if isinstance(raw := answers[name], Unread)
        else msgspec.msgpack.decode(raw, type=_Answer)
        for name in names
    }


def _question(library: Any, device: int) -> deadline.Question:
    return lambda: msgspec.msgpack.encode(_one(library, device))


def _load(libraries: Iterable[str]) -> Any:
    for name in libraries:
        with contextlib.suppress(OSError):
            library = ctypes.CDLL(name, use_errno=True)
            library.ibv_get_device_list.restype = ctypes.POINTER(ctypes.c_void_p)
            library.ibv_get_device_name.restype = ctypes.c_char_p
            library.ibv_get_device_name.argtypes = (ctypes.c_void_p,)
            library.ibv_open_device.restype = ctypes.c_void_p
            library.ibv_open_device.argtypes = (ctypes.c_void_p,)
            library.ibv_close_device.argtypes = (ctypes.c_void_p,)
            library.ibv_query_port.argtypes = (ctypes.c_void_p, ctypes.c_uint8, ctypes.c_void_p)
            return library
    return None


def _devices(library: Any) -> dict[str, int]:
    """Those that it has a driver for; it returns NULL (ENOSYS) where the kernel has no RDMA."""
    count = ctypes.c_int()
    listed = library.ibv_get_device_list(ctypes.byref(count))
    if not listed:
        return {}
    found = [listed[n] for n in range(count.value)]
    return {library.ibv_get_device_name(each).decode(errors="replace"): each for each in found}


def _one(library: Any, device: int) -> _Answer:
    context = library.ibv_open_device(device)
    if not context:
        return _Answer(errno.errorcode.get(ctypes.get_errno(), "EIO"))
    answer = _Answer(active_mtu=dict(_mtus(library, context)))
    library.ibv_close_device(context)
    return answer


def _mtus(library: Any, context: int) -> Iterator[tuple[int, int]]:
    for number in range(1, MOST_PORTS + 1):
        port = PortAttributes()
        if library.ibv_query_port(context, number, ctypes.byref(port)) != 0:
            return
        if 1 <= port.active_mtu <= 5:  # IBV_MTU_256 to IBV_MTU_4096
            yield number, 128 << port.active_mtu

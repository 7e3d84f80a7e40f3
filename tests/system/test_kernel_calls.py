"""The same with Python's own function, and without it, as in a Python built long ago."""

from __future__ import annotations

import os
import signal
import subprocess

import pytest

from holdfast.system import kernel_calls

OFFERED = ((os, "memfd_create"), (os, "pidfd_open"), (signal, "pidfd_send_signal"))


@pytest.fixture(params=["offered", "not offered"], autouse=True)
def python(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "not offered":
        for module, name in OFFERED:
            monkeypatch.delattr(module, name)


def test_a_file_in_memory_keeps_its_size_once_sealed() -> None:
    descriptor = kernel_calls.memory_file("holdfast-test", sealable=True)
    try:
        os.ftruncate(descriptor, 4096)
        kernel_calls.seal_size(descriptor)
        assert os.pwrite(descriptor, b"kept", 0) == 4
        for size in (0, 8192):
            with pytest.raises(PermissionError):
                os.ftruncate(descriptor, size)
        assert "memfd:holdfast-test" in os.readlink(f"/proc/self/fd/{descriptor}")
        assert not os.get_inheritable(descriptor)
    finally:
        os.close(descriptor)


def test_a_process_is_signalled_by_its_handle() -> None:
    with subprocess.Popen(["sleep", "600"]) as child:
        handle = kernel_calls.pidfd_open(child.pid)
        try:
            kernel_calls.pidfd_send_signal(handle, signal.SIGTERM)
            ended = os.waitid(kernel_calls.P_PIDFD, handle, os.WEXITED | os.WNOWAIT)
        finally:
            os.close(handle)
        assert ended is not None
        assert (ended.si_pid, ended.si_status) == (child.pid, signal.SIGTERM)


def test_the_kernels_refusal_is_an_error_with_its_number() -> None:
    with pytest.raises(ProcessLookupError):
        kernel_calls.pidfd_open(1 << 22)

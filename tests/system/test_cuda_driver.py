from __future__ import annotations

import ctypes

import pytest

from holdfast.system.cuda_driver import CudaDriver, CudaFailure, loaded_library
from tests.fakes.cuda import UUID_TEXT, FakeCuda, driver

EVERY_CALL = [
    "cuDriverGetVersion",
    "cuInit",
    "cuDeviceGet",
    "cuDeviceGetUuid",
    "cuDeviceGetPCIBusId",
    "cuDevicePrimaryCtxRetain",
    "cuCtxSetCurrent",
    "cuMemAlloc_v2",
    "cuMemcpyHtoD_v2",
    "cuMemcpyDtoH_v2",
    "cuDevicePrimaryCtxRelease_v2",
]


def go_through(cuda: CudaDriver) -> None:
    cuda.version()
    cuda.initialise()
    device = cuda.first_device()
    cuda.open_context(device)
    cuda.copy_there_and_back(cuda.allocate())
    cuda.close_context(device)


def test_a_gpu_that_works_is_used_and_left() -> None:
    library = FakeCuda()
    cuda = CudaDriver(load=lambda _name: library)
    assert cuda.version() == "13.0"
    library.called.clear()
    go_through(cuda)
    assert library.called == EVERY_CALL
    device = cuda.first_device()
    assert (device.uuid, device.bus_id) == (UUID_TEXT, "0000:3D:00.0")


@pytest.mark.parametrize("call", EVERY_CALL)
def test_each_call_that_fails_is_told_with_cudas_name(call: str) -> None:
    with pytest.raises(CudaFailure) as failure:
        go_through(driver(failing={call: 999}))
    assert (failure.value.code, failure.value.name) == (999, "CUDA_ERROR_UNKNOWN")


def test_an_error_newer_than_the_library_is_told_by_its_number() -> None:
    with pytest.raises(CudaFailure, match="CUDA error 4711"):
        driver(failing={"cuInit": 4711}).initialise()


def test_a_library_too_old_for_a_call() -> None:
    with pytest.raises(CudaFailure, match=r"libcuda\.so\.1 has no cuDeviceGetUuid"):
        driver(lacking=["cuDeviceGetUuid"]).first_device()


def test_data_that_comes_back_wrong_is_a_failure() -> None:
    cuda = driver(spoils=True)
    with pytest.raises(CudaFailure, match="differs from what was written") as failure:
        cuda.copy_there_and_back(cuda.allocate())
    assert failure.value.code == -1


def test_the_loaded_library_is_the_one_of_this_process() -> None:
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        assert loaded_library() == ""
        with pytest.raises(OSError, match="libcuda"):
            CudaDriver()
    else:
        assert "/libcuda.so" in loaded_library()

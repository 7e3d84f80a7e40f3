"""Read by the interpreter at its start, because this folder is on PYTHONPATH."""

from tests.fakes.nvml.install import replace_library

replace_library()

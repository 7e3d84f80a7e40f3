"""The tests of a fault: the file of its name, in the folder of its family."""

from __future__ import annotations

import importlib
from types import ModuleType

from holdfast.catalogue import family
from holdfast.fault import Fault


def module_of_tests(fault: Fault) -> ModuleType:
    name = fault.slug.replace("-", "_")
    return importlib.import_module(f"tests.faults.{family(fault).folder}.test_{name}")

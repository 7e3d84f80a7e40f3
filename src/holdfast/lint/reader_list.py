"""The reader of each language, imported when the first such text comes.

A tree of Python needs neither a shell grammar nor a YAML parser, and those are not small.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable

from holdfast.analysis.source.source import Source
from holdfast.lint.detect_language import Language

Reader = Callable[..., Source]
"""read(text, file, *, first_line=1, indent=0, complete=True); never raises"""

HOMES = {
    Language.SHELL: ("shell", "read"),
    Language.DOCKERFILE: ("dockerfile", "read"),
    Language.COMPOSE: ("compose", "read"),
    Language.YAML: ("yaml_file", "read"),
    Language.ENV_FILE: ("env_file", "read"),
    Language.NCCL_CONF: ("env_file", "read_nccl_conf"),
    Language.HOSTFILE: ("hostfile", "read"),
}


@functools.cache
def reader(language: Language) -> Reader:
    module, function = HOMES[language]
    found: Reader = getattr(importlib.import_module(f"holdfast.lint.readers.{module}"), function)
    return found

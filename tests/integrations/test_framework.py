from __future__ import annotations

import subprocess
import sys

import pytest

import holdfast
from holdfast.errors import ConfigError
from holdfast.integrations import framework


def test_a_framework_that_is_missing_is_said_in_one_sentence() -> None:
    with pytest.raises(ImportError, match="needs no-such-thing, which is not installed") as missing:
        framework.require("no-such-thing", "1.0", "2.0")
    assert isinstance(missing.value, holdfast.ConfigError)
    assert missing.value.hint.startswith("pip install 'no-such-thing>=1.0'")


def test_a_framework_that_is_too_old_is_named_with_both_versions() -> None:
    with pytest.raises(ConfigError, match=r"needs msgspec >= 99\.0, found 0\."):
        framework.require("msgspec", "99.0", "99.1")


def test_a_wrong_option_is_said_at_once() -> None:
    assert framework.checkpoint_options({"every": "5m", "keep": 2}) == {"every": "5m", "keep": 2}
    with pytest.raises(
        ConfigError, match=r"unknown option 'evry' \(choose from every, every_steps"
    ):
        framework.checkpoint_options({"evry": "5m"})


def test_import_holdfast_imports_no_framework() -> None:
    script = (
        "import holdfast, holdfast.integrations, sys\n"
        "print({'transformers', 'lightning', 'accelerate', 'torch'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout == "set()\n", done.stderr

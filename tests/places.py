"""Where things lie that tests of several rooms use."""

from __future__ import annotations

from pathlib import Path

TESTS = Path(__file__).parent
ROOT = TESTS.parent
SOURCE = ROOT / "src" / "holdfast"
TARGETS = TESTS / "targets"
WRECKS = TESTS / "wrecks"

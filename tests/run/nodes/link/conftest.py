"""What asyncio complains about (an exception nobody looked at) would be on the user's screen."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def asyncio_has_nothing_to_complain_about(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    yield
    complaints = [record for record in caplog.records if record.name == "asyncio"]
    assert not complaints, [record.getMessage() for record in complaints]

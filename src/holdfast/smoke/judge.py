"""Which stage failed, which rank is behind it, and why. Pure: records in, `Smoke` out.

The culprit is the rank that did not come, not those that waited for it.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence

from holdfast import wording
from holdfast.facts import Reach, Smoke, SmokeRank, SmokeRung, SmokeStage, Unread
from holdfast.smoke.errno_words import ERRNOS, translate
from holdfast.smoke.roll import Roll, RollCall
from holdfast.smoke.stages import STAGES, Record

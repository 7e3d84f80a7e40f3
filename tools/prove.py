"""`make proof`: every property at full count; the dated result goes into proof/."""

from __future__ import annotations

import datetime as dt
import os
import platform
import re
import subprocess
import sys
import time
from pathlib import Path

FOLDER = Path(__file__).parent.parent / "proof"
EXAMPLES = 5000


def main() -> int:
    environment = {**os.environ, "PROPERTY_PROFILE": "proof"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider",
               "--hypothesis-show-statistics", "-m", "not lab"]  # fmt: skip
    began = time.monotonic()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    minutes = (time.monotonic() - began) / 60
    properties = re.findall(r"^(tests/\S+::\S+):$", done.stdout, flags=re.MULTILINE)
    today = dt.datetime.now(tz=dt.timezone.utc).date().isoformat()
    last = next((line for line in reversed(done.stdout.splitlines()) if line.strip()), "")
    machine = f"Python {platform.python_version()}, {platform.system()} {platform.release()}"
    report = [
        f"# Proof of {today}",
        "",
        f"{machine}; up to {EXAMPLES} examples per property, {minutes:.1f} minutes.",
        "",
        f"Result: {last.strip('= ')}",
        "",
        *(f"- {name}" for name in sorted(properties)),
        "",
    ]
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{today}.md").write_text("\n".join(report))
    print("\n".join(report))
    if done.returncode:
        print(done.stdout, done.stderr, sep="\n", file=sys.stderr)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())

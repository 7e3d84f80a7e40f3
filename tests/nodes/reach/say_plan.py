"""What a process makes of its environment, as one line of JSON; tests start it by srun."""

from __future__ import annotations

import dataclasses
import json
import os
import socket

from holdfast.nodes.reach.environment import Alone, MeetingOptions, plan_meeting
from holdfast.nodes.reach.meeting import role

if __name__ == "__main__":
    plan = plan_meeting(MeetingOptions(), os.environ)
    said: dict[str, object] = {"nodename": os.uname().nodename}
    if isinstance(plan, Alone):
        said["alone"] = plan.hint
    else:
        resolved = socket.gethostbyname_ex(plan.host)[2]
        said |= dataclasses.asdict(plan)
        said["role"] = role(plan, resolved=resolved, own=[])[0].name
        said["resolved"] = resolved
    print(json.dumps(said), flush=True)

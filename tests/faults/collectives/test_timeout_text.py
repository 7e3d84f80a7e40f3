from __future__ import annotations

from tests.analysis.source.made_sources import python
from tests.faults.table import flags, leaves, lint_table

test_lint = lint_table(
    "timeout-text",
    flags(
        "warning",
        python("""
            import torch.distributed as dist
            def average(x):
                try:
                    dist.all_reduce(x)
                except RuntimeError as error:
                    text = str(error).lower()
                    if "timeout" in text:
                        raise SystemExit(3)
                    raise
        """),
        lines=[7],
        saying=["the test for 'timeout'", "Timed out waiting", "re.search"],
        not_saying=["never true"],
    ),
    flags(  # the backend is known, and its text has another capital
        "error",
        python("""
            import torch.distributed as dist
            dist.init_process_group("gloo")
            try:
                dist.recv(x, src=0)
            except (RuntimeError, ValueError) as e:
                if e.args[0].find("timed out") >= 0:
                    report()
                raise
        """),
        lines=[6],
        saying=["'timed out' misses 'Timed out waiting", "never true"],
    ),
    flags(
        "warning",
        python("""
            import re
            from torch import distributed as dist
            class Ring:
                def start(self):
                    try:
                        dist.init_process_group(backend=self.backend)
                    except Exception as problem:
                        if not re.search(r"timeout|deadline", f"{problem}", flags=re.IGNORECASE):
                            raise
        """),
        lines=[8],
        saying=["The client socket has timed out"],
    ),
    flags(  # one call deep
        "warning",
        python("""
            import torch.distributed as dist
            def sync():
                dist.barrier()
            try:
                sync()
            except RuntimeError as e:
                assert "Timeout" in repr(e)
        """),
        lines=[7],
        saying=["'Timeout'"],
    ),
    flags(
        "error",
        python("""
            import torch.distributed as dist
            from datetime import timedelta
            dist.init_process_group("gloo")
            work = dist.all_reduce(x, async_op=True)
            try:
                work.wait(timedelta(seconds=3))
            except RuntimeError as e:
                late = any(word in str(e) for word in ("timeout", "TIMEOUT"))
        """),
        lines=[8],
        saying=["Operation timed out!"],
    ),
    flags(  # the download may say it
        "warning",
        python("""
            import torch.distributed as dist
            dist.init_process_group("gloo")
            try:
                data = download(url)
                dist.barrier()
            except Exception as e:
                if "timeout" in str(e):
                    raise
        """),
        lines=[7],
        saying=["Timed out waiting"],
        not_saying=["never true"],
    ),
    flags(
        "warning",
        python("""
            import torch.distributed as dist
            try:
                dist.broadcast(x, 0)
            except TimeoutError:
                print("late")
        """),
        lines=[4],
        saying=["except TimeoutError catches nothing here", "except RuntimeError"],
    ),
    leaves(  # every wording is found
        python("""
            import re
            import torch.distributed as dist
            try:
                dist.barrier()
            except RuntimeError as e:
                if "timed out" in str(e).lower():
                    raise
                if re.search("tim(ed|e|ing) ?out", str(e), re.I):
                    raise
        """)
    ),
    leaves(
        python("""
            import torch.distributed as dist
            try:
                dist.barrier()
            except RuntimeError as e:
                if any(word in str(e).lower() for word in ("timeout", "timed out")):
                    raise
        """)
    ),
    leaves(  # the store does say 'timeout'
        python("""
            import torch.distributed as dist
            store = dist.TCPStore("node-a", 29400)
            try:
                store.wait(["ready"])
            except RuntimeError as e:
                if "timeout" in str(e):
                    raise
        """)
    ),
    leaves(  # and nothing of ours is tried, or asked for
        python("""
            import torch.distributed as dist
            try:
                requests.get(url)
            except Exception as e:
                if "timeout" in str(e):
                    raise
            try:
                dist.barrier()
            except RuntimeError as e:
                if "out of memory" in str(e):
                    raise
            try:
                item = queue.get(timeout=3)
                dist.barrier()
            except TimeoutError:
                pass
            if "timeout" in settings:
                dist.barrier()
        """)
    ),
)

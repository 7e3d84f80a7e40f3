from __future__ import annotations

from tests.analysis.source.made_sources import python
from tests.faults.table import flags, leaves, lint_table

test_lint = lint_table(
    "timeout-retry",
    flags(
        "error",
        python("""
            import torch.distributed as dist
            try:
                dist.broadcast(x, src=0)
            except RuntimeError:
                print("once more")
                dist.broadcast(x, src=0)
        """),
        lines=[6],
        saying=["after dist.broadcast failed, dist.broadcast is called again"],
    ),
    leaves(  # another way to do it, for builds that lack the first
        python("""
            import torch.distributed as dist
            try:
                dist.all_gather_into_tensor(out, x)
            except RuntimeError:
                dist.all_gather(parts, x)
        """)
    ),
    flags(
        "error",
        python("""
            import time
            import torch.distributed as dist
            def average(x):
                for attempt in range(3):
                    try:
                        dist.all_reduce(x)
                        return x
                    except RuntimeError as e:
                        if attempt == 2:
                            raise
                        time.sleep(2 ** attempt)
        """),
        lines=[6],
        saying=["dist.all_reduce is called again after it failed", "broken", "checkpoint"],
    ),
    flags(
        "error",
        python("""
            from torch.distributed import barrier, DistBackendError
            done = False
            while not done:
                try:
                    barrier()
                    done = True
                except (DistBackendError, OSError):
                    print("once more")
        """),
        lines=[5],
        saying=["barrier is called again"],
    ),
    flags(  # one call deep, and `else` leaves the loop
        "error",
        python("""
            import torch.distributed as dist
            class Trainer:
                def sync(self):
                    dist.broadcast(self.x, 0)
                def step(self):
                    while True:
                        try:
                            self.sync()
                        except Exception:
                            continue
                        else:
                            break
        """),
        lines=[8],
        saying=["dist.broadcast (in sync)"],
    ),
    flags(
        "error",
        python("""
            import torch.distributed as dist
            def gather(x, left=3):
                try:
                    dist.all_gather(parts, x)
                except RuntimeError:
                    if left == 0:
                        raise
                    return gather(x, left - 1)
        """),
        lines=[8],
        saying=["gather is called again"],
    ),
    flags(
        "error",
        python("""
            import tenacity
            import backoff
            import torch.distributed as dist
            @tenacity.retry(stop=tenacity.stop_after_attempt(3))
            def mean(x):
                dist.all_reduce(x)
            @backoff.on_exception(backoff.expo, RuntimeError)
            def meet():
                dist.barrier()
            def third(x):
                for attempt in tenacity.Retrying():
                    with attempt:
                        dist.all_reduce(x)
        """),
        lines=[4, 7, 11],
        saying=["tenacity.retry calls dist.all_reduce again"],
    ),
    flags(
        "warning",
        python("""
            import torch.distributed as dist
            from mine import with_retries
            with_retries(lambda: dist.barrier(), times=3)
        """),
        lines=[3],
        saying=["with_retries calls dist.barrier again"],
    ),
    # --- continued as if nothing had happened ---
    flags(
        "warning",
        python("""
            import logging
            import torch.distributed as dist
            log = logging.getLogger()
            def mean(x):
                try:
                    dist.all_reduce(x)
                except RuntimeError as e:
                    log.warning("all_reduce failed: %s", e)
                return x
        """),
        lines=[7],
        saying=["ignores a failure of", "`raise`"],
    ),
    flags(
        "warning",
        python("""
            import torch.distributed as dist
            for batch in loader:
                try:
                    loss = model(batch)
                    dist.all_reduce(loss)
                except Exception:
                    continue
        """),
        lines=[6],
        saying=["dist.all_reduce"],
    ),
    flags(  # what follows an excerpt is not known
        "warning",
        python(
            """
            import torch.distributed as dist
            try:
                dist.reduce(x, 0)
            except RuntimeError as e:
                if "timed out" in str(e):
                    print("late")
                else:
                    print(e)
            """,
            complete=False,
        ),
        lines=[4],
        saying=["dist.reduce"],
    ),
    leaves(  # what comes before the group may be tried again, and so may the store
        python("""
            import time
            import torch.distributed as dist
            for attempt in range(5):
                try:
                    dist.init_process_group("gloo")
                    break
                except RuntimeError:
                    time.sleep(5)
            store = dist.TCPStore("node-a", 29400)
            while True:
                try:
                    store.get("ready")
                    break
                except RuntimeError:
                    continue
        """)
    ),
    leaves(  # the group is formed again
        python("""
            import torch.distributed as dist
            def start():
                dist.init_process_group("nccl")
            def train():
                start()
                dist.barrier()
            def mean(x):
                for _ in range(3):
                    try:
                        dist.all_reduce(x)
                        return
                    except RuntimeError:
                        dist.destroy_process_group()
                        start()
            for attempt in range(3):
                try:
                    train()
                    break
                except RuntimeError:
                    print("from the last checkpoint")
        """)
    ),
    leaves(  # the failure is told on, or ends the process
        python(
            """
            import sys
            import torch.distributed as dist
            def mean(x):
                try:
                    dist.all_reduce(x)
                except RuntimeError:
                    return None
            def other(x):
                ok = True
                try:
                    dist.all_reduce(x)
                except RuntimeError:
                    ok = False
                return ok
            def third(x):
                while True:
                    try:
                        dist.all_reduce(x)
                        break
                    except RuntimeError as e:
                        print(e)
                        sys.exit(1)
            def leave():
                try:
                    dist.barrier()
                except Exception:
                    pass
                finally:
                    try:
                        dist.barrier()
                    except Exception:
                        pass
            def shutdown():
                try:
                    dist.barrier()
                except Exception:
                    pass
        """.replace("def leave", "def clean_up")
        )
    ),
    leaves(  # a batch that did not fit; a value that was wrong
        python("""
            import torch
            import torch.distributed as dist
            for batch in loader:
                try:
                    loss = model(batch)
                    dist.all_reduce(loss)
                except RuntimeError as e:
                    if "out of memory" not in str(e):
                        raise
                    torch.cuda.empty_cache()
            for batch in loader:
                try:
                    dist.all_reduce(model(batch))
                except ValueError:
                    continue
            while True:
                try:
                    dist.all_reduce(model(batch[:size]))
                    break
                except RuntimeError as e:
                    if "out of memory" in str(e):
                        size //= 2
                        continue
                    raise
        """)
    ),
    leaves(  # the last thing of a script
        python("""
            import torch.distributed as dist
            try:
                dist.barrier()
            except RuntimeError as e:
                print(e)
        """)
    ),
)

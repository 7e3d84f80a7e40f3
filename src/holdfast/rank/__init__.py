"""Inside a rank: what it says of itself, and the small library a script may call.

    delivery.py      how the hook gets into a rank: environment and command (launcher's side)
    shim.py          sets the parent-death signal, then becomes the rank
    site/            a sitecustomize that Python imports first; it starts the hook
    hook.py          the page, the crash file, last words; waits for torch to be imported
    own.py           this process's page, and one place to complain
    torch_import.py  tells when torch is imported, and never imports it
    torch_hooks.py   steps from the optimizers, the group and its timeout
    claim.py         what the rank says it is, told when it enters init_process_group
    steps.py         what counts as a step
    beat_thread.py   a thread whose silence means 'GIL held or stopped'
    worker_server.py torch's own server: the flight recorder, without the GIL
    last_words.py    the exception that ended the rank
    events.py        what it has to tell: saves, resumes, its first step
    first_step.py    did it begin anew? seen before the first step, for any script
    kernel.py        requests to the kernel that Python has no function for
    limit_watcher.py keeps the limits of a process that has no launcher
    init.py limit.py wait.py phase.py   the library: `holdfast.init` and so on

Only the standard library and a torch that the script itself imported; `init.py` alone imports
it. Nothing here may break a script: a failure is said once on stderr and training goes on.
"""

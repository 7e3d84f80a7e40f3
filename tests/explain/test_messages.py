"""What a message means, in the wording of the program that prints it, alone or among others."""

from __future__ import annotations

import pytest

from tests.explain.test_wordings import Said, explained

SCRIPT = (
    '  File "/job/prep.py", line 7\n    def load(:\n             ^\nSyntaxError: invalid syntax\n'
)

SCRIPTS = [
    Said("python-refuses-main", SCRIPT, "script-broken", None, "/job/prep.py:7"),
    Said("python-refuses-no-newline", SCRIPT.rstrip("\n"), "script-broken", None, "/job/prep.py:7"),
    Said("python-refuses-import",
         "[rank1]: Traceback (most recent call last):\n"
         '[rank1]:   File "/job/train.py", line 3, in <module>\n[rank1]:     import prep\n'
         '[rank1]:   File "/job/prep.py", line 9\n[rank1]:     x = 1\n'
         "[rank1]: IndentationError: unexpected indent", "script-broken", None, "/job/prep.py:9"),
    Said("eval-is-the-programs",
         'Traceback (most recent call last):\n  File "/job/train.py", line 3, in <module>\n'
         '    eval(text)\n  File "<string>", line 1\n    a b\n      ^\n'
         "SyntaxError: invalid syntax", "python-exception"),
    Said("bash", "launch.sh: line 4: syntax error near unexpected token `fi'", "script-broken",
         None, "launch.sh:4"),
    Said("dash", "job.sh: 12: Syntax error: end of file unexpected", "script-broken"),
    Said("line-ends", "/bin/bash^M: bad interpreter: No such file or directory", "script-broken"),
    Said("env-line-ends", "env: 'bash\\r': No such file or directory", "script-broken"),
    Said("slurm-line-ends", "sbatch: error: Batch script contains DOS line breaks (\\r\\n)\n"
         "sbatch: error: instead of expected UNIX line breaks (\\n).", "script-broken"),
]  # fmt: skip

GPUS = [
    Said("watchdog-names-the-rank",
         "RuntimeError: CUDA error: uncorrectable ECC error encountered\n\n"
         "[E ProcessGroupNCCL.cpp:916] [Rank 5] NCCL watchdog thread terminated with exception: "
         "CUDA error: uncorrectable ECC error encountered", "gpu-hardware", 5),
    Said("context-by-driver", "failed call to cuDevicePrimaryCtxRetain: CUDA_ERROR_OUT_OF_MEMORY: "
         "out of memory", "gpu-occupied"),
    Said("context-by-torch",
         'Traceback (most recent call last):\n  File "/job/train.py", line 8, in main\n'
         '    torch.cuda.set_device(3)\n  File "/v/site-packages/torch/cuda/__init__.py", line 567'
         ", in set_device\n    torch._C._cuda_setDevice(device)\n"
         "torch.AcceleratorError: CUDA error: out of memory", "gpu-occupied"),
    Said("first-count-full", "RuntimeError: Unexpected error from cudaGetDeviceCount(). Did you "
         "run some cuda functions before calling NumCudaDevices() that might have already set an "
         "error? Error 2: out of memory", "gpu-occupied"),
    Said("first-count-unknown", "RuntimeError: Unexpected error from cudaGetDeviceCount(). Did you "
         "run some cuda functions before calling NumCudaDevices() that might have already set an "
         "error? Error 999: unknown error", "driver-mismatch"),
    Said("kernel-stack", "torch.AcceleratorError: CUDA error: hardware stack error", "cuda-assert"),
    Said("kernel-registers", "torch.AcceleratorError: CUDA error: too many resources requested for "
         "launch", "cuda-assert"),
]  # fmt: skip

_WARN = "n1:101:202 [0] any.cc:100 NCCL WARN "

NCCL = [
    Said("application-too-new", f"{_WARN}NCCL library is too old. This application was compiled "
         "with NCCL version 2.32.3, but is running with NCCL library version 2.28.9.",
         "version-skew", None, "built for NCCL 2.32.3 loaded NCCL 2.28.9"),
    Said("ras-other-version", f"{_WARN}NCCL version mismatch with remote peer 192.0.2.7<4000> "
         "(local: 2.32.3, remote 2.28.9)", "version-skew"),
    Said("comm-id", f"{_WARN}Invalid NCCL_COMM_ID, please use format: <ipv4>:<port> or "
         "[<ipv6>]:<port> or <hostname>:<port>", "rendezvous-config"),
    Said("host-memory", f"{_WARN}Failed to malloc 8388608 bytes", "host-oom"),
    Said("pinned-memory", f"{_WARN}Failed to CUDA host alloc 8388608 bytes", "host-oom"),
    Said("old-driver", f"{_WARN}CUDA Driver version found is 11040. Minimum requirement is 11080",
         "driver-mismatch"),
    Said("no-nvml", f"{_WARN}Failed to open libnvidia-ml.so.1: libnvidia-ml.so.1: cannot open "
         "shared object file: No such file or directory", "driver-mismatch"),
    Said("cards-failed", f"{_WARN}NET/IB: Fatal error. Detected 2 failed devices out of 2 devices "
         "on the send communicator (comm=0x7f). No support for more than a single failed device.",
         "ib-misconfig", None, "2 of 2 RDMA cards"),
    Said("card-refused", f"{_WARN}ibv_post_send() failed with error Cannot allocate memory, Bad WR "
         "0x7f, First WR 0x7f", "ib-misconfig", None, "Cannot allocate memory"),
    Said("cards-differ", f"{_WARN}Detected mixed local Net device counts across ranks (min 1, max "
         "2). Set NCCL_IGNORE_NET_MISMATCH=1 to continue.", "ib-misconfig", None, "found 2"),
    Said("nvls-same-gpu", f'{_WARN}NCCL_NVLS_ENABLE has been set to "1" and communicator has '
         "multiple ranks using the same NVML device.", "duplicate-gpu"),
    Said("device", f"{_WARN}Invalid device 4 (totalnDev=4)", "device-ordinal"),
]  # fmt: skip

LANGUAGES = [
    Said("bash-german", "run.sh: Zeile 12:  1011 Getötet                 python train.py",
         "rank-killed"),
    Said("bash-german-core", "run.sh: Zeile 9:  1011 Speicherzugriffsfehler  (Speicherabzug "
         "geschrieben) python train.py", "native-crash"),
    Said("bash-chinese", "run.sh: 行 9:  1011 段错误               (核心已转储) python train.py",
         "native-crash"),
    Said("prompt-chinese", "step 3\n已杀死\n", "rank-killed"),
    Said("prompt-chinese-core", "段错误 (核心已转储)", "native-crash"),
    Said("bus-french", "run.sh: ligne 4:  1011 Erreur du bus  (core dumped) python train.py",
         "shm-too-small"),
    Said("a-word-in-prose", "Ich habe ihn Getötet genannt.\nAbandon\n已放弃\n", ""),
    Said("port-german", "OSError: [Errno 98] Die Adresse wird bereits verwendet", "port-in-use"),
    Said("disk-chinese", "OSError: [Errno 28] 设备上没有空间: '/ckpt/a.pt'", "disk-full"),
]  # fmt: skip

LAUNCHERS = [
    Said("mpirun-blotted", "mpirun noticed that process rank 6 with PID **** on node <host> exited "
         "on signal 9 (Killed).", "rank-killed", 6),
    Said("deepspeed-slot", "ValueError: No slot '9' specified on host 'gpu4'", "launcher-config"),
    Said("deepspeed-slot-typed", "No slot 9 specified on host gpu4", "launcher-config"),
    Said("ray-node", "ray.exceptions.NodeDiedError: the worker's node is gone", "node-lost"),
    Said("cut-between-words",  # at 80 characters, where a blank begins the next line
         "torch.distributed.DistNetworkError: The client socket has failed to connect to a\n"
         "ny network address of (192.0.2.7, 29500). The client socket has failed to connec\n"
         "t to 192.0.2.7:29500 (errno: 111 - Connection refused). The job cannot continue.\n"
         " Retrying was of no use\n", "master-not-listening"),
    Said("gdb-old", "Core was generated by `python t.py'.\nProgram terminated with signal 11, "
         "Segmentation fault.\n#0  0x00007f in foo (x=0x1) at foo.c:3", "native-crash"),
    Said("record-of-a-logger",
         "rank:  2 | 2026-11-16 10:00:00,123 CRITICAL | Traceback (most recent call last):\n"
         '  File "/job/train.py", line 8, in step\n    loss.backward()\n'
         "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 2 has a total capacity "
         "of 79.10 GiB of which 1.02 GiB is free.\n", "gpu-oom", 2),
    Said("lines-of-others-are-not-the-loggers",
         "[rank2]: Traceback (most recent call last):\n"
         "RuntimeError: CUDA error: uncorrectable ECC error encountered\n"
         '[rank2]:   File "/job/train.py", line 8, in step\n[rank2]:     x()\n'
         "[rank2]: KeyError: 'a'", "gpu-hardware"),
    Said("warning-alone",
         "[rank0]:[W1116 10:00:00.1 ProcessGroupNCCL.cpp:1538] Warning: WARNING: "
         "destroy_process_group() was not called before program exit, which can leak resources.",
         "group-not-destroyed"),
    Said("warning-of-a-healthy-run",
         "epoch 1 loss 0.31\nepoch 2 loss 0.22\nsaved model.pt to /job/out, took 3 s in all, "
         "1042 samples each second on 4 GPUs\n"
         "[rank0]:[W1116 10:00:00.1 ProcessGroupNCCL.cpp:1538] Warning: WARNING: "
         "destroy_process_group() was not called before program exit, which can leak resources.",
         ""),
]  # fmt: skip


@pytest.mark.parametrize(
    "said", [*SCRIPTS, *GPUS, *NCCL, *LANGUAGES, *LAUNCHERS], ids=lambda said: said.name
)
def test_what_a_message_means(said: Said) -> None:
    answers = explained(said.log)
    assert (answers[0].slug if answers else "") == said.slug
    culprit = answers[0].culprit if answers else None
    if said.rank is not None:
        assert culprit is not None
        assert culprit.rank == said.rank
    assert said.what in f"{answers[0].reason if answers else ''} {culprit and culprit.what}"

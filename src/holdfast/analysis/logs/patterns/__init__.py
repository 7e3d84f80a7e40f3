"""The log lines that several faults share: what torch, NCCL, launchers and the kernel print."""

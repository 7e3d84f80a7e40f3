"""`holdfast check --nccl-tests`: how to build and run NVIDIA's nccl-tests on this machine."""

"""The timeouts of torch, NCCL, launchers, frameworks and schedulers that apply to a Job."""

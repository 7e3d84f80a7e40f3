"""NCCL's RAS: its answer about a running job, and what that says of the job's ranks. Pure."""

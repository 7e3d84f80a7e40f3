"""A running job at one moment: ranks, heartbeats, exits, CPU, checkpoints."""

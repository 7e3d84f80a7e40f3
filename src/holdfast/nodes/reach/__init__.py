"""Which machines belong to a job, and how to get to them: ssh, Slurm, the same command on each."""

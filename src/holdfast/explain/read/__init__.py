"""Files -> what is in them: logs, dumps, stacks, archives, run folders. Bounded memory."""

"""holdfast on several machines: reach them, prove the token, talk, compare clocks, notice loss."""

"""What a checkpoint says of itself, and how often to save one."""

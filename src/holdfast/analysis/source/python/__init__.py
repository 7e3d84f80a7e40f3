"""What the names and lines of a Python script mean: values, loops, handlers, durations."""

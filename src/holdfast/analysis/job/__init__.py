"""Questions about a running job: which rank stalls it or has not joined, whether it lacks CPU."""

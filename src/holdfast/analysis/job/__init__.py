"""Questions about a running job: who stalls it, who has not joined, whether it lacks CPU."""

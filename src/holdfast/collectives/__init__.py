"""Who is where: what recorders and stacks say about a job's collectives. All pure."""

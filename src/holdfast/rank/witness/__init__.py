"""Inside a rank of a drill: what each step did, the gate at which a fault comes, guarded writes."""

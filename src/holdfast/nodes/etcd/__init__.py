"""A real etcd as the place where the nodes of a run find their coordinator, and elect the next."""

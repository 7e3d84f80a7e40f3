"""Starting and ending the ranks: torch elastic agent, store, environment, output, signals."""

"""`holdfast run --hosts a,b …`: one launcher on every host, started, shown and ended over ssh."""

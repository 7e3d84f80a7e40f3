"""`holdfast run --hosts`: one launcher on every host, started, shown and ended over ssh."""

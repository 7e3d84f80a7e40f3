"""One reader for each language a launch is written in: text -> `Source`. Pure."""

"""`holdfast env`: an environment and a command -> every setting and every timeout in force."""

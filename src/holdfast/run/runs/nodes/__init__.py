"""The runs of other machines, over ssh: listed, ended, packed."""

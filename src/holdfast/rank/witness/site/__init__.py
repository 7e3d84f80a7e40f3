"""A folder for PYTHONPATH in a drill; a package only so that it is installed with the others."""

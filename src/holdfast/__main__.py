"""`python -m holdfast` is the same as the `holdfast` command."""

import sys

from holdfast.cli.main import main

sys.exit(main())

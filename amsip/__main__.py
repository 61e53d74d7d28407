"""`python -m amsip` is the command `amsip`."""

import sys

from amsip.cli import main

if __name__ == "__main__":
    sys.exit(main())

"""`python -m memstore.cli`, which is `memstore`."""

import sys

from memstore.cli import main

if __name__ == "__main__":
    sys.exit(main())

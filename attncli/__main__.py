"""`python -m attncli`: the same as the command `attn`."""

import sys

from attncli.cli import main

if __name__ == "__main__":
    sys.exit(main())

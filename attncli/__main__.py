"""`python -m attncli`: the same as the command `attn`."""

import sys

from attncli.cli import main
from attncli.errors import ExitCode

if __name__ == "__main__":
    code = main()
    if code == ExitCode.INTERRUPTED:
        # CPython remembers an interrupt inside an exec of text (which is how dataclasses are made) and would end
        # `python -m` by the signal in place of this code; the next exec makes it forget.
        exec("pass")
    sys.exit(code)

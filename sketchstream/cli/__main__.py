"""`python -m sketchstream.cli` is the command `sketchstream`.

In: the arguments of the process. Out: its exit code. Touches: what `main` touches.
"""

import sys

from sketchstream.cli import main

if __name__ == "__main__":
    sys.exit(main())

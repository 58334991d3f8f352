"""`python -m dmlc` is the `dmlc` command."""

import sys
from pathlib import Path

# Python searches the folder that it is started in; the command does not, unless dmlc lies there.
if not sys.flags.safe_path and Path(sys.path[0]).resolve() != Path(__file__).resolve().parents[1]:
    del sys.path[0]

from dmlc.cli import main

main()

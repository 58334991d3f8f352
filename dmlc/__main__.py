"""`python -m dmlc` is the `dmlc` command."""

from dmlc.cli import main

main()

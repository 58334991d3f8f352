"""The project on machines that have nothing yet: bare Debians in folders, each with a clean clone.

`bare_root` makes such a root and runs a command in it; `python3 -m tests.roots`, which `make roots`
runs, does both commands of the README in one root for each release. Nothing here needs more than
Python's own library, debootstrap, git, and root.
"""

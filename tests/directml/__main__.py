"""`python -m tests.directml`: DirectML's answers beside what dmlc computes, operator by operator.

Prints a table for each device: the calls of an operator, how many are equal, and how many differ by
which section `differs` of the operator. Exits with 1 where a call differs by none.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter

from tests.directml.answers import Tally, list_names, read_answers, tally

DEVICES = ("reference", "opencl", "vulkan")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("operators", nargs="*", help="parts of operators' names; all by default")
    parser.add_argument("--device", action="append", help="may repeat; all three by default")
    given = parser.parse_args()
    chosen = [
        name
        for name in list_names()
        if not given.operators or any(part in name for part in given.operators)
    ]
    unexplained = 0
    for device in given.device or DEVICES:
        print(f"{device:50} {'calls':>6} {'equal':>6}  differing by")
        total = Tally()
        rules: Counter[str] = Counter()
        for name in chosen:
            found = tally(read_answers(name), device)
            print(show_row(name, found), flush=True)
            for line in found.unexplained:
                print(f"    unexplained, call {line}")
            total.calls += found.calls
            total.equal += found.equal
            total.unsupported += found.unsupported
            total.unexplained += found.unexplained
            rules.update({f"{name}: {title}": n for title, n in found.by_rule.items()})
        other = total.equal + total.unsupported + len(total.unexplained)
        print(
            f"{total.equal} of {total.calls} calls are equal on {device}, "
            f"{total.calls - other} differ by {len(rules)} rules, "
            f"{total.unsupported} unsupported, {len(total.unexplained)} unexplained\n"
        )
        unexplained += len(total.unexplained)
    return 1 if unexplained else 0


def show_row(name: str, found: Tally) -> str:
    rules = ", ".join(
        f"{title}: {calls} ({found.elements[title]} elements)"
        for title, calls in found.by_rule.items()
    )
    return f"{name:50} {found.calls:>6} {found.equal:>6}  {rules}".rstrip()


if __name__ == "__main__":
    sys.exit(main())

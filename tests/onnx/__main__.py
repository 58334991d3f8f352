"""`python -m tests.onnx`: all node tests of ONNX on a device, against the list of excluded ones."""

from __future__ import annotations

import argparse
import sys

from tests.onnx.node_cases import (
    PASSED,
    TOTAL,
    collect,
    compare_with_list,
    list_modules,
    read_excluded,
    try_cases,
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="opencl")
    parser.add_argument("--part", default="1/1", metavar="K/N", help="the K-th of N parts")
    arguments = parser.parse_args()
    cases = collect(list_modules())
    number, count = map(int, arguments.part.split("/"))
    taken = {name: cases[name] for name in list(cases)[number - 1 :: count]}
    passed, failed = try_cases(taken, arguments.device)
    wrong = compare_with_list(passed, failed, arguments.device)
    if count == 1:
        wrong += [f"{n} is listed, and is no test" for n in read_excluded() if n not in cases]
        expected = (TOTAL, PASSED) if arguments.device != "reference" else (TOTAL, len(passed))
        if (len(cases), len(passed)) != expected:
            wrong.append(f"{len(passed)} of {len(cases)} pass, and {PASSED} of {TOTAL} are said to")
    print(f"{len(passed)} of {len(taken)} node tests pass on {arguments.device}")
    print("\n".join(wrong), end="\n" if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

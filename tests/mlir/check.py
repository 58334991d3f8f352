"""What can be said of exported MLIR without a reader of it: every name is defined before it is
used, once where it is seen, and every operation has a map and an argument for each operand."""

from __future__ import annotations

import re

_NAME = re.compile(r"%[\w.$-]+")
_DEFINED = re.compile(r"^((?:%[\w.$-]+(?:, )?)+) = ")


def find_faults(text: str) -> list[str]:
    """What is wrong with the text of a module."""
    faults: list[str] = []
    scopes: list[set[str]] = []
    for number, line in enumerate(text.partition("{-#")[0].splitlines(), 1):
        code = line.partition("//")[0].strip()
        if code.startswith("func.func"):
            scopes.append(set(_NAME.findall(code)))
            continue
        if code.startswith("^bb0"):
            arguments = _NAME.findall(code)
            faults += [f"{number}: {n} again" for n in arguments if _is_seen(n, scopes)]
            scopes.append(set(arguments))
            continue
        match = _DEFINED.match(code)
        defined = _NAME.findall(match[1]) if match else []
        used = _NAME.findall(code[match.end() :] if match else re.sub(r'".*"', "", code))
        faults += [f"{number}: {n} is not defined" for n in used if not _is_seen(n, scopes)]
        faults += [f"{number}: {n} again" for n in defined if _is_seen(n, scopes)]
        if code.startswith("}") and not code.startswith("} ins") and "outs(" not in code:
            scopes.pop()
        if scopes:
            scopes[-1].update(defined)
    faults += [f"unequal: {block[:60]}" for block in _find_unequal(text)]
    return faults + (["a region is open at the end"] if scopes else [])


def _is_seen(name: str, scopes: list[set[str]]) -> bool:
    return any(name in scope for scope in scopes)


def _find_unequal(text: str) -> list[str]:
    """The operations whose maps, operands and arguments are not as many."""
    found: list[str] = []
    for block in re.findall(r"linalg\.generic \{.*?\^bb0.*?\n", text, re.DOTALL):
        maps = block.count("affine_map<")
        operands = sum(part.count("%") for part in re.findall(r"(?:ins|outs)\((.*?) :", block))
        arguments = block.rpartition("^bb0")[2].count("%")
        dimensions = {m.count("d") for m in re.findall(r"affine_map<\((.*?)\)", block)}
        kinds = len(re.findall(r'"(?:parallel|reduction)"', block))
        if not maps == operands == arguments or dimensions != {kinds}:
            found.append(block)
    return found

"""Sections of a datasheet, from the library and the compiler."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence

from dmlc import ir
from dmlc.binding import Operator, TensorDesc
from dmlc.building import gradient
from dmlc.catalog import operators
from dmlc.datasheet.enlarge import enlarge
from dmlc.datasheet.usage import write_command, write_cpp, write_python
from dmlc.inspection.launches import estimate_kernels, read_launch
from dmlc.inspection.model import DEVICES, count_bytes, find_roofline
from dmlc.inspection.work import count_work
from dmlc.kernel.formula import describe_stage
from dmlc.kernel.nodes import Kernel
from dmlc.language import syntax
from dmlc.language.format import format_concerned, format_expression
from dmlc.library.equivalents import FAMILIES, list_operations
from dmlc.picture.lettering import show_bytes
from dmlc.pipeline import compile, compile_kernels
from dmlc.program import Program
from dmlc.source import DmlcError, join_words
from dmlc.testing.case import Call, Case
from dmlc.testing.choices import find_choices
from dmlc.testing.examples import read_cases

_LONGEST = 2000
"""Longest formula of a call in characters, except derived ones."""
_MICRO = 1e-6
_ABOUT = "Each line says what DirectML gives, and where. A call in numbers shows it."
_TITLES = {"directml": "DirectML", "onednn": "oneDNN", "training": "training"}


@dataclasses.dataclass(frozen=True, slots=True)
class Section:
    """Part of a page: its heading, and its lines in Markdown."""

    title: str
    lines: Sequence[str]


@dataclasses.dataclass(frozen=True, slots=True)
class References:
    """References of a datasheet to other pages: those of operators, and two of the
    documentation."""

    operator: Callable[[str], str] = "`{}`".format
    """Reference to an operator, from its qualified name."""
    model: str = "the GPU model"
    differences: str = ""
    """Sentence about recorded answers of DirectML, for an operator that has some."""


def find_case(operator: Operator) -> Case | None:
    """First example of an operator that binds, as a call with its data, or None."""
    for example in operator.definition.examples:
        with contextlib.suppress(DmlcError):
            return next(read_cases(operator, example))
    return None


def list_sections(operator: Operator, references: References) -> Iterator[Section]:
    """Sections about one call of an operator: its formula, how to call it, its shader, its gradient
    and its cost. Empty for an operator without examples."""
    case = find_case(operator)
    if case is None:
        return
    call = case.call
    program = compile(call.function, "hlsl")
    yield Section("One call", _describe_call(case))
    yield Section("In Python", _fence("pycon", write_python(case)))
    yield Section("In C++", _describe_cpp(call, program))
    yield Section("The shader", _describe_shader(call, program))
    yield Section("Gradient", _describe_gradient(operator, references.operator))
    yield Section("Cost on a GPU", _describe_cost(call, references.model))


def _fence(language: str, lines: Sequence[str]) -> list[str]:
    return [f"```{language}", *lines, "```", ""]


def _describe_call(case: Case) -> list[str]:
    """Tensors and attributes of a call, and the formula with these substituted."""
    call = case.call
    function = call.function
    lines = [f'The example "{case.title}" is this call:', "",
             "| tensor | type | sizes |", "| --- | --- | --- |"]  # fmt: skip
    for name, desc in call.tensors.items():
        sizes = ", ".join(map(str, desc.sizes or ()))
        lines.append(f"| {name} | {desc.data_type.name} | {sizes} |")
    lines.append("")
    if call.attributes:
        listed = [f"`{name} = {value}`" for name, value in call.attributes.items()]
        lines += [f"The attributes are {join_words(listed, 'and')}.", ""]
    return [
        *lines,
        "The formula for this call, with functions and attributes filled in:",
        "",
        *_fence("", [describe_stage(function, s.name, _LONGEST) for s in function.stages]),
    ]


def _describe_cpp(call: Call, program: Program) -> list[str]:
    command = write_command("compile", call, "--target hlsl", "--host cpp", "-o out")
    return [
        "This command writes the header and the shaders of the call:",
        "",
        *_fence("sh", command),
        "The host records the call so:",
        "",
        *_fence("cpp", write_cpp(program)),
    ]


def _describe_shader(call: Call, program: Program) -> list[str]:
    count = len(program.kernels)
    number = "one kernel" if count == 1 else f"{count} kernels, in this order"
    lines = [f"The HLSL of the call is {number}:", ""]
    for kernel in program.kernels:
        lines += _fence("hlsl", kernel.source.rstrip("\n").splitlines())
    return lines


# Gradients ---------------------------------------------------------------------------------------


def _describe_gradient(operator: Operator, link: Callable[[str], str]) -> list[str]:
    """Gradient operator, derived gradient of a call, or the reason that there is none."""
    definition = operator.definition
    lines: list[str] = []
    if definition.forward:
        lines += [f"It is the gradient of {link(definition.forward)}.", ""]
    if partners := [n for n, o in operators().items() if o.definition.forward == operator.name]:
        verb = "is its gradient" if len(partners) == 1 else "are its gradients"
        lines += [f"{join_words(map(link, partners), 'and')} {verb}.", ""]
    for choice in find_choices(operator):
        lines += [f"{choice.text[:1].upper()}{choice.text[1:]}.", ""]
    if not definition.is_differentiable:
        return [*lines, "It has no derived gradient: it does not map floats to floats.", ""]
    for example in definition.examples:
        with contextlib.suppress(DmlcError):
            return [*lines, *_derive(next(read_cases(operator, example)))]
    return [*lines, *_describe_refusal(operator)]


def _derive(case: Case) -> list[str]:
    """Derived gradient of a call. Raises `DmlcError` if there is none."""
    call = case.call
    wanted = _list_inputs(call)
    derived = gradient(call.operator, wrt=wanted)
    if not isinstance(derived, Operator):
        raise DmlcError(f"the gradient of {call.operator.name} is no operator")
    known = {t.name for t in derived.definition.newest.tensors}
    tensors = dict(call.tensors)
    tensors |= {f"d_{name}": TensorDesc(d.data_type, d.sizes) for name, d in tensors.items()}
    function = derived.bind(
        {n: d for n, d in tensors.items() if n.partition("[")[0] in known},
        {n: v for n, v in call.attributes.items() if n in derived.attributes},
    )
    listed = ", ".join(f'"{name}"' for name in wanted)
    return [
        f'`dmlc.gradient("{call.operator.name}", wrt=[{listed}])` derives it. '
        f'For the example "{case.title}":',
        "",
        *_fence("", [describe_stage(function, stage.name) for stage in function.stages]),
    ]


def _list_inputs(call: Call) -> list[str]:
    """Rows of the inputs that may have gradients. Raises `DmlcError` if there are none."""
    floats = [name for name, desc in call.inputs.items() if desc.data_type.is_float]
    if not floats:
        raise DmlcError("no input of the call holds floats")
    return list(dict.fromkeys(name.partition("[")[0] for name in floats))


def _describe_refusal(operator: Operator) -> list[str]:
    """Reason that no example has a derived gradient, from the first one."""
    case = find_case(operator)
    if case is None:
        return []
    try:
        return _derive(case)
    except DmlcError as error:
        return [f"No gradient is derived: {error.diagnostics[0].message}.", ""]


# Cost --------------------------------------------------------------------------------------------


def _describe_cost(call: Call, model: str) -> list[str]:
    """Kernels of a call whose tensors fill a GPU, their bytes, and modelled times."""
    larger = enlarge(call)
    shown = call if larger is None else larger
    said = "This call fills a GPU:"
    if larger is None:
        said = "No size of the call can grow by itself. This is the example's own call:"
    head = [said, "", *_fence("sh", write_command("inspect", shown))]
    if shown.function.loops:
        return [*head, "A loop over time has no modelled cost: its kernels run once a step.", ""]
    _, lowered, kernels = compile_kernels(shown.function, "hlsl")
    # Versions for other sizes have no groups.
    launched = [kernel for kernel in kernels if kernel.launch.count]
    return [
        *head,
        *_list_kernels(lowered, launched),
        f"These times are those of {model}, which knows bytes, launches and operations. No GPU "
        "was measured. `dmlc inspect` also counts the registers and the instructions of the "
        "compiled kernels.",
        "",
        *_list_times(lowered, launched),
    ]


def _list_kernels(function: ir.Function, kernels: Sequence[Kernel]) -> list[str]:
    """Row for each kernel: its stages, its threads, and its bytes by tensor."""
    rows = ["| kernel | computes | launches | reads | writes |", "| --- | --- | --- | --- | --- |"]
    for number, kernel in enumerate(kernels, 1):
        launch = read_launch(function, kernel)
        groups, size = launch.steps.groups, launch.steps.group_size
        written = {m.tensor: m.written for m in launch.moves if m.written}
        cells = [
            ", ".join(f"`{name}`" for name in kernel.stages),
            f"{groups:,} group{'s' * (groups != 1)} of {size} threads",
            *(
                "<br>".join(f"`{name}` {show_bytes(size)}" for name, size in moved.items())
                for moved in (launch.read, written)
            ),
        ]
        rows.append(f"| {number} | {' | '.join(cells)} |")
    return [*rows, ""]


def _list_times(function: ir.Function, kernels: Sequence[Kernel]) -> list[str]:
    """Modelled time on each device, with the lower bound."""
    times = estimate_kernels(function, kernels)
    work = count_work(function)
    lines = ["| device | bytes at least | roofline | modelled | of the roofline |",
             "| --- | --- | --- | --- | --- |"]  # fmt: skip
    for device in DEVICES:
        taken = sum(each[device.name] for each in times)
        least = find_roofline(work, device)
        lines.append(
            f"| {device.title} | {show_bytes(count_bytes(work, device))} "
            f"| {_show_time(least)} | {_show_time(taken)} | {_show_share(least, taken)} |"
        )
    return [*lines, ""]


def _show_time(seconds: float) -> str:
    microseconds = seconds / _MICRO
    return f"{microseconds:,.0f} us" if microseconds >= 100 else f"{microseconds:.3g} us"


def _show_share(least: float, taken: float) -> str:
    return f"{100 * least / taken:.0f}%" if taken else ""


# Others ------------------------------------------------------------------------------------------


def list_elsewhere(name: str, link: Callable[[str], str]) -> list[str]:
    """Table of other systems' names for the operation, with a row for each part of the operator;
    empty if there are none."""
    found = [o for o in list_operations() if name in o.operators]
    rows: list[str] = []
    for operation in found:
        own = [n for n in operation.operators if n != name]
        if not (own or operation.onnx or operation.pytorch):
            continue
        cells = [
            ", ".join(link(n) for n in own if n.startswith(f"{family}.")) for family in FAMILIES
        ]
        cells += [", ".join(f"`{n}`" for n in ns) for ns in (operation.onnx, operation.pytorch)]
        rows.append(f"| {operation.what} | {' | '.join(cells)} |")
    if not rows:
        return []
    heads = [*(_TITLES[family] for family in FAMILIES), "ONNX", "PyTorch"]
    return [f"| | {' | '.join(heads)} |", f"|{' --- |' * (len(heads) + 1)}", *rows, ""]


def list_differences(operator: Operator, recorded: str = "") -> list[str]:
    """Deviations of DirectML: for each section `differs` a line, and a call in numbers. `recorded`
    is a sentence about DirectML's recorded answers."""
    lines: list[str] = []
    for difference in operator.definition.differences:
        title = difference.title[:1].upper() + difference.title[1:]
        given = [_show_item(item) for item in difference.items if not item.expected]
        lines += [f"**{title}**: `{format_concerned(difference)}`", "", f"{', '.join(given)}:", "",
                  "| | here | DirectML |", "| --- | --- | --- |"]  # fmt: skip
        for item in difference.items:
            if item.expected:
                values = (item.value, item.instead or item.value)
                cells = " | ".join(f"`{format_expression(value)}`" for value in values)
                lines.append(f"| {item.tensor} | {cells} |")
        lines.append("")
    if not (lines or recorded):
        return []
    about = _ABOUT if lines else "None of them differs."
    return [f"{recorded} {about}".strip(), "", *lines]


def _show_item(item: syntax.ExampleItem) -> str:
    dtype = "" if item.dtype is None else f": {item.dtype.text}"
    return f"`{item.tensor}{dtype} = {format_expression(item.value)}`"

"""Subjects, tensors and attributes in the syntax of the command line."""

from __future__ import annotations

import dataclasses
import functools
import os
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import click

import dmlc
from dmlc import ir
from dmlc.binding.tensors import as_open_size, read_open_sizes
from dmlc.cli.completion import complete_attribute, complete_tensor
from dmlc.cli.messages import show
from dmlc.codegen.targets import TARGETS
from dmlc.files import read_bounded
from dmlc.kernel.target import PROFILES
from dmlc.matrices import INSTRUCTIONS
from dmlc.program import FLOAT_WIDTHS
from dmlc.source import Diagnostic, DmlcError, Source, UnknownNameError, unknown_name

F = TypeVar("F", bound=Callable[..., Any])


def tensor_option(function: F) -> F:
    """Option `--tensor` of a command."""
    return click.option(
        "--tensor", "tensors", multiple=True, metavar="NAME=TYPE[SIZES]",
        shell_complete=complete_tensor,
        help="A tensor's type, sizes and strides: X=FLOAT32[2,3], X=FLOAT32[2,3]{1,2}, X=FLOAT16, "
        "or X=FLOAT32[N,64] to leave a size open until kernels run. May repeat.",
    )(function)  # fmt: skip


_OPEN = "dmlc.open"


def attribute_option(function: F) -> F:
    """Options `--attr` and `--open` of a command."""

    def note_open(context: click.Context, option: click.Parameter, names: tuple[str, ...]) -> None:
        context.meta[_OPEN] = names

    function = click.option(
        "--open", multiple=True, metavar="NAME", expose_value=False, callback=note_open,
        help="A FLOAT attribute to leave open until kernels run: an input of one element, as in "
        "--open Epsilon. May repeat.",
    )(function)  # fmt: skip
    return click.option(
        "--attr", "attributes", multiple=True, metavar="NAME=VALUE",
        shell_complete=complete_attribute,
        help="An attribute: Epsilon=1e-5, Scales=2,2, InterpolationMode=LINEAR. May repeat.",
    )(function)  # fmt: skip


def dimension_option(function: F) -> F:
    """Option `--dim` of a command."""
    return click.option(
        "--dim", "dimensions", multiple=True, metavar="NAME=SIZE",
        help="The value of a graph's symbol: N=32. May repeat.",
    )(function)  # fmt: skip


def import_option(function: F) -> F:
    """Option `--import-folder` of a command."""
    return click.option(
        "--import-folder", "folders", multiple=True, metavar="DIR",
        help="A folder whose files a FILE may import, besides those below its own. May repeat.",
    )(function)  # fmt: skip


def target_option(said: str) -> Callable[[F], F]:
    """Option `--target` of a command about the kernels of one."""
    names = [target.name for target in TARGETS]
    return click.option(
        "--target", type=click.Choice(names), default="opencl", show_default=True, help=said
    )


def profile_option(function: F) -> F:
    """Option `--profile` of a command."""
    defaults = ", ".join(f"{t.profiles[0]} for {t.language.title}" for t in TARGETS)
    return click.option(
        "--profile", type=click.Choice([profile.name for profile in PROFILES]),
        help=f"The kind of device to schedule kernels for. [default: {defaults}]",
    )(function)  # fmt: skip


def matrix_option(function: F) -> F:
    """Option `--matrix-instruction` of a command."""
    names = [each.name for each in INSTRUCTIONS]
    return click.option(
        "--matrix-instruction", "matrix_instructions", multiple=True,
        type=click.Choice([*names, "all"]),
        help="Also make kernels for Vulkan that multiply matrices of FLOAT16 by this instruction "
        "(m x n x k / items of a subgroup); those in WGSL and shader model 6.10 are source text "
        "only. A host uses the first instruction that the device has, or else the plain kernel, "
        "so that the bits of results depend on the device. May repeat.",
        callback=_read_instructions,
    )(function)  # fmt: skip


def _read_instructions(
    _context: click.Context, _parameter: click.Parameter, given: tuple[str, ...]
) -> list[str]:
    """Instructions of `--matrix-instruction`."""
    return [each.name for each in INSTRUCTIONS] if "all" in given else [*given]


def schedule_option(function: F) -> F:
    """Option `--schedule` of a command that compiles kernels."""
    return click.option(
        "--schedule", metavar="FILE", callback=_read_schedule,
        help="A file of schedules for some kernels, in the form of dmlc ir --schedule.",
    )(function)  # fmt: skip


def table_options(function: F) -> F:
    """Options `--gpu-class` and `--schedules` of a command that compiles kernels."""
    function = click.option(
        "--schedules", metavar="FILE", callback=_read_schedule,
        help="A schedule table, such as dmlc tune writes, whose rows precede the built-in ones.",
    )(function)  # fmt: skip
    return click.option(
        "--gpu-class", metavar="NAME",
        help="The GPUs whose rows of the schedule table apply: nvidia, amd, intel, qualcomm, "
        "apple, or an architecture such as nvidia.sm_90. It implies --profile gpu. [default: "
        "rows for any device]",
    )(function)  # fmt: skip


def _read_schedule(_context: click.Context, _parameter: click.Parameter, path: str | None) -> Any:
    """File of `--schedule`, with its name."""
    if path is None:
        return None
    return Source(path, read_bounded(path, _MOST_SCHEDULE).decode(errors="replace"))


_MOST_SCHEDULE = 2**22
"""Largest file of schedules that is read, in bytes."""


@dataclasses.dataclass(frozen=True, slots=True)
class Bindings:
    """Options of a command that bind an operator or a graph, as they were given."""

    tensors: tuple[str, ...]
    attributes: tuple[str, ...]
    dimensions: tuple[str, ...]
    folders: tuple[str, ...]
    """Folders that a file may import from."""

    def __bool__(self) -> bool:
        """Whether there is an option that only binds."""
        return bool(self.tensors or self.attributes or self.dimensions)

    def find(self, text: str) -> dmlc.Operator | dmlc.Graph:
        """Operator or graph of `OP` or `FILE[:NAME]`."""
        return find_subject(text, self.folders)

    def bind(self, text: str) -> ir.Function:
        """Function of `OP` or `FILE[:NAME]` with these bindings, or that of `FILE.ir`."""
        if text.endswith(".ir"):
            return self.read_function(text)
        subject = self.find(text)
        described, attributes, dims = self.read(subject)
        if isinstance(subject, dmlc.Graph):
            return subject.bind(described, dims)
        return subject.bind(described, attributes)

    def read(
        self, subject: dmlc.Operator | dmlc.Graph
    ) -> tuple[dict[str, dmlc.TensorDesc], dict[str, object], dict[str, int]]:
        """Tensors, attributes of an operator, and symbols of a graph."""
        dims = read_dimensions(self.dimensions, subject)
        attributes = read_attributes(self.attributes, subject)
        return read_tensors(self.tensors), attributes, dims

    def read_function(self, text: str, refused: Sequence[str] = ("tensor",)) -> ir.Function:
        """Function in `FILE.ir`, whose attributes and symbols are its own, and so is what other
        `refused` options state."""
        given = {"tensor": self.tensors, "attr": self.attributes, "dim": self.dimensions}
        for option in (*refused, "attr", "dim"):
            if given[option]:
                raise click.BadParameter(
                    f"{text} holds a function, whose types and sizes are its own",
                    param_hint=f"'--{option}'",
                )
        return ir.parse(read_bounded(text, _MOST_BYTES).decode(errors="replace"), text)


def binding_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Options that bind an operator or a graph. The command receives them as `bindings`."""

    @functools.wraps(command)
    def read(
        *,
        tensors: tuple[str, ...],
        attributes: tuple[str, ...],
        dimensions: tuple[str, ...],
        folders: tuple[str, ...],
        **others: Any,
    ) -> Any:
        return command(bindings=Bindings(tensors, attributes, dimensions, folders), **others)

    return tensor_option(attribute_option(dimension_option(import_option(read))))


def show_warnings(warnings: Iterable[Diagnostic]) -> None:
    """Shows warnings, without repeating those of several programs for one function."""
    for warning in dict.fromkeys(warning.render() for warning in warnings):
        show(warning)


def show_commands(where: str, commands: Iterable[str]) -> None:
    """Shows the commands to run on the machine that written files are for."""
    show(f"{where}:")
    for line in commands:
        show(f"  {line}")


_MOST_BYTES = 2**28
"""Largest text of a function that is read, in bytes."""

# Subjects -------------------------------------------------------------------------------------


def read_dimensions(texts: Iterable[str], subject: dmlc.Operator | dmlc.Graph) -> dict[str, int]:
    """Symbols of `--dim`, which is for graphs only."""
    found = read_symbols(texts)
    if found and isinstance(subject, dmlc.Operator):
        raise click.BadParameter(
            f"{subject.name} is an operator, and only graphs have symbols: give sizes with "
            "--tensor",
            param_hint="'--dim'",
        )
    return found


def read_symbols(texts: Iterable[str]) -> dict[str, int]:
    """Values of symbols, of `--dim`."""
    found = read_pairs("--dim", texts)
    for name, text in found.items():
        if not re.fullmatch(r"[0-9]{1,20}", text):
            raise click.BadParameter(
                f"expected a whole number for {name}, found '{text}'", param_hint="'--dim'"
            )
    return {name: int(text) for name, text in found.items()}


def read_widths(_context: click.Context, _parameter: click.Parameter, text: str) -> tuple[int, ...]:
    """Widths of `--float-controls`: numbers separated by commas, or `none`."""
    if text == "none":
        return ()
    known = {str(width): width for width in FLOAT_WIDTHS}
    parts = text.split(",")
    if not known.keys() >= set(parts):
        raise click.BadParameter(f"expected {', '.join(known)} or none, found '{text}'")
    return tuple(known[part] for part in parts)


def find_subject(text: str, folders: Sequence[str] = ()) -> dmlc.Operator | dmlc.Graph:
    """Operator or graph of `OP` or `FILE[:NAME]`; a file may import from `folders`."""
    if text.endswith(".ir"):
        raise DmlcError(
            f"'{text}' holds a function of the IR, and this takes an operator or a graph",
            notes=["dmlc compile, ir, graph, inspect and run take functions as well"],
        )
    path = find_file(text)
    if not is_file(path):
        return dmlc.operator(text)
    module, name = dmlc.load(path, folders), text[len(path) + 1 :]
    subjects: dict[str, dmlc.Operator | dmlc.Graph] = {**module.graphs, **module.operators}
    if name:
        for qualified, subject in subjects.items():
            if name in (qualified, subject.definition.short_name):
                return subject
        raise UnknownNameError(
            unknown_name(f"operator or graph of '{path}'", name, subjects, code="E0202")
        )
    if len(subjects) == 1:
        return next(iter(subjects.values()))
    if not subjects:
        raise DmlcError(f"'{path}' defines no operator and no graph")
    raise DmlcError(
        f"'{path}' defines {count_subjects(module)}: say which, as in '{path}:"
        f"{next(iter(subjects))}'",
        notes=[f"it has {', '.join(list(subjects)[:12])}"],
    )


def find_file(text: str) -> str:
    """File in `FILE[:NAME]`, or the text itself if it names none."""
    path = text.rpartition(":")[0]
    return path if not is_file(text) and is_file(path) else text


def count_subjects(module: dmlc.Module) -> str:
    """Numbers of a module's operators and graphs: `2 operators, 1 graph`."""
    kinds = (("operator", len(module.operators)), ("graph", len(module.graphs)))
    parts = [f"{n} {kind}" if n == 1 else f"{n} {kind}s" for kind, n in kinds if n]
    return ", ".join(parts) or "no operators"


def is_file(text: str) -> bool:
    """Whether an argument is the name of a file, and of no operator. A text too long for a name, or
    invalid as one, names no file."""
    return text.endswith(".dml") or os.path.isfile(text)


# Bindings -------------------------------------------------------------------------------------

_TENSOR = re.compile(
    r"(?P<type>[A-Za-z]\w*)(?:\[(?P<sizes>[^\]\[{}]*)\](?:\{(?P<strides>[^\]\[{}]*)\})?)?"
)


def _split(option: str, text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip() or not value.strip():
        raise click.BadParameter(f"expected NAME=VALUE, found '{text}'", param_hint=f"'{option}'")
    return name.strip(), value.strip()


def read_pairs(option: str, texts: Iterable[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts:
        name, value = _split(option, text)
        if name in found:
            raise click.BadParameter(f"'{name}' is given twice", param_hint=f"'{option}'")
        found[name] = value
    return found


def read_tensors(texts: Iterable[str]) -> dict[str, dmlc.TensorDesc]:
    """Tensor descriptions of `--tensor`."""
    return {name: _tensor(name, value) for name, value in read_pairs("--tensor", texts).items()}


def _tensor(name: str, text: str) -> dmlc.TensorDesc:
    match = _TENSOR.fullmatch(text.replace(" ", ""))
    if match is None:
        raise click.BadParameter(
            f"'{text}' describes no tensor: expected a type, with sizes and strides if you like, "
            f"such as {name}=FLOAT32[2,3]{{3,1}}",
            param_hint="'--tensor'",
        )
    sizes, strides = _sizes(match.group("sizes")), _integers(match.group("strides"))
    if sizes is not None:
        read_open_sizes(sizes, name)
    return dmlc.TensorDesc(match.group("type"), sizes, strides)


def _sizes(text: str | None) -> tuple[ir.Extent, ...] | None:
    """Sizes; names are open ones."""
    parts = [] if text is None else text.split(",")
    names = [part for part in parts if as_open_size(part) is not None]
    if text is None or not names:
        return _integers(text)
    numbers = [part for part in parts if part not in names]
    if any(re.fullmatch(r"[0-9]{1,20}", part) is None for part in numbers):
        raise click.BadParameter(
            f"expected whole numbers or names separated by commas, found '{text}'",
            param_hint="'--tensor'",
        )
    return tuple(part if part in names else int(part) for part in parts)


def _integers(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    parts = text.split(",")
    if not all(re.fullmatch(r"[0-9]{1,20}", p) for p in parts):
        raise click.BadParameter(
            f"expected whole numbers separated by commas, found '{text}'", param_hint="'--tensor'"
        )
    return tuple(int(p) for p in parts)


def read_attributes(
    texts: Iterable[str], subject: dmlc.Operator | dmlc.Graph | None = None
) -> dict[str, object]:
    """Attributes of `--attr`, which is for operators only: numbers, true and false, lists, and
    names. A list of the operator may be given as one value: `Axes=1`."""
    context = click.get_current_context(silent=True)
    opened = () if context is None else context.meta.get(_OPEN, ())
    found: dict[str, object] = dict.fromkeys(opened, dmlc.OPEN)
    pairs = read_pairs("--attr", texts)
    if pairs and isinstance(subject, dmlc.Graph):
        raise click.BadParameter(
            f"{subject.name} is a graph, and each call in it gives its own attributes",
            param_hint="'--attr'",
        )
    for name, text in pairs.items():
        if name in found:
            raise click.BadParameter(f"'{name}' has a value by --attr", param_hint="'--open'")
        value = _attribute(text)
        operator = subject.definition if isinstance(subject, dmlc.Operator) else None
        known = None if operator is None else operator.attribute(name)
        single = known is not None and known.is_array and not isinstance(value, list)
        found[name] = [value] if single else value
    return found


def _attribute(text: str) -> object:
    if text.startswith("[") and text.endswith("]"):
        return [_value(part) for part in text[1:-1].split(",") if part.strip()]
    return [_value(part) for part in text.split(",")] if "," in text else _value(text)


_INTEGER = re.compile(r"[+-]?[0-9]{1,30}")
_FLOAT = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|[+-]?inf|nan")


def _value(text: str) -> object:
    word = text.strip()
    if word.lower() in ("true", "false"):
        return word.lower() == "true"
    if _INTEGER.fullmatch(word):
        return int(word)
    return float(word) if _FLOAT.fullmatch(word) else word

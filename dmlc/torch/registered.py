"""An operator of PyTorch's library `dmlc`: its schema, its kernel for tensors of the CPU, and a
kernel that only says what the results are.

`registration` makes such operators, and adds a gradient (`autograd`) and a rule for `vmap`
(`batching`). A call finds what it needs by the types, sizes and strides of its tensors and by its
settings, and launches; the first with new ones binds and compiles.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar, cast

import torch

from dmlc.binding import ir_name
from dmlc.scalars import DataType
from dmlc.source import DmlcError, UnsupportedError
from dmlc.torch.call import Call, Layout, load
from dmlc.torch.functions import Functions
from dmlc.torch.results import make_result
from dmlc.torch.subjects import Asked, Row, Setting, Shaped, Sizes, Subject, freeze
from dmlc.torch.tensors import TORCH_TYPES, data_type_of

if TYPE_CHECKING:
    from torch._ops import OpOverload

Results: TypeAlias = torch.Tensor | tuple[torch.Tensor, ...]

Fact: TypeAlias = Shaped | list[Shaped] | None
"""Type and sizes of a tensor, of those of an array, or of none."""
Facts: TypeAlias = Mapping[str, Fact]

GradientsT = TypeVar("GradientsT")
Thing = TypeVar("Thing")

NAMESPACE = "dmlc"
_CALLS_KEPT = 1024
_library: Any = torch.library.Library(NAMESPACE, "FRAGMENT")
_hooks: Any = torch.library


def fact_of(tensor: torch.Tensor) -> Shaped:
    """Type and sizes of a tensor."""
    return data_type_of(tensor.dtype), tuple(tensor.shape)


def write_schema(name: str, subject: Subject) -> str:
    """The schema: tensors in the order of the table, and then settings by name. A default of None
    means what the table says."""
    inputs = subject.inputs
    required = [k for k, row in enumerate(inputs) if not row.optional]
    last = required[-1] if required else -1
    arguments: list[str] = []
    for k, row in enumerate(inputs):
        kind = "Tensor[]" if row.array else "Tensor?" if row.optional else "Tensor"
        arguments.append(f"{kind} {row.name}" + ("=None" if k > last else ""))
    settings = [_write_setting(s) for s in list_settings(subject)]
    arguments += ["*", *settings] if settings else []
    results = ", ".join(f"Tensor {ir_name(row.name)}" for row in subject.outputs)
    single = len(subject.outputs) == 1
    return f"{name}({', '.join(arguments)}) -> {'Tensor' if single else f'({results})'}"


def list_settings(subject: Subject) -> list[Setting]:
    """Keyword arguments of a call: attributes or symbols, and sizes and types of outputs."""
    found = list(subject.settings)
    for row in subject.outputs:
        name = ir_name(row.name)
        found += [Setting(f"{name}_sizes", "SymInt[]", True)] if row.sizes else []
        found += [Setting(f"{name}_dtype", "ScalarType", True)] if row.types else []
    return found


def _write_setting(setting: Setting) -> str:
    return f"{setting.type}? {setting.name}=None" if setting.optional else (
        f"{setting.type} {setting.name}"
    )  # fmt: skip


class Registered(Generic[GradientsT]):
    """Operator of PyTorch's library, and its subject in dmlc."""

    gradients: GradientsT
    """What its gradients are, call by call."""

    def __init__(self, subject: Subject, name: str, warns: bool) -> None:
        self.subject = subject
        self.name = name
        self._warns = warns
        self._functions = Functions(subject)
        self.inputs = subject.inputs
        self.outputs = subject.outputs
        self._names = tuple(row.name for row in self.inputs)
        self._own = {s.name for s in subject.settings}
        if not self.inputs:
            raise UnsupportedError(
                f"{subject.name} is given no tensor, and an operator of PyTorch is found by the "
                "device of one"
            )
        self._lock = threading.Lock()
        self._calls: dict[object, Callable[[Sequence[Any]], Results]] = {}
        schema = write_schema(name, subject)
        try:
            _library.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
        except RuntimeError as error:
            reason = str(error).splitlines()[0]
            raise DmlcError(f"PyTorch refuses the schema '{schema}': {reason}") from error
        self.op: OpOverload = getattr(torch.ops.dmlc, name).default
        self.kernel = self._make_kernel()
        """Computes the results, without a gradient."""
        _library.impl(name, self.kernel, "CPU")
        _hooks.register_fake(f"{NAMESPACE}::{name}", self._fake, lib=_library)

    def add_rules(self, autograd: Callable[..., Any], batching: Callable[..., Any]) -> None:
        """Has PyTorch call this with gradients, and under `vmap`."""
        _library.impl(self.name, autograd, "Autograd", with_keyset=True)
        _hooks.register_vmap(f"{NAMESPACE}::{self.name}", batching, lib=_library)

    def __repr__(self) -> str:
        return f"<torch.ops.{NAMESPACE}.{self.name} of {self.subject.name}>"

    # Calls --------------------------------------------------------------------------------------

    def arrange(self, args: Sequence[Any], settings: Mapping[str, Any]) -> dict[str, Any]:
        """Argument of each input, given by position or by name."""
        given = dict.fromkeys(self._names)
        given.update(zip(self._names, args, strict=False))
        given.update((n, settings[n]) for n in self._names if n in settings)
        return given

    def _make_kernel(self) -> Callable[..., Results]:
        calls = self._calls
        arrays = any(row.array for row in self.inputs)

        def run(*args: Any, **settings: Any) -> Results:
            if arrays:
                key: Any = tuple([_key_of(given) for given in args])
            else:
                key = tuple([t if t is None else (t.dtype, t.shape, t.stride()) for t in args])
            if settings:
                key = key, freeze(settings)
            call = calls.get(key)
            if call is None:
                call = self._keep(key, self._make_call(args, settings))
            return call(args)

        return run

    def _keep(
        self, key: object, call: Callable[[Sequence[Any]], Results]
    ) -> Callable[[Sequence[Any]], Results]:
        with self._lock:
            while len(self._calls) >= _CALLS_KEPT:
                del self._calls[next(iter(self._calls))]
            self._calls[key] = call
        return call

    def _make_call(
        self, args: Sequence[Any], settings: Mapping[str, Any]
    ) -> Callable[[Sequence[Any]], Results]:
        """Callable for all calls with these layouts and settings."""
        given = self.arrange(args, settings)
        tensors = _flatten(given)
        results = self._make_results(tensors, settings, "meta")
        values = self.own_settings(settings)
        stated = any(v is not None for n, v in settings.items() if n not in self._own)
        call, order = self._compile(tensors, results, values, may_open=not stated)
        single = len(results) == 1

        def pick(args: Sequence[Any]) -> list[torch.Tensor]:
            flat: list[torch.Tensor] = []
            for each in args:
                if isinstance(each, list):
                    flat += cast("list[torch.Tensor]", each)
                elif each is not None:
                    flat.append(each)
            return [flat[k] for k in order]

        plain = len(order) == len(args) == len(tensors) and order == list(range(len(order)))
        plain = plain and all(isinstance(each, torch.Tensor) for each in args)
        if plain and single:
            return lambda args: call(*args)[0]
        if plain:
            return lambda args: tuple(call(*args))
        if single:
            return lambda args: call(*pick(args))[0]
        return lambda args: tuple(call(*pick(args)))

    def _compile(
        self,
        tensors: Mapping[str, torch.Tensor],
        results: Sequence[torch.Tensor],
        settings: Mapping[str, object],
        *,
        may_open: bool,
    ) -> tuple[Call, list[int]]:
        """The call, and which of the tensors each input of the program is."""
        layouts = [_layout_of(t) for t in results]
        function, sizes = self._functions.find(tensors, results, settings, may_open=may_open)
        for warning in function.warnings if self._warns else ():
            warnings.warn(f"{function.name}: {warning.message}", UserWarning, stacklevel=6)
        names = [ir_name(name) for name in tensors]
        executable = load(function)
        order = [names.index(t.name) for t in executable.program.inputs]
        given = [_layout_of(list(tensors.values())[k]) for k in order]
        return Call(executable, sizes, layouts, given), order

    def own_settings(self, settings: Mapping[str, Any]) -> dict[str, object]:
        """Settings that are attributes or symbols."""
        return {n: v for n, v in settings.items() if n in self._own and v is not None}

    # Results ------------------------------------------------------------------------------------

    def _make_results(
        self,
        tensors: Mapping[str, torch.Tensor],
        settings: Mapping[str, Any],
        device: torch.device | str,
    ) -> list[torch.Tensor]:
        """New results of the right types, sizes and strides."""
        facts = self.infer({name: fact_of(t) for name, t in tensors.items()}, settings)
        given = list(tensors.values())
        return [
            make_result(given, sizes, TORCH_TYPES[dtype], device) for dtype, sizes in facts.values()
        ]

    def infer(self, given: Facts, settings: Mapping[str, Any]) -> dict[str, Shaped]:
        """Types and sizes of the outputs, from those of the inputs. Raises `DmlcError`."""
        flat = _flatten(given)
        lifted = self.subject.lifts and any(not sizes for _, sizes in flat.values())
        shaped = {n: (t, (1,) if lifted and not s else s) for n, (t, s) in flat.items()}
        asked = {row.name: self._read_asked(row, settings, lifted) for row in self.outputs}
        asked = {n: a for n, a in asked.items() if a != Asked()}
        values = self.own_settings(settings)
        found = self._infer_open(shaped, values, asked)
        if lifted:
            found = [(dtype, () if sizes == (1,) else sizes) for dtype, sizes in found]
        return {row.name: fact for row, fact in zip(self.outputs, found, strict=True)}

    def _infer_open(
        self,
        shaped: Mapping[str, Shaped],
        values: Mapping[str, object],
        asked: Mapping[str, Asked],
    ) -> Sequence[Shaped]:
        """Types and sizes of the outputs, if sizes may be symbolic. If the operator is refused for
        symbols, PyTorch is told to trace it for their current values: that of the last axis first,
        which tables constrain most."""
        given = [sizes for _, sizes in shaped.values()]
        said = [a.sizes for a in asked.values() if a.sizes is not None]
        # A size reads otherwise once it is fixed.
        names = {id(s): str(s) for sizes in (*given, *said) for s in sizes if type(s) is not int}
        left = {names[id(s)]: s for sizes in given for s in sizes if id(s) in names}
        fixed: dict[int, int] = {}
        while True:
            try:
                return self.subject.infer(
                    {n: (dtype, _fix(sizes, fixed)) for n, (dtype, sizes) in shaped.items()},
                    values,
                    {n: Asked(a.dtype, a.sizes and _fix(a.sizes, fixed)) for n, a in asked.items()},
                )
            except DmlcError:
                if not left:
                    raise
                name, size = left.popitem()
                fixed |= {each: int(size) for each, own in names.items() if own == name}

    def is_elementwise(self, given: Facts, settings: Mapping[str, Any]) -> bool:
        """Whether the operator is element-wise for these inputs."""
        types = [dtype for dtype, _ in self.infer(given, settings).values()]
        known = {name: dtype for name, (dtype, _) in _flatten(given).items()}
        return self.subject.bind_elements(known, self.own_settings(settings), types) is not None

    def _read_asked(self, row: Row, settings: Mapping[str, Any], lifted: bool) -> Asked:
        name = ir_name(row.name)
        dtype: torch.dtype | None = settings.get(f"{name}_dtype")
        sizes: Sequence[int] | None = settings.get(f"{name}_sizes")
        asked: DataType | None = None if dtype is None else data_type_of(dtype)
        if sizes is None:
            return Asked(asked)
        return Asked(asked, (1,) if lifted and not sizes else tuple(sizes))

    def _fake(self, *args: Any, **settings: Any) -> Results:
        """Results without values, of tensors without values."""
        tensors = _flatten(self.arrange(args, settings))
        device = next((t.device for t in tensors.values()), torch.device("cpu"))
        found = self._make_results(tensors, settings, device)
        return found[0] if len(found) == 1 else tuple(found)


def _fix(sizes: Sizes, fixed: Mapping[int, int]) -> Sizes:
    """Sizes with numbers for some of those that are held open, by their identity."""
    return tuple([fixed.get(id(s), s) for s in sizes])


def _key_of(given: Any) -> object:
    if given is None:
        return None
    if isinstance(given, torch.Tensor):
        return given.dtype, given.shape, given.stride()
    return tuple([_key_of(each) for each in cast("list[torch.Tensor]", given)])


def _flatten(given: Mapping[str, Thing | list[Thing] | None]) -> dict[str, Thing]:
    """Present arguments, with entries of arrays under names of their own."""
    found: dict[str, Thing] = {}
    for name, each in given.items():
        if isinstance(each, list):
            found.update({f"{name}[{k}]": t for k, t in enumerate(cast("list[Thing]", each))})
        elif each is not None:
            found[name] = each
    return found


def _layout_of(tensor: torch.Tensor) -> Layout:
    return tensor.dtype, tuple(tensor.shape), tensor.stride()

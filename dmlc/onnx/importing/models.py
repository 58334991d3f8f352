"""Import of ONNX models as functions of the tensor IR: their inputs and outputs. `importing` has
the meaning of nodes."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias, cast

import onnx
from onnx import helper

from dmlc.api import Results, run
from dmlc.binding.graph import read_dims
from dmlc.binding.tensors import TensorDesc
from dmlc.files import open_regular
from dmlc.ir import Extent, Function
from dmlc.ir.naming import take_name
from dmlc.onnx.importing.external import load_external
from dmlc.onnx.importing.importer import Found, Importer, Scope
from dmlc.onnx.importing.names import (
    check_texts,
    read_type,
    spell_domain,
    spell_name,
    spell_symbol,
)
from dmlc.onnx.importing.nodes import is_sizes
from dmlc.onnx.importing.values import Missing
from dmlc.parameters import expect, expect_mapping, expect_path
from dmlc.progress import track
from dmlc.runtime.foreign import as_array
from dmlc.scalars import Array, DataType, data_type_of
from dmlc.sizes import Measure, as_extent, list_measured, measure, replace_symbols
from dmlc.source import DmlcError, UnsupportedError, check_known, list_names

Subject: TypeAlias = "str | os.PathLike[str] | onnx.ModelProto | onnx.FunctionProto"


@dataclasses.dataclass(frozen=True, slots=True)
class ImportedModel:
    """Model as a function. Tensors keep their names as far as the IR allows."""

    function: Function
    weights: Mapping[str, Array]
    """The constants that are too large for kernels, by the parameter that each is given for. These
    stand after the inputs of the model."""
    inputs: Mapping[str, str]
    """What the inputs of the model are called in the function."""
    outputs: Mapping[str, str]
    """What its outputs are called there."""

    def run(self, inputs: Mapping[str, object], device: str = "opencl") -> Results:
        """Runs the function on arrays, with the model's weights. Inputs and results have the
        model's names."""
        given = {self.inputs.get(name, name): array for name, array in inputs.items()}
        found = run(self.function, {**self.weights, **given}, device=device)
        names = {own: name for name, own in self.outputs.items()}
        return Results({names[own]: array for own, array in found.items()}, found.report)


def load(
    subject: Subject,
    constants: Mapping[str, Array] | None = None,
    tensors: Mapping[str, TensorDesc] | None = None,
    dims: Mapping[str, int] | None = None,
) -> ImportedModel:
    """Function of a model, or of a single function of ONNX.

    `subject` is a file, or an object of the package `onnx`. `constants` fixes inputs; an input that
    determines another tensor's shape must be known. `tensors` describes inputs whose types or sizes
    the model leaves open, such as all inputs of a function of ONNX; `dims` gives values of its
    symbols. Other symbols stay open until kernels run. Raises `UnsupportedError` for a model with
    unsupported nodes, with the names of all."""
    if isinstance(subject, str | os.PathLike):
        given = read_file(expect_path("subject", subject))
    else:
        given = expect("subject", subject, (onnx.ModelProto, onnx.FunctionProto), _SUBJECTS)
        check_texts(given, "the model")
    fixed = {n: as_array(n, a, "constant") for n, a in _read_named("constants", constants).items()}
    described: dict[str, TensorDesc] = {}
    for name, desc in _read_named("tensors", tensors).items():
        described[name] = expect(f"tensors['{name}']", desc, TensorDesc, "a dmlc.TensorDesc")
        if described[name].strides is not None:
            raise UnsupportedError(f"tensors['{name}'] has strides: inputs of a model are packed")
    sizes = read_dims(dims)
    if isinstance(given, onnx.FunctionProto):
        given = _wrap_function(given, described, fixed)
    return _load(given, fixed, described, sizes, "" if given is subject else str(subject))


def _load(
    model: onnx.ModelProto,
    fixed: Mapping[str, Array],
    tensors: Mapping[str, TensorDesc],
    dims: Mapping[str, int],
    subject: str,
) -> ImportedModel:
    """Function of a model. If a symbol turns out to equal another size, the model is imported again
    with that size in its place, which leaves one symbol less."""
    known: dict[str, Measure] = {**dims}
    while True:
        made = _Model(model, fixed, tensors, known)
        equal = made.importer.builder.equal
        try:
            found = made.load(subject)
        except DmlcError:
            if not equal:
                raise
        else:
            if not equal:
                return found
        symbol, size = next(iter(equal.items()))
        known = {own: replace_symbols(value, {symbol: size}) for own, value in known.items()}
        known[symbol] = size


_SUBJECTS = "a file, an onnx.ModelProto or an onnx.FunctionProto"


def _read_named(parameter: str, given: object) -> Mapping[str, object]:
    return {} if given is None else expect_mapping(parameter, given, "a mapping of inputs' names")


def read_file(path: Path) -> onnx.ModelProto:
    """Model in a file, with the constants in files beside it."""
    shown = os.fspath(path)
    try:
        with open_regular(path):
            model = cast("Any", onnx).load_model(shown, load_external_data=False)
    except OSError as error:
        raise DmlcError(f"cannot read '{shown}': {error.strerror}") from None
    except Exception as error:  # What protobuf raises depends on how it was built.
        if type(error).__module__.split(".")[0] not in ("google", "onnx"):
            raise
        raise DmlcError(f"'{shown}' is no ONNX model") from None
    check_texts(model, f"'{shown}'")
    load_external(model, path.parent)
    return model


def _wrap_function(
    function: onnx.FunctionProto, tensors: Mapping[str, TensorDesc], fixed: Mapping[str, Array]
) -> onnx.ModelProto:
    """Model that calls a function on the tensors described."""
    missing = [name for name in function.input if name not in tensors and name not in fixed]
    if missing:
        raise DmlcError(
            f"the function {function.name} of ONNX has no types: describe {list_names(missing)}, "
            f"as in tensors={{'{missing[0]}': TensorDesc('FLOAT32', (2, 3))}}"
        )
    empty = onnx.TypeProto()
    graph = helper.make_graph(
        [helper.make_node(function.name, function.input, function.output, domain=function.domain)],
        function.name,
        [helper.make_value_info(name, empty) for name in function.input],
        [helper.make_value_info(name, empty) for name in function.output],
    )
    imports = [*function.opset_import, helper.make_opsetid(function.domain, 1)]
    return helper.make_model(graph, functions=[function], opset_imports=imports)


class _Model:
    """Model, with the caller's information about it."""

    def __init__(
        self,
        model: onnx.ModelProto,
        fixed: Mapping[str, Array],
        tensors: Mapping[str, TensorDesc],
        dims: Mapping[str, Measure],
    ) -> None:
        self.graph = model.graph
        self.opsets = {spell_domain(o.domain): o.version for o in model.opset_import}
        self.fixed = fixed
        self.tensors = tensors
        self.dims = dims
        self.known: dict[str, None] = {}
        """The symbols that there are."""
        self.plain = dict.fromkeys(
            dim.dim_param
            for declared in model.graph.input
            for dim in declared.type.tensor_type.shape.dim
            if dim.dim_param.isidentifier()
        )
        """The symbols that are sizes by themselves: others are made of them."""
        self.name = spell_name(model.graph.name) or "model"
        self.importer = Importer(self.name, model)
        self.values = self.importer.values

    def load(self, subject: str) -> ImportedModel:
        for what, own in (("input", self.graph.input), ("output", self.graph.output)):
            names = [each.name for each in own]
            twice = next((name for name in names if names.count(name) > 1), None)
            if twice is not None:
                raise DmlcError(f"the model has two {what}s that are called '{twice}'")
        held: dict[str, Found] = {}
        for initializer in self.graph.initializer:
            held[initializer.name] = self.values.read_initializer(initializer)
        inputs = self._declare_inputs(held)
        for output in self.graph.output:
            _check_kind("output", output)
        wanted = {o.name: spell_name(o.name) for o in self.graph.output}
        scope = Scope(held, self.opsets, {}, wanted, "")
        self.importer.run(track("importing nodes", self.graph.node), scope)
        self.importer.check(self.name, subject)
        outputs: dict[str, str] = {}
        for output in self.graph.output:
            outputs[output.name] = take_name(spell_name(output.name), self.values.taken)
            value = scope.find(output.name)
            if isinstance(value, Missing):
                raise DmlcError(f"nothing computes the output '{output.name}' of the model")
            tensor = self.values.tensor(value, output.name)
            if is_sizes(value) and output.type.tensor_type.elem_type == onnx.TensorProto.INT32:
                tensor = self.values.narrow(tensor, output.name)
            self.importer.builder.result(outputs[output.name], tensor)
        function = self.importer.builder.build()
        return ImportedModel(function, self.values.weights, inputs, outputs)

    # Inputs -----------------------------------------------------------------------------------

    def _declare_inputs(self, values: dict[str, Found]) -> dict[str, str]:
        names = [i.name for i in self.graph.input]
        unknown = [n for n in (*self.fixed, *self.tensors) if n not in (*names, *values)]
        if unknown:
            raise DmlcError(
                f"the model has no input '{unknown[0]}'",
                notes=[f"it has {', '.join(names)}"] if names else [],
            )
        inputs: dict[str, str] = {}
        for declared in self.graph.input:
            name = declared.name
            if name in values and name not in self.fixed:
                continue
            dtype, extents = self._describe(declared)
            if name in self.fixed:
                values[name] = self._check_fixed(name, dtype, extents)
                continue
            if dtype is None or extents is None:
                raise DmlcError(
                    f"the model does not say which sizes its input '{name}' has: describe it, as "
                    f"in tensors={{'{name}': TensorDesc('FLOAT32', (2, 3))}}"
                )
            inputs[name] = take_name(spell_name(name), self.values.taken)
            tensor = self.importer.builder.parameter(inputs[name], dtype, extents)
            self.values.name_input(tensor, name)
            values[name] = tensor
        for name in self.fixed:
            values.setdefault(name, self.fixed[name])
        check_known("symbol", self.known, *self.dims)
        return inputs

    def _describe(
        self, declared: onnx.ValueInfoProto
    ) -> tuple[DataType | None, tuple[Extent, ...] | None]:
        """Type and sizes of an input, as far as they are known."""
        known = self.tensors.get(declared.name)
        if known is not None and known.sizes is not None:
            return known.data_type, tuple(self._fix(extent) for extent in known.sizes)
        _check_kind("input", declared)
        if declared.type.WhichOneof("value") is None:
            return None, None
        described = declared.type.tensor_type
        dtype = read_type(described.elem_type, f"the input '{declared.name}'")
        if not described.HasField("shape"):
            return dtype, None
        extents: list[Extent] = []
        for axis, dim in enumerate(described.shape.dim):
            size = dim.dim_value
            if not dim.HasField("dim_value") or size == -1:
                # Some exporters write -1 or `?` for each size that is left open.
                named = re.search(r"\w", dim.dim_param, re.ASCII)
                symbol = dim.dim_param if named else f"{declared.name}_{axis}"
                size = self._fix(spell_symbol(symbol, {**self.plain, **self.dims}))
            if isinstance(size, int) and size < 0:
                raise DmlcError(
                    f"the input '{declared.name}' has {size} places along axis {axis}: describe "
                    f"it, as in tensors={{'{declared.name}': TensorDesc('FLOAT32', (2, 3))}}"
                )
            extents.append(size)
        return dtype, tuple(extents)

    def _fix(self, extent: Extent) -> Extent:
        """Size with values for the symbols that have one."""
        size = measure(extent)
        self.known |= dict.fromkeys(list_measured(size))
        return as_extent(replace_symbols(size, self.dims))

    def _check_fixed(
        self, name: str, dtype: DataType | None, extents: tuple[Extent, ...] | None
    ) -> Array:
        array = self.fixed[name]
        if dtype is not None and data_type_of(array.dtype) is not dtype:
            raise DmlcError(
                f"the constant given for '{name}' holds {array.dtype}, and the model has "
                f"{dtype.name} there"
            )
        fits = extents is None or len(extents) == array.ndim
        pairs = zip(extents or (), array.shape, strict=False)
        if not fits or any(isinstance(e, int) and e != size for e, size in pairs):
            raise DmlcError(
                f"the constant given for '{name}' has the sizes {list(array.shape)}, and the model "
                f"has {list(extents or ())} there"
            )
        return array


def _check_kind(place: str, declared: onnx.ValueInfoProto) -> None:
    """Raises `UnsupportedError` for an input or output that is no tensor."""
    kind = declared.type.WhichOneof("value")
    if kind not in (None, "tensor_type"):
        shown = kind.removesuffix("_type").replace("_", " ")
        raise UnsupportedError(f"the {place} '{declared.name}' is no tensor: its type is {shown}")

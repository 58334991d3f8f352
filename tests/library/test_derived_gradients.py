"""`gradient of` over the library and the examples: the tables of the library's own gradient
operators are matched by name, and what is derived for them gives their examples; every operator has
a gradient, and every graph."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import dmlc
from dmlc import library
from dmlc.binding import Graph, Operator, TensorDesc, ir_name
from dmlc.binding.operator import Description
from dmlc.language import syntax
from dmlc.language.check_gradient import check_gradients
from dmlc.language.format import format_file
from dmlc.language.parse import parse
from dmlc.source import Diagnostic, DmlcError, Source
from dmlc.summaries import read_index
from dmlc.testing.case import Call, Case
from dmlc.testing.draw import Drawer, Wish
from dmlc.testing.examples import read_cases

ROOT = Path(__file__).parents[2]
LIBRARY = dmlc.operators()
PAIRED = [n for n, o in LIBRARY.items() if o.definition.forward is not None]
RENAMED = {
    "directml.BATCH_NORMALIZATION_TRAINING_GRAD": {
        "MeanTensor": "OutputMeanTensor",
        "VarianceTensor": "OutputVarianceTensor",
    },
    "onednn.BatchNormTrainingBackward": {"mean": "batch_mean", "variance": "batch_variance"},
}
"""What the pages call otherwise than their forward pages do."""
WITHOUT = tuple(name for name, summary in read_index().items() if not summary.differentiable)
"""What is given no floats, or gives none."""


def derive(name: str) -> Operator:
    """An operator of the library with `gradient of` in place of its formula."""
    definition = LIBRARY[name].definition
    span = definition.syntax.name.span
    forward = LIBRARY[definition.forward or ""].definition

    def named(text: str) -> syntax.Name:
        return syntax.Name(text, span=span)

    lines = tuple(
        syntax.GradientLine(named(own), named(theirs), False, span=span)
        for own, theirs in RENAMED.get(name, {}).items()
    )
    section = syntax.GradientOf(named(forward.name), (), lines, span=span)
    made = dataclasses.replace(
        definition,
        compute=None,
        syntax=dataclasses.replace(definition.syntax, compute=None, gradient_of=section),
    )
    diagnostics: list[Diagnostic] = []
    found = check_gradients([made], lambda _: forward, diagnostics, diagnostics)
    assert diagnostics == []
    return Operator(found[name])


def list_cases(operator: Operator) -> Iterator[Case]:
    """Each example, with the first data types that bind."""
    for example in operator.definition.examples:
        yield next(read_cases(operator, example))


BEYOND = ("a gradient of more than the window holds",)
"""Examples of gradients that the forward operator never gives: a derived one refuses them."""


@pytest.mark.parametrize("name", PAIRED)
def test_the_tables_of_gradients_are_matched_by_name(name: str) -> None:
    derived, cases = derive(name), list(list_cases(LIBRARY[name]))
    cases = [
        case
        for case in cases
        if not case.call.binding.attributes.get("use_dst") and case.title not in BEYOND
    ]  # Others are given what the derived one is not.
    assert cases
    for case in cases:
        sizes = {output: array.shape for output, array in case.expected.items()}
        found = dmlc.run(derived, case.inputs, case.call.attributes, sizes, device="reference")
        for output, exact in case.expected.items():
            close = np.isclose(found[output].astype(np.float64), exact, 1e-3, equal_nan=True)
            assert close.all(), case.title


def test_gradients_are_found_by_the_operator_that_they_are_of() -> None:
    for name in LIBRARY:
        expected = [n for n in PAIRED if LIBRARY[n].definition.forward == name]
        assert list(library.find_gradients(name)) == expected


def check_layout(subject: Operator | Graph) -> str:
    """What a gradient prints as, which nothing has to be done to."""
    text = str(subject)
    assert format_file(parse(Source("g.dml", text))) == text
    assert "\n\n  " not in text or isinstance(subject, Graph)
    return text


@pytest.mark.parametrize("name", [n for n in LIBRARY if n not in WITHOUT])
def test_every_operator_has_a_gradient(name: str) -> None:
    operator = LIBRARY[name]
    assert operator.definition.is_differentiable
    for case in list_cases(operator):
        binding = case.call.binding
        present = list(binding.tensors.values())
        wanted = dict.fromkeys(
            t.definition.row
            for t in present
            if not t.definition.output and t.dtype is not None and t.dtype.is_float
        )
        given: dict[str, Description] = {}
        for tensor in present:
            if tensor.dtype is not None and tensor.definition.output and tensor.dtype.is_float:
                given[f"d_{tensor.name}"] = TensorDesc(tensor.dtype, tensor.sizes)
            elif tensor.dtype is not None and not tensor.definition.output:
                given[tensor.name] = TensorDesc(tensor.dtype, tensor.sizes)
        if not wanted or not any(n.startswith("d_") for n in given):
            continue
        derived = dmlc.gradient(operator, list(wanted))
        assert isinstance(derived, Operator)
        assert len(dmlc.parse(check_layout(derived)).operators) == 1
        function = derived.bind(given, case.call.attributes)
        assert [r.name for r in function.results] == [
            ir_name(f"d_{t.name}") for t in present if t.definition.row in wanted
        ], case.title


def list_optional() -> Iterator[tuple[str, str]]:
    """The optional inputs that may hold floats, of every operator that has a gradient. What a later
    version of an operator has as the first does is left to that."""
    for name, operator in LIBRARY.items():
        first = LIBRARY.get(name.rstrip("0123456789"), operator)
        known = [] if first is operator else list(first.tensors)
        for row in operator.definition.newest.inputs if name not in WITHOUT else ():
            if row.optional and row.holds_floats and row.name not in known:
                yield name, row.name


def find_call(operator: Operator, name: str) -> Call:
    """An example that has a tensor, or a call that is drawn so."""
    drawer = Drawer(operator, np.random.default_rng(5))
    shown = (case.call for case in list_cases(operator))
    calls = itertools.chain(shown, (drawer.draw(Wish(name, present=True)) for _ in range(9)))
    return next(call for call in calls if call is not None and name in call.tensors)


@pytest.mark.grid(2)
@pytest.mark.parametrize(("name", "optional"), list(list_optional()))
def test_optional_inputs_have_gradients(name: str, optional: str) -> None:
    call = find_call(LIBRARY[name], optional)
    derived = dmlc.gradient(LIBRARY[name], [optional])
    assert isinstance(derived, Operator)
    given = {n: TensorDesc(d.data_type, d.sizes) for n, d in call.inputs.items()}
    given |= {
        f"d_{n}": TensorDesc(d.data_type, d.sizes)
        for n, d in call.outputs.items()
        if d.data_type.is_float
    }
    if call.tensors[optional].data_type.is_float:
        (result,) = derived.bind(given, call.attributes).results
        assert result.name == f"d_{optional}"
    else:
        with pytest.raises(DmlcError, match=f"'d_{optional}' cannot be INT32"):
            derived.bind(given, call.attributes)
    # Without the input there is no gradient, and that is said.
    with pytest.raises(DmlcError, match=f"required tensor '{optional}' is not given"):
        derived.bind({n: d for n, d in given.items() if n != optional}, call.attributes)


@pytest.mark.parametrize("name", ["directml.RNN", "directml.GRU", "directml.LSTM"])
def test_where_no_output_is_chosen_all_are_computed(name: str) -> None:
    example = next(list_cases(LIBRARY[name]))
    found = dmlc.run(name, example.inputs, example.call.attributes, device="reference")
    assert list(found) == [t.name for t in LIBRARY[name].definition.newest.outputs]
    for output, exact in example.expected.items():
        np.testing.assert_allclose(found[output], exact, 1e-3)
        (alone,) = dmlc.run(
            name,
            example.inputs,
            example.call.attributes,
            {output: exact.shape},
            device="reference",
        )
        assert alone == output


GRAPHS = sorted((ROOT / "examples" / "graphs").glob("*.dml"))
COMPUTED_SIZES = ("conv_net_training_step", "unet_decoder_backward")
"""Graphs with sizes that are expressions: the types of their outputs cannot be said beforehand."""


@pytest.mark.grid(2)
@pytest.mark.parametrize(
    "path", [p for p in GRAPHS if p.stem not in COMPUTED_SIZES], ids=lambda path: path.stem
)
def test_every_graph_has_a_gradient(path: Path) -> None:
    graph = dmlc.load(path).graphs[path.stem]
    inputs = [i for i in graph.definition.syntax.inputs if i.type.dtype.text.startswith("FLOAT")]
    derived = dmlc.gradient(graph, [i.name.text for i in inputs])
    assert isinstance(derived, Graph)
    function = derived.bind()
    assert [r.name for r in function.results] == [f"d_{i.name.text}" for i in inputs]
    # In the place of the graph in its file it means the same.
    whole = path.read_text("utf-8").partition("graph ")[0] + check_layout(derived)
    assert dmlc.parse(whole, str(path)).graphs[derived.name].bind() == function


def test_what_has_no_floats_has_no_gradient() -> None:
    for name in ("directml.DIAGONAL_MATRIX", "directml.ELEMENT_WISE_BIT_AND"):
        assert name in WITHOUT
        assert not LIBRARY[name].definition.is_differentiable

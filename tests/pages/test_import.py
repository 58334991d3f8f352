"""Whole pages: each becomes a description that checks, and says what the library says."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dmlc
from dmlc import pages
from dmlc.language.definitions import OperatorDefinition
from dmlc.language.format import format_expression, format_sentence
from dmlc.language.syntax import Expression, Sentence
from dmlc.source import UnavailableError
from tests.pages.corpus import KEPT, PUBLISHED, list_pages, read

FACTS = KEPT.parent / "directml_operators.json"
ALL = [*list_pages(KEPT), *list_pages(PUBLISHED)]
RELU_GRAD = [p for p in ALL if p.name in ("activation_relu_grad.md", "activation_relu_grad.fr.md")]


def name_of(path: Path) -> str:
    return path.name if path.is_relative_to(KEPT) else f"published {path.name}"


def load(path: Path) -> dmlc.Operator:
    """The operator that a page describes."""
    made = pages.import_page(path)
    (operator,) = dmlc.parse(made.text, filename=f"{made.name}.dml").operators.values()
    assert operator.definition.short_name == made.name
    return operator


def show(expression: Expression | None) -> str | None:
    return None if expression is None else format_expression(expression)


def describe(definition: OperatorDefinition) -> dict[str, Any]:
    """What a description says, but for its doc string, its formula and its examples."""
    return {
        "name": definition.name,
        "introduced": definition.introduced,
        "forward": definition.forward,
        "attributes": [
            (a.name, a.base, a.enum and dict(a.enum.members), a.values, a.is_array,
             show(a.length), show(a.default))
            for a in definition.attributes
        ],
        "levels": [
            (level.level, [
                (t.name, t.output, t.optional, t.array, t.shape_name, t.dimensions, t.ranks,
                 t.dtypes)
                for t in level.tensors
            ])
            for level in definition.levels
        ],
        "types": [dict(row.types) for row in definition.combinations],
        "constraints": [
            format_sentence(c) if isinstance(c, Sentence) else show(c.condition)
            for c in definition.constraints
        ],
    }  # fmt: skip


# Every page ------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ALL, ids=name_of)
def test_a_page_becomes_a_description(path: Path) -> None:
    made = pages.import_page(path)
    module = dmlc.parse(made.text, filename=f"{made.name}.dml")
    said = [d.message for d in module.diagnostics if "no formula" in d.message]
    (operator,) = module.operators.values()
    assert len(said) == (not operator.definition.has_formula)
    figures = made.figures
    filled = [line for line in path.read_text("utf-8").split("\n") if line.strip()]
    assert figures.lines == len(filled)
    # What was not understood is there, with its line.
    remarks = {int(n) for n in re.findall(r"^ *// line (\d+): ", made.text, re.MULTILINE)}
    assert bool(remarks) or figures.missed == 0


MISSED = {
    "Concat.md": 4, "MatMul.md": 7, "Quantize.md": 3, "activation_relu_grad.de.md": 7,
    "average_pooling.md": 1, "gemm.md": 1, "reduce.md": 1,
}  # fmt: skip
"""How many lines of the pages kept here are not understood; of the others all are."""


@pytest.mark.parametrize("path", ALL, ids=name_of)
def test_pages_are_understood(path: Path) -> None:
    figures = pages.import_page(path).figures
    if path.is_relative_to(KEPT):
        assert figures.missed == MISSED.get(path.name, 0)
    else:
        assert figures.share >= 0.95


@pytest.mark.parametrize("path", [p for p in ALL if "_" in p.stem], ids=name_of)
def test_fields_are_those_of_the_schema(path: Path) -> None:
    operator = load(path)
    fields: list[list[str]] = json.loads(FACTS.read_text("utf-8"))[operator.definition.short_name][
        "fields"
    ]
    found = {t.name: t.optional for t in operator.definition.newest.tensors}
    found |= {a.name: False for a in operator.definition.attributes}
    # The short page of average pooling leaves fields out.
    known = {name: need for name, _, _, need in fields if name in found or "short" not in str(path)}
    assert found.keys() <= known.keys()
    if not path.is_relative_to(KEPT):
        assert found.keys() == known.keys()
    for name, optional in found.items():
        if operator.definition.newest.tensor(name) is not None:
            assert optional == (known[name] == "optional")


# The gradient of ReLU --------------------------------------------------------------------------


def describe_relu_grad() -> dict[str, Any]:
    """What the page says of it: the library adds the integers that DirectML takes at level 6.2."""
    found = describe(dmlc.operator("directml.ACTIVATION_RELU_GRAD").definition)
    (oldest, tensors), (newest, _) = found["levels"]
    assert (oldest, newest) == ("DML_FEATURE_LEVEL_3_0", "DML_FEATURE_LEVEL_6_2")
    return {**found, "levels": [(None, tensors)]}


@pytest.mark.parametrize("path", RELU_GRAD, ids=name_of)
def test_the_gradient_of_relu_is_the_librarys(path: Path) -> None:
    found, known = load(path), dmlc.operator("directml.ACTIVATION_RELU_GRAD")
    assert describe(found.definition) == describe_relu_grad()
    tensors = {
        name: dmlc.TensorDesc("FLOAT16", (2, 3)) for name in ("InputTensor", "InputGradientTensor")
    }
    # The page has the formula as code.
    assert str(found.bind(tensors)) == str(known.bind(tensors))


def test_a_page_in_another_language_says_what_tables_and_code_say() -> None:
    made = pages.import_page(KEPT / "activation_relu_grad.de.md")
    found = describe(load(KEPT / "activation_relu_grad.de.md").definition)
    known = describe_relu_grad()
    assert {k for k in found if found[k] != known[k]} == {"constraints"}
    assert "müssen dieselben DataType" in made.text
    assert "OutputGradientTensor = X > 0 ? dY : 0" in made.text


@pytest.mark.parametrize("path", [p for p in ALL if p.name == "ReLUBackward.rst"], ids=name_of)
def test_the_onednn_gradient_of_relu_is_the_librarys(path: Path) -> None:
    found, known = load(path).definition, dmlc.operator("onednn.ReLUBackward").definition
    assert describe(found) == describe(known)
    assert not found.has_formula


# Formulas --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("page", "known", "attributes"),
    [
        ("activation_elu.md", "directml.ACTIVATION_ELU", {"Alpha": 1.5}),
        ("Elu.md", "onednn.Elu", {"alpha": 1.5}),
        ("Elu.rst", "onednn.Elu", {"alpha": 1.5}),
        ("element_wise_clip1.md", "directml.ELEMENT_WISE_CLIP1",
         {"MinMaxDataType": "FLOAT32", "Min": -1, "Max": 1.5, "ScaleBias": [2, 0.5]}),
    ],
)  # fmt: skip
def test_a_formula_gives_what_the_librarys_gives(
    page: str, known: str, attributes: dict[str, Any]
) -> None:
    found, other = load(KEPT / page), dmlc.operator(known)
    (name,) = (t.name for t in found.definition.newest.inputs)
    given = {name: np.array([[-3, -0.25, 0.5, 2], [0, 1, 4, -1]], np.float32)}
    results = [dmlc.run(op, given, attributes=attributes, device="reference")
               for op in (found, other)]  # fmt: skip
    for output, values in results[0].items():
        np.testing.assert_allclose(values, results[1][output], rtol=1e-6)


BATCH_NORM = [p for p in ALL if p.name == "batch_normalization_training_grad.md"]


@pytest.mark.parametrize("path", BATCH_NORM, ids=name_of)
def test_the_batch_norm_gradient_of_the_page_is_the_librarys(path: Path) -> None:
    found, other = load(path), dmlc.operator("directml.BATCH_NORMALIZATION_TRAINING_GRAD")
    random = np.random.default_rng(3)
    x = random.standard_normal((6, 3)).astype(np.float32)
    given = {
        "InputTensor": x,
        "InputGradientTensor": random.standard_normal((6, 3)).astype(np.float32),
        "MeanTensor": x.mean(0, keepdims=True),
        "VarianceTensor": x.var(0, keepdims=True),
        "ScaleTensor": random.standard_normal((1, 3)).astype(np.float32),
    }
    results = [dmlc.run(op, given, attributes={"Epsilon": 1e-3}, device="reference")
               for op in (found, other)]  # fmt: skip
    for output, values in results[0].items():
        np.testing.assert_allclose(values, results[1][output], rtol=1e-4, atol=1e-6)


def test_an_operator_without_a_formula_is_not_compiled() -> None:
    operator = load(KEPT / "gemm.md")
    with pytest.raises(dmlc.DmlcError, match=r"'directml\.GEMM' has no formula: it cannot be"):
        operator.bind({n: dmlc.TensorDesc("FLOAT32", (2, 2)) for n in ("ATensor", "BTensor")})


# What pages say --------------------------------------------------------------------------------


def said(name: str) -> str:
    return pages.import_page(KEPT / name).text


def test_feature_levels_come_oldest_first() -> None:
    found = load(KEPT / "activation_elu.md").definition
    assert [t.level for t in found.levels] == [f"DML_FEATURE_LEVEL_{n}_0" for n in (1, 2, 3)]
    assert [t.tensors[0].ranks[-1] for t in found.levels] == [4, 5, 8]
    (alpha,) = found.attributes
    assert show(alpha.default) == "1.0"


def test_an_array_of_tensors_and_its_examples() -> None:
    found = load(KEPT / "join.md").definition
    assert found.newest.tensors[0].array
    assert [e.title for e in found.examples] == [
        "Columns beside columns", "Both ways: Joining axis 0", "Both ways: Joining axis 1"
    ]  # fmt: skip
    text = said("join.md")
    assert "| InputCount | UINT | InputTensors.Count |" in text
    assert "require Axis <= OutputTensor.DimensionCount - 1" in text
    assert "InputTensors[1] = [[7], [8]]" in text


def test_tables_for_each_function_permit_what_any_does() -> None:
    text = said("reduce.md")
    found = load(KEPT / "reduce.md").definition
    assert found.newest.tensor("OutputTensor") is not None
    assert "| OutputTensor | Output | 1 to 8                     | INT64, UINT32, FLOAT32" in text
    assert found.attributes[0].enum is not None
    assert found.attributes[0].enum.members["SUM"] == 10
    assert "Axes        = [0]" in text
    assert "(any(Axes == d) ? 1 : InputTensor.Sizes[d])" in text


def test_sizes_that_code_works_out_are_constraints() -> None:
    operator = load(KEPT / "average_pooling.md")
    tensor = operator.definition.newest.tensor("InputTensor")
    assert tensor is not None
    assert [d.name for d in tensor.dimensions or () if d.optional] == ["Depth"]
    text = " ".join(said("average_pooling.md").split())
    assert "WindowSize) / Strides) + 1)" in text
    assert "require DimensionCount == InputTensor.DimensionCount - 2" in text
    assert "The page's code writes WindowSizes for WindowSize." in text


def test_the_oldest_pages_have_no_tables() -> None:
    found = load(KEPT / "gemm.md").definition
    assert [(t.name, t.output, t.optional) for t in found.newest.tensors] == [
        ("ATensor", False, False), ("BTensor", False, False), ("CTensor", False, True),
        ("OutputTensor", True, False),
    ]  # fmt: skip
    fused = found.attribute("FusedActivation")
    assert fused is not None
    assert "ACTIVATION_RELU" in (fused.values or ())


def test_any_number_of_inputs() -> None:
    found = load(KEPT / "Concat.md").definition
    assert [(t.name, t.array) for t in found.newest.tensors] == [("src", True), ("dst", False)]


def test_types_that_the_language_lacks_are_named() -> None:
    text = said("Quantize.md")
    assert "the data types f8_e4m3, f8_e5m2 of dst" in text
    assert "require axis >= -src.DimensionCount && axis < src.DimensionCount" in text


def test_what_is_not_understood_is_a_comment_with_its_line() -> None:
    text = read("activation_elu.md")
    added = text.replace("## Availability", "The moon must be full.\n\n## Availability")
    made = pages.import_text(added, "elu.md")
    line = added.split("\n").index("The moon must be full.") + 1
    assert f"    // line {line}: The moon must be full." in made.text
    before = pages.import_text(text, "elu.md").figures
    assert made.figures.missed == before.missed + 1


def test_a_constraint_that_the_language_refuses_is_a_comment() -> None:
    text = read("activation_elu.md").replace(
        "*InputTensor* and *OutputTensor* must have the same *DataType*,",
        "*InputTensor* and *OutputTenor* must have the same *DataType*,",
    )
    made = pages.import_text(text, "elu.md")
    assert "must have" not in made.text.partition("// What was not put")[0]
    assert "OutputTenor must have the same DataType" in made.text


def test_a_page_may_say_nothing_of_its_operator() -> None:
    text = read("Elu.md").replace("Elu gives this for every element of", "@note\n\n")
    assert "operator Elu {" in pages.import_text(text, "Elu.md").text
    text = read("activation_elu.md").replace("Applies the exponential", "[!NOTE]\n\nApplies the")
    assert "operator ACTIVATION_ELU {" in pages.import_text(text, "elu.md").text


# Mistakes --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        ("# A page\n\nOf nothing.\n", "page.md", "'page.md' is about no operator"),
        ("", "page.md", "'page.md' is about no operator"),
        ("A page\n======\n", "page.rst", "'page.rst' is about no operator"),
        ("", "page.html", "'page.html' is no page that is read: their names end in .md"),
        ("x" * 9000, "page.md", "line 1 has more than 8000 characters"),
        ("# DML_X_OPERATOR_DESC\n", "page.md", "describes no operator of the language"),
        ("   x\n  y\n z\n" * 400_000, "page.md", "is larger than 1 MiB"),
    ],
)
def test_a_page_that_cannot_be_read_is_refused(text: str, name: str, message: str) -> None:
    with pytest.raises(dmlc.DmlcError, match=re.escape(message)):
        pages.import_text(text, name)


def test_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(dmlc.DmlcError, match="no such file"):
        pages.import_page(tmp_path / "page.md")
    (tmp_path / "page.md").write_bytes(b"\xff\xfe")
    with pytest.raises(dmlc.DmlcError, match="is not UTF-8 text: byte 0 is wrong"):
        pages.import_page(tmp_path / "page.md")


def test_no_file_is_included(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("the secret", "utf-8")
    text = read("Elu.rst") + f"\n.. include:: {tmp_path / 'secret.txt'}\n"
    assert "the secret" not in pages.import_text(text, "Elu.rst").text


@pytest.mark.parametrize("package", ["docutils", "markdown_it"])
def test_packages_that_are_missing_are_named(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [n for n in sys.modules if n.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    for name in [n for n in sys.modules if n.startswith("dmlc.pages.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delattr(pages, "import_page", raising=False)
    monkeypatch.delitem(vars(pages), "import_page", raising=False)
    with pytest.raises(UnavailableError, match=r"pip install 'dmlc\[import\]'"):
        _ = pages.import_page


def test_the_packages_are_loaded_when_they_are_needed() -> None:
    code = (
        "import sys, dmlc.pages, dmlc.cli.import_command; assert 'docutils' not in sys.modules; "
        "dmlc.pages.import_page; assert 'docutils' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)

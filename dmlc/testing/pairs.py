"""Comparison of hand-written gradients with their forward operators.

The gradient is composed with its `forward` operator into one function of the forward inputs and of
the incoming gradients, so that forward results that the gradient reads are recomputed. The function
that `transform.differentiate` derives has the same inputs and must give the same results: both are
computed in float64, and may differ by the rounding of the operator's own types. `building.partner`
matches the gradient's rows with the forward operator's tensors.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from dmlc import ir
from dmlc.binding import Operator, TensorDesc, ir_name
from dmlc.binding.facts import Binding
from dmlc.binding.gradient import lower
from dmlc.binding.stages import rename_tensors
from dmlc.building.partner import match_partner
from dmlc.catalog import operators
from dmlc.ir.naming import take_name
from dmlc.language.definitions import GradientDefinition, OperatorDefinition
from dmlc.oracle import find_expected
from dmlc.parameters import expect
from dmlc.scalars import Array, DataType
from dmlc.source import DmlcError, UnsupportedError, counted, unknown_name
from dmlc.testing.bounds import bound_errors
from dmlc.testing.case import Case
from dmlc.testing.compare import Verdict
from dmlc.testing.gradients import measure_gradient, widen_floats
from dmlc.transform.differentiate import differentiate
from dmlc.transform.simplify import drop_marks, rename_loop, rename_stage

_SEED = 20
"""Seed of forward inputs that the gradient does not have."""
_STEP = 1e-7
"""Relative step used to detect a jump of the gradient."""
_JUMP = 1e-4
"""Relative change of the gradient over a step that counts as a jump."""
_MOST_PLACES = 64
"""Largest number of elements of an output that are examined one by one."""


@dataclasses.dataclass(frozen=True, slots=True)
class PairVerdict:
    """Comparison of one output of a gradient with its forward operator."""

    verdict: Verdict
    of: str
    """Forward input that it is the gradient with respect to."""
    judged: int
    """Number of elements compared: those at kinks and those with a gradient that is not finite are
    left out."""

    @property
    def holds(self) -> bool:
        return self.verdict.holds

    def __str__(self) -> str:
        text = f"the gradient with respect to '{self.of}'"
        worst, most = self.verdict.worst, self.verdict.most
        found, wanted = self.verdict.found, self.verdict.wanted
        if self.holds or worst is None or most is None or found is None or wanted is None:
            return f"{text} agrees at {counted(self.judged, 'element')}"
        return (
            f"{text} at {list(worst)} is {found:.9g}, and what its forward operator implies is "
            f"{wanted:.9g}: they may be {most:.3g} apart at most"
        )


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Pair:
    """Forward operator with its written and its derived gradient, as functions of the same
    inputs."""

    forward: ir.Function
    written: ir.Function
    derived: ir.Function
    inputs: Mapping[str, Array]
    arriving: Mapping[str, str]
    """Input with the gradient of each result of the forward function."""
    outputs: Mapping[str, str]
    """Forward input of each result of both gradients."""
    shown: Mapping[str, str]
    """Table names of the forward operator's results and inputs, by their names here."""
    marked: bool = False
    """Whether the forward operator has functions with gradients of their own, or stops some, so
    that finite differences do not apply."""

    def widen(self, least: DataType) -> Pair:
        """Pair with floats of types below `least` replaced by `least`."""
        floats = {p.name for p in (*self.forward.parameters, *self.written.parameters)
                  if p.dtype.is_float and p.dtype.bytes < least.bytes}  # fmt: skip
        return dataclasses.replace(
            self,
            forward=widen_floats(self.forward, least),
            written=widen_floats(self.written, least),
            derived=widen_floats(self.derived, least),
            inputs={n: a.astype(least.dtype) if n in floats else a for n, a in self.inputs.items()},
        )

    def with_inputs(self, inputs: Mapping[str, Array]) -> Pair:
        """Pair with other input data."""
        return dataclasses.replace(self, inputs=inputs)

    def evaluate(self, function: ir.Function) -> dict[str, Array]:
        """Reference results of a function of the pair."""
        return find_expected(function, self.take(function))

    def bound(self, function: ir.Function) -> dict[str, Array]:
        """Error bound of each element of the results."""
        with np.errstate(all="ignore"):
            return bound_errors(function, self.take(function))

    def take(self, function: ir.Function) -> dict[str, Array]:
        """Inputs that one of the functions takes."""
        return {p.name: self.inputs[p.name] for p in function.parameters}


def check_pair(case: Case) -> dict[str, PairVerdict]:
    """Compares a hand-written gradient with the one derived from its forward operator, on the data
    of a case; returns a verdict per output. Where the derived gradient jumps, any value between the
    one-sided limits passes. Raises `DmlcError`, with the reason, if the two cannot be compared."""
    made = make_pair(case)
    pair, narrow = made.widen(DataType.FLOAT64), made.widen(DataType.FLOAT32)
    written, derived = pair.evaluate(pair.written), pair.evaluate(pair.derived)
    near, far = narrow.bound(narrow.written), narrow.bound(narrow.derived)
    found: dict[str, PairVerdict] = {}
    for name, of in pair.outputs.items():
        with np.errstate(all="ignore"):
            allowed = near[name] + far[name]
            apart = np.abs(written[name] - derived[name])
        settled = ~np.isfinite(derived[name]) | ~np.isfinite(allowed)
        wrong = ~settled & ~(apart <= allowed)
        if wrong.any():
            settled |= _find_kinks(pair, name, written[name], allowed, wrong)
        found[pair.shown[name]] = _judge(
            written[name], derived[name], allowed, settled, pair.shown[of]
        )
    return found


def check_derived(case: Case) -> dict[str, PairVerdict]:
    """Compares the gradient derived from an operator with finite differences, on the data of a
    case; returns a verdict per input. Raises `UnsupportedError` for a case without a gradient."""
    function = widen_floats(case.call.function)
    wanted = {p.name: f"gradient_{p.name}" for p in function.parameters if p.dtype.is_float}
    tensors = function.tensors()
    given = {r.name: f"arriving_{r.name}" for r in function.results
             if tensors[r.name].dtype.is_float}  # fmt: skip
    if not wanted or not given:
        raise UnsupportedError(f"'{case.call.operator.name}' has no gradient of these data types")
    names = {ir_name(name): name for name in case.inputs}
    known = case.given
    inputs = {p.name: known[p.name].astype(p.dtype.dtype) for p in function.parameters}
    derived = differentiate(function, list(wanted), given, wanted).function
    random = np.random.default_rng(_SEED)
    sizes = {name: np.shape(array) for name, array in find_expected(function, inputs).items()}
    weights = {name: random.standard_normal(sizes[name]) for name in given}
    held = {**inputs, **{own: weights[name] for name, own in given.items()}}
    held = {p.name: held[p.name] for p in derived.parameters}
    gradients, bounds = find_expected(derived, held), bound_errors(derived, held)
    found: dict[str, PairVerdict] = {}
    for name, own in wanted.items():
        slopes = measure_gradient(function, inputs, weights, name)
        allowed = bounds[own] + slopes.allowed
        settled = ~np.isfinite(slopes.gradient) | ~np.isfinite(allowed)
        found[names[name]] = _judge(gradients[own], slopes.gradient, allowed, settled, names[name])
    return found


def check_differences(case: Case) -> dict[str, PairVerdict]:
    """Compares a gradient with finite differences of the forward operator instead of the derived
    gradient: slower, less accurate, and independent of dmlc's differentiation. There is no verdict
    if the forward operator has gradients of its own."""
    made = make_pair(case)
    if made.marked:
        return {}
    pair, narrow = made.widen(DataType.FLOAT64), made.widen(DataType.FLOAT32)
    written, near = pair.evaluate(pair.written), narrow.bound(narrow.written)
    weights = {name: pair.inputs[own] for name, own in pair.arriving.items()}
    inputs = pair.take(pair.forward)
    found: dict[str, PairVerdict] = {}
    for name, of in pair.outputs.items():
        slopes = measure_gradient(pair.forward, inputs, weights, of)
        allowed = near[name] + slopes.allowed
        settled = ~np.isfinite(slopes.gradient) | ~np.isfinite(allowed)
        found[pair.shown[name]] = _judge(
            written[name], slopes.gradient, allowed, settled, pair.shown[of]
        )
    return found


def _judge(written: Array, expected: Array, allowed: Array, settled: Array, of: str) -> PairVerdict:
    """Compares the elements that are not excluded."""
    actual = np.where(settled, expected, written)
    verdict = Verdict.of(actual, expected, np.where(settled, 0.0, allowed))
    return PairVerdict(verdict, of, int(settled.size - np.count_nonzero(settled)))


# Kinks ----------------------------------------------------------------------------------------


def _find_kinks(pair: Pair, name: str, written: Array, allowed: Array, wrong: Array) -> Array:
    """Elements where the derived gradient jumps close to the data, and the written value is between
    the one-sided limits."""
    low, high = (np.full(written.shape, fill) for fill in (np.inf, -np.inf))
    places = np.argwhere(wrong)[:_MOST_PLACES]
    for inputs in _move(pair, pair.outputs[name], places):
        found = pair.with_inputs(inputs).evaluate(pair.derived)[name]
        low, high = np.fmin(low, found), np.fmax(high, found)
    with np.errstate(all="ignore"):
        size = np.maximum(np.abs(low), np.abs(high))
        slack = allowed + 10 * _STEP * size
        jumps = high - low > _JUMP * size + allowed
        return wrong & jumps & (low - slack <= written) & (written <= high + slack)


def _move(pair: Pair, of: str, places: Array) -> Iterator[dict[str, Array]]:
    """Inputs with small changes: of all floats at random, and of one element at a time."""
    random = np.random.default_rng(_SEED)
    floats = [p.name for p in pair.forward.parameters if p.dtype.is_float]
    for _ in range(4):
        moved = dict(pair.inputs)
        for name in floats:
            steps = _STEP * np.maximum(np.abs(moved[name]), 1.0)
            moved[name] = moved[name] + steps * random.choice((-1.0, 1.0), steps.shape)
        yield moved
    for place in map(tuple, places):
        for side in (-1.0, 1.0):
            array = pair.inputs[of].copy()
            array[place] += side * _STEP * max(abs(float(array[place])), 1.0)
            yield {**pair.inputs, of: array}


# The functions --------------------------------------------------------------------------------


def is_pair(operator: Operator) -> bool:
    """Whether an operator is a hand-written gradient with a `forward` operator."""
    definition = operator.definition
    return definition.forward is not None and definition.compute is not None


def find_forward(operator: Operator) -> OperatorDefinition:
    """Forward operator of a gradient. Raises `DmlcError` if there is none."""
    definition = operator.definition
    if definition.forward is None:
        raise DmlcError(f"'{operator.name}' names no 'forward' operator, and is no gradient")
    if definition.gradient is not None:
        return definition.gradient.forward
    if definition.partner is not None:
        return definition.partner
    if definition.forward in operators():
        return operators()[definition.forward].definition
    declared = definition.syntax.forward
    span = None if declared is None else declared.operator.span
    raise DmlcError(
        unknown_name("forward operator", definition.forward, operators(), span, "E0202")
    )


def make_pair(case: Case) -> Pair:
    """Functions of a gradient's case and its forward operator. Raises `DmlcError` if the rows of
    the tables do not match, and `UnsupportedError` for a case without a gradient: of whole numbers,
    or refused by the forward operator."""
    expect("case", case, Case, "a Case")
    return _Matching(case).make()


class _Matching:
    """Correspondence of a case's tensors with those of its forward operator."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.operator = case.call.operator
        self.theirs = find_forward(self.operator)
        self.definition = self.match()
        self.binding, self.forward = self.bind()

    def fail(self, reason: DmlcError | str) -> DmlcError:
        """Error of a comparison that is impossible."""
        said = reason if isinstance(reason, str) else reason.diagnostics[0].message
        declared = self.operator.definition.syntax.forward
        message = f"'{self.operator.name}' cannot be held to '{self.theirs.name}': {said}"
        kind = UnsupportedError if isinstance(reason, UnsupportedError) else DmlcError
        return kind(message, None if declared is None else declared.operator.span)

    def match(self) -> GradientDefinition:
        """Matches table rows with forward tensors."""
        use_dst = self.case.call.binding.attributes.get("use_dst") is True
        try:
            return match_partner(self.operator.definition, self.theirs, use_dst=use_dst)
        except DmlcError as error:
            raise self.fail(error) from None

    def bind(self) -> tuple[Binding, Binding]:
        """Bindings of the gradient and its forward operator."""
        made = dataclasses.replace(self.operator.definition, compute=None, gradient=self.definition)
        call = self.case.call
        # Strides do not affect values.
        packed = {n: TensorDesc(d.data_type, d.sizes) for n, d in call.tensors.items()}
        try:
            binding = Operator(made).resolve(packed, call.attributes)
        except DmlcError as error:
            # Of another call, perhaps: it may be that the gradient permits more.
            raise self.fail(UnsupportedError(error.diagnostics)) from None
        if binding.forward is None:
            raise self.fail("it is not bound")
        return binding, binding.forward

    def make(self) -> Pair:
        try:
            lowered = lower(self.forward)
        except DmlcError as error:
            raise self.fail(error) from None
        own = self.case.call.function
        inputs = [p.name for p in lowered.parameters]
        outputs = [r.name for r in lowered.results]
        tensors = lowered.tensors()
        floats = [n for n in (*inputs, *outputs) if tensors[n].dtype.is_float]
        values = self.find_rows((*inputs, *outputs), self.definition.values)
        gradients = self.find_rows(floats, self.definition.gradients)
        arriving = {n: gradients[n] for n in outputs if n in gradients}
        wanted = {n: gradients[n] for n in inputs if n in gradients}
        self.check_asked(own, values, arriving, wanted)
        taken = dict.fromkeys((*own.tensors(), *wanted.values()))
        names = {n: values.get(n) or take_name(n, taken) for n in inputs}
        made = (*lowered.delays(), *lowered.stages)
        names |= {s.name: take_name(s.name, taken) for s in made}
        marked = rename_tensors(lowered, names)
        forward = drop_marks(marked)
        known = {own: names[n] for n, own in values.items()}
        written = _join(forward, own, known)
        derived = differentiate(
            marked,
            [names[n] for n in wanted],
            {names[n]: own for n, own in arriving.items()},
            {names[n]: own for n, own in wanted.items()},
        ).function
        derived = drop_marks(derived)
        for function in (forward, written, derived):
            ir.verify(function, "pair")
        theirs = {ir_name(t.name): t.name for t in self.forward.tensors.values()}
        return Pair(
            forward,
            written,
            derived,
            self.list_inputs(forward, written),
            {names[n]: own for n, own in arriving.items()},
            {own: names[n] for n, own in wanted.items()},
            {
                **{ir_name(t.name): t.name for t in self.binding.tensors.values()},
                **{names[n]: theirs[n] for n in inputs},
            },
            forward is not marked,
        )

    def find_rows(self, names: Iterable[str], rows: Mapping[str, str]) -> dict[str, str]:
        """Tensors of the case that stand for some tensors of the forward function."""
        present = {ir_name(t.name) for t in self.binding.tensors.values()}
        theirs = {ir_name(t.name): t.definition for t in self.forward.tensors.values()}
        found: dict[str, str] = {}
        for name in names:
            definition = theirs[name]
            row = rows.get(definition.row)
            own = "" if row is None else ir_name(definition.name.replace(definition.row, row, 1))
            if own in present:
                found[name] = own
        return found

    def check_asked(
        self,
        own: ir.Function,
        values: Mapping[str, str],
        arriving: Mapping[str, str],
        wanted: Mapping[str, str],
    ) -> None:
        """Raises for reads of inputs without a counterpart, and for a case without gradients."""
        known = (*values.values(), *arriving.values())
        if not arriving or not wanted:
            missing = "given" if not arriving else "wanted"
            raise self.fail(UnsupportedError(f"no gradient of floating-point numbers is {missing}"))
        read = {load.tensor for stage in own.stages for load in stage.body.loads()}
        for parameter in own.parameters:
            if parameter.name in read and parameter.name not in known:
                raise self.fail(f"its input '{parameter.name}' stands for nothing of that")

    def list_inputs(self, forward: ir.Function, written: ir.Function) -> dict[str, Array]:
        """Data of the case, and random numbers for the forward inputs that it lacks."""
        given = self.case.given
        random = np.random.default_rng(_SEED)
        found: dict[str, Array] = {}
        own = [p for p in written.parameters if forward.parameter(p.name) is None]
        for parameter in (*forward.parameters, *own):
            dtype = parameter.dtype.dtype
            if parameter.name in given:
                found[parameter.name] = given[parameter.name].astype(dtype)
            elif parameter.dtype.is_float:
                sizes = [e for e in parameter.extents if isinstance(e, int)]
                found[parameter.name] = random.standard_normal(sizes).astype(dtype)
            else:
                raise self.fail(f"nothing at hand says what '{parameter.name}' holds")
        return found


def _join(forward: ir.Function, own: ir.Function, known: Mapping[str, str]) -> ir.Function:
    """Composition of a function with its forward function: it reads `known` tensors from that."""
    parameters = tuple(
        dataclasses.replace(p, strides=None) for p in own.parameters if p.name not in known
    )
    return dataclasses.replace(
        own,
        parameters=(*forward.parameters, *parameters),
        stages=(*forward.stages, *(rename_stage(s, known) for s in own.stages)),
        tables=(*forward.tables, *own.tables),
        in_place=(),
        loops=(*forward.loops, *(rename_loop(loop, known) for loop in own.loops)),
    )

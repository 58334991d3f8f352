"""Gradients of registered operators.

The gradient of an operator is computed by other operators: by hand-written ones that name it as
their `forward` operator, if their tables accept the call; and otherwise by the operator that is
derived from its formula. These are registered when first needed, so that PyTorch can trace them,
and differentiate them again."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar, cast

import torch
from torch.utils._pytree import (
    TreeSpec,
    tree_flatten,
    tree_leaves,
    tree_structure,
    tree_unflatten,
)

from dmlc import library
from dmlc.binding import Operator, ir_name
from dmlc.building.partner import match_partner
from dmlc.catalog import operator as find_operator
from dmlc.catalog import operators
from dmlc.language.definitions import GradientDefinition
from dmlc.source import DmlcError, InternalError
from dmlc.torch.internals import AFTER_AUTOGRAD, PLAIN_KEYS, apply
from dmlc.torch.registered import Fact, Facts, Registered, fact_of
from dmlc.torch.subjects import OperatorSubject, Shaped, Subject, default_name, freeze
from dmlc.torch.tensors import TORCH_TYPES

Forward: TypeAlias = "Registered[Gradients]"
"""An operator that is differentiated, or that is a gradient."""

Register: TypeAlias = Callable[[Subject, str, Sequence[Operator]], Forward]
"""Makes another operator, with the operators that are its gradient."""

Made = TypeVar("Made")
_PLANS_KEPT = 1024


def _facts_of(given: Any) -> Fact:
    if isinstance(given, list):
        return [fact_of(t) for t in cast("list[torch.Tensor]", given)]
    return None if given is None else fact_of(given)


@dataclasses.dataclass(frozen=True, slots=True)
class GradientCall:
    """A call of one gradient operator."""

    made: Forward
    values: Mapping[str, str]
    """By its inputs: the inputs and outputs of the forward operator whose values they are."""
    gradients: Mapping[str, tuple[str, ...]]
    """By its inputs: the outputs whose gradients they are, several for an array."""
    settings: Mapping[str, object]
    sizes: Mapping[str, str]
    """By its settings: the inputs whose sizes they are."""
    results: Mapping[str, tuple[int, ...] | int]
    """By inputs of the forward operator: which of its outputs are their gradients."""

    def list_settings(self, facts: Facts) -> dict[str, Any]:
        """All keyword arguments of the call."""
        return {
            **self.settings,
            **{name: _shape_of(facts[of])[1] for name, of in self.sizes.items()},
        }

    def run(self, values: Mapping[str, Any], gradients: Mapping[str, Any], facts: Facts) -> Any:
        """Gradients of the forward operator's inputs, by name; a list for an array."""
        args: list[Any] = []
        for row in self.made.inputs:
            if row.name not in self.gradients:
                args.append(values.get(self.values.get(row.name, "")))
                continue
            given = [gradients.get(output) for output in self.gradients[row.name]]
            if not row.optional:
                shapes = [_shape_of(facts[output]) for output in self.gradients[row.name]]
                given = [
                    torch.zeros(sizes, dtype=TORCH_TYPES[dtype]) if each is None else each
                    for each, (dtype, sizes) in zip(given, shapes, strict=True)
                ]
            args.append(given if row.array else given[0])
        found = self.made.op(*args, **self.list_settings(facts))
        outputs = [found] if isinstance(found, torch.Tensor) else list(found)
        return {
            name: outputs[places] if isinstance(places, int) else [outputs[k] for k in places]
            for name, places in self.results.items()
        }


def _shape_of(fact: Fact) -> Shaped:
    if fact is None or isinstance(fact, list):
        raise InternalError("an array of tensors has no one size")
    return fact


class Gradients:
    """Gradient operators of a registered operator, chosen call by call."""

    def __init__(self, made: Forward, partners: Sequence[Operator], register: Register) -> None:
        self._made = made
        self._register = register
        self._stated = tuple(partners)
        self._partners: list[tuple[Operator, GradientDefinition]] | None = None
        self._known: dict[object, Any] = {}
        floats = any(row.floats for row in made.inputs), any(row.floats for row in made.outputs)
        self.possible = all(floats)

    def complete(self, wanted: Sequence[str], facts: Facts, settings: Mapping[str, Any]) -> Forward:
        """Operator to call in place of this one if `wanted` inputs are differentiated: it also
        returns the optional outputs that hand-written gradients read."""
        return self._once(
            ("complete", tuple(wanted)), facts, settings,
            lambda: self._complete(wanted, facts, settings),
        )  # fmt: skip

    def plan(
        self,
        wanted: Sequence[str],
        given: Sequence[str],
        facts: Facts,
        settings: Mapping[str, Any],
    ) -> list[GradientCall]:
        """Calls that compute the gradients of `wanted` inputs from those of `given` outputs.
        `facts` has all inputs and outputs. Raises `DmlcError`."""
        return self._once(
            (tuple(wanted), tuple(given)), facts, settings,
            lambda: self._plan(wanted, given, facts, settings),
        )  # fmt: skip

    def _once(
        self, what: object, facts: Facts, settings: Mapping[str, Any], make: Callable[[], Made]
    ) -> Made:
        """Result of `make`, kept for further calls if all sizes are numbers: symbolic sizes belong
        to one trace."""
        shaped = tuple((n, tuple(f) if isinstance(f, list) else f) for n, f in facts.items())
        key = what, shaped, freeze(settings)
        try:
            found = self._known.get(key)
        except TypeError:
            return make()
        if found is None:
            if len(self._known) >= _PLANS_KEPT:
                self._known.clear()
            found = self._known[key] = make()
        return found

    # What is written by hand ----------------------------------------------------------------

    def _list_partners(self) -> list[tuple[Operator, GradientDefinition]]:
        """Hand-written gradient operators, with the matching of their rows."""
        if self._partners is None:
            subject, found = self._made.subject, list[tuple[Operator, GradientDefinition]]()
            if isinstance(subject, OperatorSubject):
                forward = subject.operator.definition
                known = list(self._stated)
                if operators().get(forward.name) == subject.operator:
                    known += [find_operator(n) for n in library.find_gradients(forward.name)]
                for each in known:
                    found.append((each, match_partner(each.definition, forward, use_dst=False)))
            self._partners = found
        return self._partners

    def _complete(
        self, wanted: Sequence[str], facts: Facts, settings: Mapping[str, Any]
    ) -> Forward:
        subject, names = self._made.subject, [row.name for row in self._made.outputs]
        if not isinstance(subject, OperatorSubject):
            return self._made
        rows = subject.operator.definition.newest.outputs
        optional = [t.name for t in rows if t.optional and t.name not in names]
        needed: dict[str, None] = {}
        for partner, matched in self._list_partners():
            read = [theirs for theirs in matched.values if theirs in optional]
            serving = [n for n in wanted if n in matched.gradients]
            if not read or not serving:
                continue
            try:
                made = self._extend(subject, read)
                whole = {**facts, **made.infer(facts, settings)}
                given = [n for n in names if n in matched.gradients]
                step = self._serve(partner, matched, serving, given, whole, settings)
            except DmlcError:
                continue  # Its tables, or those of the operator itself, refuse the call.
            needed.update(dict.fromkeys(read if step is not None else ()))
        return self._extend(subject, list(needed)) if needed else self._made

    def _extend(self, subject: OperatorSubject, more: Sequence[str]) -> Forward:
        """Forward operator with further optional outputs."""
        computed = tuple(dict.fromkeys((*subject.computed, *more)))
        extended = dataclasses.replace(subject, computed=computed)
        name = f"{self._made.name}_with_{'_'.join(more)}"
        return self._register(extended, name, self._stated)

    def _plan(
        self,
        wanted: Sequence[str],
        given: Sequence[str],
        facts: Facts,
        settings: Mapping[str, Any],
    ) -> list[GradientCall]:
        left = list(wanted)
        steps: list[GradientCall] = []
        for partner, matched in self._list_partners():
            serving = [n for n in left if n in matched.gradients]
            try:
                step = self._serve(partner, matched, serving, given, facts, settings)
            except DmlcError:
                continue  # Its tables refuse the call, and the derived gradient serves it.
            if step is not None:
                steps.append(step)
                left = [n for n in left if n not in serving]
        if left:
            steps.append(self._derive(left, given, facts, settings))
        return steps

    def _serve(
        self,
        partner: Operator,
        matched: GradientDefinition,
        wanted: Sequence[str],
        given: Sequence[str],
        facts: Facts,
        settings: Mapping[str, Any],
    ) -> GradientCall | None:
        """Call of a hand-written gradient operator; None if it lacks an input or output of the
        call. Raises `DmlcError` if its tables refuse the call."""
        definition = partner.definition
        rows = {t.name: t for t in definition.newest.tensors}
        stated = self._made.own_settings(settings)
        present = [n for row in self._made.inputs if facts[n := row.name] is not None]
        arriving = {matched.gradients[n]: n for n in given if n in matched.gradients}
        values = {own: n for n, own in matched.values.items() if facts.get(n) is not None}
        if (
            not wanted
            or len(arriving) < len(given)
            or any(n not in matched.values and n not in matched.gradients for n in present)
            or any(n not in matched.attributes for n in stated)
            or any(
                not row.optional and row.name not in values and row.name not in arriving
                for row in definition.newest.inputs
            )
        ):
            return None
        results = {n: matched.gradients[n] for n in wanted}
        optional = tuple(row for row in results.values() if rows[row].optional)
        subject = OperatorSubject(partner, optional)
        made = self._register(subject, default_name(subject), ())
        said = {matched.attributes[n]: value for n, value in stated.items()}
        if definition.attribute("use_dst") is not None:
            said.setdefault("use_dst", False)
        gradients = {row: (n,) for row, n in arriving.items()}
        step = _make_step(made, values, gradients, said, results, facts)
        made.infer({r: facts[n] for r, n in {**values, **arriving}.items()},
                   step.list_settings(facts))  # fmt: skip
        return step

    # What is derived ------------------------------------------------------------------------

    def _derive(
        self,
        wanted: Sequence[str],
        given: Sequence[str],
        facts: Facts,
        settings: Mapping[str, Any],
    ) -> GradientCall:
        counts = {n: len(f) if isinstance(f := facts[n], list) else None for n in wanted}
        derived = self._made.subject.differentiate(counts, given)
        parts = [self._made.name, "gradient", *wanted]
        if isinstance(derived, OperatorSubject):
            parts += [str(count) for count in counts.values() if count is not None]
        else:
            parts += ["from", *given]
        name = "_".join(parts)
        made = self._register(derived, name, ())
        rows = [row.name for row in made.inputs]
        arriving: dict[str, list[str]] = {}
        for row in self._made.outputs:
            arriving.setdefault(f"d_{row.name.partition('[')[0]}", []).append(row.name)
        return _make_step(
            made,
            {row.name: row.name for row in self._made.inputs if row.name in rows},
            {row: tuple(of) for row, of in arriving.items() if row in rows},
            self._made.own_settings(settings),
            {n: f"d_{n}" for n in wanted},
            facts,
        )


def _make_step(
    made: Forward,
    values: Mapping[str, str],
    gradients: Mapping[str, tuple[str, ...]],
    settings: Mapping[str, object],
    results: Mapping[str, str],
    facts: Facts,
) -> GradientCall:
    known = {s.name for s in made.subject.settings}
    sizes: dict[str, str] = {}
    places: dict[str, tuple[int, ...] | int] = {}
    for theirs, row in results.items():
        own = [k for k, each in enumerate(made.outputs) if each.name.partition("[")[0] == row]
        if isinstance(facts[theirs], list):
            places[theirs] = tuple(own)
            continue
        places[theirs] = own[0]
        if made.outputs[own[0]].sizes:
            sizes[f"{ir_name(row)}_sizes"] = theirs
    said = {n: v for n, v in settings.items() if n in known}
    return GradientCall(made, values, gradients, said, sizes, places)


# PyTorch ----------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class Request:
    """Call whose gradients are wanted, without its tensors."""

    made: Forward
    forward: Forward
    """What is called: it may give more."""
    layout: TreeSpec
    """How the tensors of all inputs in a row are those of arrays."""
    settings: Mapping[str, Any]
    wanted: tuple[str, ...]
    """The inputs whose gradients are."""

    @staticmethod
    def of(made: Forward, args: Sequence[Any], settings: Mapping[str, Any]) -> Request:
        inputs = dict(zip([row.name for row in made.inputs], args, strict=True))
        wanted = [name for name, each in inputs.items() if _needs_gradient(each)]
        facts = {name: _facts_of(each) for name, each in inputs.items()}
        forward = made.gradients.complete(wanted, facts, settings)
        return Request(made, forward, tree_structure(list(args)), settings, tuple(wanted))

    def name_inputs(self, flat: Sequence[Any]) -> dict[str, Any]:
        rows = (row.name for row in self.made.inputs)
        return dict(zip(rows, tree_unflatten(flat, self.layout), strict=True))


class Differentiated(torch.autograd.Function):
    """Call of a registered operator that is to be differentiated."""

    @staticmethod
    def forward(request: Request, *flat: Any) -> Any:
        found = request.forward.op(*tree_unflatten(flat, request.layout), **request.settings)
        return (found,) if isinstance(found, torch.Tensor) else tuple(found)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        request: Request = inputs[0]
        forward = request.forward
        given = request.name_inputs(inputs[1:])
        outputs = {r.name: t for r, t in zip(forward.outputs, output, strict=True)}
        facts = {name: _facts_of(each) for name, each in {**given, **outputs}.items()}
        floats = [name for name, t in outputs.items() if t.is_floating_point()]
        ctx.mark_non_differentiable(*(t for n, t in outputs.items() if n not in floats))
        ctx.set_materialize_grads(False)
        plan = forward.gradients.plan(request.wanted, floats[:1], facts, request.settings)
        read = {theirs for step in plan for theirs in step.values.values()}
        # Where several outputs have gradients, any of them may arrive, and need any of the inputs.
        read |= set(given) if len(floats) > 1 else set()
        kept = {n: t for n, t in {**given, **outputs}.items() if n in read and t is not None}
        ctx.request, ctx.facts = request, facts
        tensors, ctx.kept = tree_flatten(kept)
        ctx.save_for_backward(*tensors)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        request: Request = ctx.request
        forward = request.forward
        values = dict.fromkeys(ctx.facts) | tree_unflatten(ctx.saved_tensors, ctx.kept)
        outputs = (row.name for row in forward.outputs)
        given = {n: g for n, g in zip(outputs, grads, strict=True) if g is not None}
        needs = request.name_inputs(ctx.needs_input_grad[1:])
        wanted = [n for n in request.wanted if any(tree_leaves(needs[n]))]
        found: dict[str, Any] = {}
        if given and wanted:
            for step in forward.gradients.plan(wanted, list(given), ctx.facts, request.settings):
                found |= step.run(values, given, ctx.facts)
        none = request.name_inputs([None] * len(ctx.needs_input_grad[1:]))
        return None, *tree_leaves([found.get(name, each) for name, each in none.items()])


def _needs_gradient(given: Any) -> bool:
    return any(t is not None and t.requires_grad for t in tree_leaves(given))


def make_autograd_kernel(made: Forward) -> Callable[..., Any]:
    """Kernel that PyTorch calls first. If no gradient is wanted and only the CPU kernel remains to
    be called, it calls that directly, which takes less time than PyTorch's dispatch."""
    kernel, op, count = made.kernel, made.op, len(made.outputs)
    rows, possible = len(made.inputs), made.gradients.possible
    arrays = any(row.array for row in made.inputs)
    is_enabled = torch.is_grad_enabled

    def run(keyset: Any, *args: Any, **settings: Any) -> Any:
        if possible and is_enabled():
            for each in tree_leaves(args) if arrays else args:
                if each is not None and each.requires_grad:
                    whole = [*args, *[None] * (rows - len(args))]
                    request = Request.of(made, whole, settings)
                    found: Any = apply(Differentiated, [request, *tree_leaves(whole)])
                    return found[0] if count == 1 else tuple(found[:count])
        if keyset.raw_repr() == PLAIN_KEYS:
            return kernel(*args, **settings)
        return op.redispatch(keyset & AFTER_AUTOGRAD, *args, **settings)

    return run

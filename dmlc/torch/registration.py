"""`register`: an operator, a graph or a function of dmlc as an operator of PyTorch (`registered`),
with a gradient (`autograd`) and a rule for `vmap` (`batching`)."""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from dmlc.binding import Graph, Operator
from dmlc.catalog import operator as find_operator
from dmlc.ir import Function
from dmlc.parameters import expect_items, expect_mapping, expect_text, wrong_kind
from dmlc.source import ArgumentError, DmlcError
from dmlc.torch.autograd import Forward, Gradients, make_autograd_kernel
from dmlc.torch.batching import make_batching_rule
from dmlc.torch.registered import NAMESPACE, Registered
from dmlc.torch.subjects import (
    FunctionSubject,
    GraphSubject,
    OperatorSubject,
    Subject,
    default_name,
)

if TYPE_CHECKING:
    from torch._ops import OpOverload

_lock = threading.RLock()
_registered: dict[str, Forward] = {}


def register(
    operator: str | Operator | Graph | Function,
    *,
    name: str | None = None,
    outputs: Sequence[str] = (),
    entries: Mapping[str, int] | None = None,
    gradient: str | Operator | Sequence[str | Operator] = (),
) -> OpOverload:
    """Registers an operator of PyTorch, and returns it: `torch.ops.dmlc.directml_ACTIVATION_RELU`
    for `directml.ACTIVATION_RELU`.

    It takes tensors by position or by name, in the order of the table, with None for absent
    optional ones; attributes by name; and, unless an input must share them, the sizes and the type
    of an output, as `OutputTensor_sizes` and `OutputTensor_dtype`. `outputs` names the optional
    outputs that it also returns, and `entries` the number of tensors of each array of outputs.
    `name` is another name for it.

    `gradient` names hand-written operators that are its gradient; those of the library are known.
    If they do not accept a call, its gradient is derived. Registering the same again returns the
    same operator. Raises `DmlcError`."""
    subject = _read_subject(operator, outputs, entries)
    partners = [gradient] if isinstance(gradient, str | Operator) else list(gradient)
    known = [_find_partner(each) for each in partners]
    spelt = default_name(subject) if name is None else expect_text("name", name)
    return register_subject(subject, spelt, known).op


def _find_partner(given: object) -> Operator:
    found = find_operator(given) if isinstance(given, str) else given
    if isinstance(found, Operator):
        return found
    raise wrong_kind("gradient", "an operator, its name, or a list of them", found)


def _read_subject(given: object, outputs: object, entries: object) -> Subject:
    listed = expect_items("outputs", outputs, "a list of optional outputs' names")
    computed = tuple(expect_text("each of outputs", n) for n in listed)
    found = find_operator(given) if isinstance(given, str) else given
    if isinstance(found, Operator):
        expected = "a mapping of outputs' names to numbers"
        counts = expect_mapping("entries", {} if entries is None else entries, expected)
        stated = tuple((n, c) for n, c in counts.items() if isinstance(c, int) and c > 0)
        if len(stated) < len(counts):
            raise ArgumentError("entries gives each array of outputs a number of tensors")
        return OperatorSubject(found, computed, stated)
    if computed or entries:
        raise DmlcError("only operators have optional outputs, and arrays of them")
    if isinstance(found, Graph):
        return GraphSubject.of(found)
    if isinstance(found, Function):
        return FunctionSubject(found)
    raise wrong_kind("operator", "an operator, its name, a graph, or an ir.Function", found)


def register_subject(
    subject: Subject, name: str, partners: Sequence[Operator] = (), *, warns: bool = True
) -> Forward:
    """Operator of that name, registered if new. Raises `DmlcError` if another subject has the name.
    With `warns`, calls issue the warnings of their functions."""
    if not re.fullmatch(r"[A-Za-z]\w*", name, re.ASCII):
        raise DmlcError(
            f"'{name}' is no name for an operator of PyTorch: it takes letters, digits and '_'"
        )
    with _lock:
        found = _registered.get(name)
        if found is None:
            found = _registered[name] = Registered(subject, name, warns)
            found.gradients = Gradients(found, partners, _register_another)
            found.add_rules(make_autograd_kernel(found), make_batching_rule(found))
        elif found.subject != subject:
            raise DmlcError(
                f"torch.ops.{NAMESPACE}.{name} is another operator already",
                notes=["give this one a name of its own: name='...'"],
            )
        return found


def _register_another(subject: Subject, name: str, partners: Sequence[Operator] = ()) -> Forward:
    """An operator that the gradient of another one needs."""
    return register_subject(subject, name, partners, warns=False)

"""Hypothesis strategies for syntax trees: everything a `.dml` file can say."""

from __future__ import annotations

from hypothesis import strategies as st

from dmlc.language import syntax
from dmlc.source import Source, Span

NOWHERE = Span(Source("<generated>", ""), 0, 0)
_KEYWORDS = {"inf", "nan", "true", "false", "function", "require", "and", "where", "else"}

names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,6}", fullmatch=True).filter(
    lambda n: n not in _KEYWORDS
)
name_nodes = names.map(lambda n: syntax.Name(n, span=NOWHERE))
dotted_nodes = st.lists(names, min_size=1, max_size=3).map(
    lambda parts: syntax.Name(".".join(parts), span=NOWHERE)
)
texts = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=12)
cell_texts = st.from_regex(r"[A-Za-z0-9{}\[\], _*`.-]{0,12}", fullmatch=True).map(str.strip)

numbers = st.one_of(
    st.integers(0, 10**9).map(lambda n: syntax.Literal(str(n), n, span=NOWHERE)),
    st.sampled_from(["1.5", "1e-5", "0.25", "2.5E+3"]).map(
        lambda t: syntax.Literal(t, float(t), span=NOWHERE)
    ),
)
literals = st.one_of(
    numbers,
    st.sampled_from(["inf", "nan"]).map(lambda t: syntax.Literal(t, float(t), span=NOWHERE)),
    st.sampled_from(["true", "false"]).map(lambda t: syntax.Literal(t, t == "true", span=NOWHERE)),
)
references = names.map(lambda n: syntax.Reference(n, span=NOWHERE))


def _extend(inner: st.SearchStrategy[syntax.Expression]) -> st.SearchStrategy[syntax.Expression]:
    items = st.one_of(inner, inner.map(lambda e: syntax.Pack(e, span=NOWHERE)))
    arguments = st.one_of(
        items.map(lambda e: syntax.Argument(None, e, span=NOWHERE)),
        st.builds(syntax.Argument, name_nodes, inner, span=st.just(NOWHERE)),
    )
    bindings = st.builds(syntax.Binding, name_nodes, st.booleans(), inner, span=st.just(NOWHERE))
    some_items = st.lists(items, min_size=1, max_size=3).map(tuple)
    # `base` may be anything; what is no postfix expression gets parentheses.
    return st.one_of(
        st.builds(syntax.Array, st.lists(items, max_size=3).map(tuple), span=st.just(NOWHERE)),
        st.builds(syntax.Member, inner, name_nodes, span=st.just(NOWHERE)),
        st.builds(syntax.Index, inner, some_items, st.none() | inner, span=st.just(NOWHERE)),
        st.builds(
            syntax.Call, inner, st.lists(arguments, max_size=3).map(tuple), span=st.just(NOWHERE)
        ),
        st.builds(
            syntax.Reduce,
            name_nodes,
            st.lists(bindings, min_size=1, max_size=2).map(tuple),
            st.none() | inner,
            inner,
            span=st.just(NOWHERE),
        ),
        st.builds(syntax.Unary, st.sampled_from("-!"), inner, span=st.just(NOWHERE)),
        st.builds(
            syntax.Binary,
            st.sampled_from(
                ["||", "&&", "==", "!=", "<", "<=", ">", ">=", "+", "-", "*", "/", "%"]
            ),
            inner,
            inner,
            span=st.just(NOWHERE),
        ),
        st.builds(syntax.Ternary, inner, inner, inner, span=st.just(NOWHERE)),
    )


expressions: st.SearchStrategy[syntax.Expression] = st.recursive(
    st.one_of(literals, references, texts.map(lambda t: syntax.String(t, span=NOWHERE))),
    _extend,
    max_leaves=8,
)

index_variables = st.builds(
    syntax.Binding, name_nodes, st.booleans(), st.none() | expressions, span=st.just(NOWHERE)
)
assignments = st.builds(
    syntax.Assignment,
    name_nodes,
    st.none() | st.lists(index_variables, min_size=1, max_size=3).map(tuple),
    expressions,
    span=st.just(NOWHERE),
)
local_functions = st.builds(
    syntax.ScalarFunction,
    name_nodes,
    st.lists(name_nodes, max_size=3).map(tuple),
    expressions,
    st.booleans(),
    span=st.just(NOWHERE),
)
functions = st.builds(
    syntax.ScalarFunction,
    name_nodes,
    st.lists(name_nodes, max_size=3).map(tuple),
    expressions,
    st.just(True),
    span=st.just(NOWHERE),
)
name_lists = st.lists(name_nodes, min_size=1, max_size=4).map(tuple)
sentences = st.one_of(
    st.builds(syntax.Sentence, st.just("same"), name_lists, name_lists, span=st.just(NOWHERE)),
    st.builds(
        syntax.Sentence,
        st.just("broadcastable"),
        name_lists,
        name_nodes.map(lambda n: (n,)),
        span=st.just(NOWHERE),
    ),
    st.builds(syntax.Sentence, st.just("scalar"), name_lists, st.just(()), span=st.just(NOWHERE)),
)
requires = st.builds(syntax.Require, expressions, st.none() | texts, span=st.just(NOWHERE))


def _rows(columns: int) -> st.SearchStrategy[syntax.TableRow]:
    # A row of nothing but dashes would be the rule under a header.
    cells = cell_texts.filter(lambda t: t.strip("-: ") != "" or t == "")
    return st.lists(cells, min_size=columns, max_size=columns).map(
        lambda cells: syntax.TableRow(
            tuple(syntax.Cell(t, span=NOWHERE) for t in cells), span=NOWHERE
        )
    )


tables = st.integers(1, 4).flatmap(
    lambda columns: st.builds(
        syntax.Table,
        _rows(columns),
        st.lists(_rows(columns), max_size=3).map(tuple),
        st.booleans(),
        span=st.just(NOWHERE),
    )
)
example_items = st.builds(
    syntax.ExampleItem,
    name_nodes,
    expressions,
    st.booleans(),
    st.none() | st.integers(0, 99),
    st.none() | numbers,
    st.none() | name_nodes,
    st.none() | expressions,
    span=st.just(NOWHERE),
)
examples = st.builds(
    syntax.Example,
    texts,
    st.lists(example_items, max_size=3).map(tuple),
    span=st.just(NOWHERE),
)
differing = st.tuples(name_nodes, st.none() | assignments.map(lambda a: a.indices))
differences = differing.flatmap(
    lambda place: st.builds(
        syntax.Difference,
        texts,
        st.lists(example_items, max_size=3).map(tuple),
        st.just(place[0] if place[1] is not None else None),
        st.just(place[1]),
        st.none() | expressions,
        span=st.just(NOWHERE),
    )
)
tensor_sections = st.builds(
    syntax.TensorsSection, st.none() | name_nodes, tables, span=st.just(NOWHERE)
)


gradient_lines = st.builds(
    syntax.GradientLine, name_nodes, name_nodes, st.booleans(), span=st.just(NOWHERE)
)
forwards = st.builds(
    syntax.Forward,
    dotted_nodes,
    st.lists(gradient_lines, max_size=3).map(tuple),
    span=st.just(NOWHERE),
)
gradients_of = st.one_of(
    st.builds(syntax.GradientOf, dotted_nodes, name_lists, st.none(), span=st.just(NOWHERE)),
    st.builds(
        syntax.GradientOf,
        dotted_nodes,
        st.just(()),
        st.lists(gradient_lines, max_size=3).map(tuple),
        span=st.just(NOWHERE),
    ),
)


@st.composite
def operators(draw: st.DrawFn) -> syntax.Operator:
    doc = draw(st.none() | texts)
    introduced, forward = draw(st.none() | name_nodes), draw(st.none() | forwards)
    attributes, types = draw(st.none() | tables), draw(st.none() | tables)
    tensors = draw(st.lists(tensor_sections, min_size=1, max_size=2).map(tuple))
    constraint = st.one_of(sentences, requires)
    constraints = draw(st.none() | st.lists(constraint, max_size=3).map(tuple))
    statement = st.one_of(assignments, local_functions)
    derived = draw(st.booleans())
    compute = None if derived else draw(st.lists(statement, max_size=3).map(tuple))
    gradient = draw(gradients_of) if derived else None
    shown = draw(st.lists(examples, max_size=2).map(tuple))
    others = draw(st.lists(differences, max_size=2).map(tuple))
    sections = [
        (kind, NOWHERE)
        for kind, part in (
            ("doc string", doc),
            ("introduced", introduced),
            ("forward", forward),
            ("attributes", attributes),
            *(("tensors", section) for section in tensors),
            ("types", types),
            ("constraints", constraints),
            ("compute", compute),
            ("gradient of", gradient),
            *(("example", example) for example in shown),
            *(("differs", difference) for difference in others),
        )
        if part is not None
    ]
    return syntax.Operator(
        draw(name_nodes), doc, introduced, forward, attributes, tensors, types, constraints,
        compute, gradient, shown, tuple(sections), others, span=NOWHERE,
    )  # fmt: skip


enums = st.builds(
    syntax.Enum,
    name_nodes,
    st.lists(
        st.builds(syntax.EnumMember, name_nodes, st.integers(-9, 10**6), span=st.just(NOWHERE)),
        max_size=4,
    ).map(tuple),
    span=st.just(NOWHERE),
)
tensor_types = st.builds(
    syntax.TensorType,
    name_nodes,
    st.lists(expressions, max_size=3).map(tuple),
    span=st.just(NOWHERE),
)
tensors_read: st.SearchStrategy[syntax.Expression] = st.recursive(
    references,
    lambda base: st.builds(syntax.Member, base, name_nodes, span=st.just(NOWHERE)),
    max_leaves=2,
)
some_read = st.lists(tensors_read, min_size=1, max_size=2).map(tuple)
gradients = st.builds(
    syntax.Gradient,
    st.lists(expressions, min_size=1, max_size=2).map(tuple),
    some_read,
    st.just(()) | some_read,
    span=st.just(NOWHERE),
)
graphs = st.builds(
    syntax.Graph,
    name_nodes,
    st.lists(name_nodes, max_size=3).map(tuple),
    st.lists(
        st.builds(syntax.GraphInput, name_nodes, tensor_types, span=st.just(NOWHERE)), max_size=3
    ).map(tuple),
    st.lists(
        st.builds(
            syntax.GraphStatement,
            name_nodes.map(lambda name: (name,)),
            expressions,
            st.booleans(),
            span=st.just(NOWHERE),
        )
        | st.builds(
            syntax.GraphStatement, name_lists, gradients, st.booleans(), span=st.just(NOWHERE)
        ),
        max_size=3,
    ).map(tuple),
    span=st.just(NOWHERE),
)
imports = texts.map(lambda t: syntax.Import(t, span=NOWHERE))
files = st.builds(
    syntax.File,
    st.none() | dotted_nodes,
    st.lists(st.one_of(imports, enums, functions, operators(), graphs), max_size=3).map(tuple),
    st.just(()),
    st.just(Source("<generated>", "")),
)

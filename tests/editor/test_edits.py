"""What `dmlc lsp` writes and shows beside answers about one word: quick fixes, references, renames,
signatures, colours, folds, kernels."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from lsprotocol import types
from pygls.exceptions import JsonRpcException

from dmlc.editor import references
from dmlc.editor.documents import Session
from dmlc.editor.positions import Encoding, Lines, Position, Range
from dmlc.editor.references import find_references
from dmlc.source import DmlcError
from tests.editor.client import Editor, at, place, whole
from tests.editor.texts import OPERATOR, mark

pytestmark = pytest.mark.usefixtures("nothing_goes_wrong")
URI = "file:///nowhere/edits.dml"
TABLE = """\
operator ADD {
    attributes {
        | Attribute | Type  | Default |
        | Factor    | FLOAT | 1       |
    }
    tensors {
        | Tensor | Kind           | Dimensions | Types   |
        | A      | Input          | { N, C }   | FLOAT32 |
        | B      | Optional input | { N, C }   | FLOAT32 |
        | Y      | Output         | { N, C }   | FLOAT32 |
    }
    constraints {
        A and Y must have the same Sizes.
    }
    compute {
        Y[n, c] = A[n, c] * Factor + (present(B) ? B[n, c] : 0)
    }
}
"""
FORMULA = "A[n, c] * Factor + (present(B) ? B[n, c] : 0)"


def changed_by(text: str, edits: Iterable[types.TextEdit]) -> str:
    """A text with edits of the protocol made."""
    lines = Lines(text, Encoding.UTF16)

    def offset(position: types.Position) -> int:
        return lines.offset(Position(position.line, position.character))

    for edit in sorted(edits, key=lambda e: offset(e.range.start), reverse=True):
        start, end = offset(edit.range.start), offset(edit.range.end)
        text = text[:start] + edit.new_text + text[end:]
    return text


def everywhere(text: str) -> types.Range:
    lines = Lines(text, Encoding.UTF16).range(0, len(text))
    return to_range(lines)


def to_range(range: Range) -> types.Range:
    start, end = (types.Position(p.line, p.column) for p in (range.start, range.end))
    return types.Range(start, end)


async def ask_fixes(editor: Editor, uri: str, range: types.Range) -> Sequence[types.CodeAction]:
    params = types.CodeActionParams(
        types.TextDocumentIdentifier(uri), range, types.CodeActionContext(diagnostics=[])
    )
    return await editor.client.text_document_code_action_async(params) or []


# Quick fixes -----------------------------------------------------------------------------------

FIXES = {
    "a misspelt tensor": (("A[n, c] * Factor", "AA[n, c] * Factor"), "Replace 'AA' by 'A'"),
    "a misspelt attribute": (("* Factor", "* Facter"), "Replace 'Facter' by 'Factor'"),
    "a misspelt function": (("present(B)", "presnt(B)"), "Replace 'presnt' by 'present'"),
    "a misspelt section": (("compute {", "compoute {"), "Replace 'compoute' by 'compute'"),
    "a misspelt kind": (("Optional input", "Optional inptu"),
                        "Replace 'Optional inptu' by 'Optional input'"),
    "a misspelt data type": (("| A      | Input          | { N, C }   | FLOAT32 |",
                              "| A      | Input          | { N, C }   | FLOAT32, half |"),
                             "Replace 'half' by 'FLOAT16'"),
    "a misspelt column": (("Default |", "Defualt |"), "Replace 'Defualt' by 'Default'"),
    "a misspelt fact": (("* Factor", "* Factor * A.DimensionCout"),
                        "Replace 'DimensionCout' by 'DimensionCount'"),
    "the name that others have for a fact": (("* Factor", "* Factor * A.ndim"),
                                             "Replace 'ndim' by 'DimensionCount'"),
    "the constant of another language": (("* Factor", "* (Factor > 1 == True ? 1 : 2)"),
                                         "Replace 'True' by 'true'"),
    "a missing cell": (("| B      | Optional input | { N, C }   | FLOAT32 |",
                        "| B      | Optional input | { N, C }   |"), "Insert '|'"),
    "a missing kind": (("| A      | Input          |", "| A      |                |"),
                       "Insert 'Input'"),
    "a missing attribute type": (("| Factor    | FLOAT |", "| Factor    |       |"),
                                 "Insert 'FLOAT'"),
    "a sentence in words of one's own": (
        ("A and Y must have the same Sizes.", "A and Y must have equal Sizes."),
        "Replace 'A and Y must have equal Sizes.' by 'A and Y must have the same Sizes.'",
    ),
    "a power": (("* Factor", "* Factor ** 2"), "Replace 'Factor ** 2' by 'pow(Factor, 2)'"),
    "and": (("present(B) ?", "present(B) and Factor > 0 ?"), "Replace 'and' by '&&'"),
    "not": (("present(B) ?", "not present(B) ?"), "Replace 'not' by '!'"),
    "a choice": ((FORMULA, "A[n, c] if Factor > 1 else 0"),
                 "Replace 'A[n, c] if Factor > 1 else 0' by "
                 "'Factor > 1 ? A[n, c] : 0'"),
    "a semicolon": ((FORMULA, FORMULA + ";"), "Remove ';'"),
    "a type before a definition": (("Y[n, c] =", "float y = A\n        Y[n, c] ="),
                                   "Remove 'float'"),
    "'==' as a definition": (("Y[n, c] =", "Y[n, c] =="), "Replace '==' by '='"),
    "a comment of Python": (("Y[n, c] =", "# note\n        Y[n, c] ="), "Replace '#' by '//'"),
    "a number with a type": (("* Factor", "* 2.0f"), "Replace '2.0f' by '2.0'"),
    "a product without a mark": (("* Factor", "* 2Factor"),
                                 "Replace '2Factor' by '2 * Factor'"),
    "a choice as a function": (("(present(B) ? B[n, c] : 0)", "where(present(B), B[n, c], 0)"),
                               "Replace 'where(present(B), B[n, c], 0)' by "
                               "'(present(B) ? B[n, c] : 0)'"),
    "a cast of another language": (("* Factor", "* half(Factor)"),
                                   "Replace 'half(Factor)' by 'cast(Factor, FLOAT16)'"),
    "the prefix of a library": (("* Factor", "* np.exp(Factor)"), "Replace 'np.exp' by 'exp'"),
    "the prefix of a library, in a graph": (
        ("\n    }\n}\n", "\n    }\n}\ngraph g(x: FLOAT32[2]) { output y = torch.exp(x) }\n"),
        "Replace 'torch.exp' by 'exp'",
    ),
    "a division that is a comment": ((FORMULA, "A[n, c] // 2"),
                                     "Replace 'A[n, c] // 2' by 'floor(A[n, c] / 2)'"),
    "a local that nothing reads": (("Y[n, c] =", "spare = A\n        Y[n, c] ="),
                                   "Remove 'spare = A'"),
    "an optional tensor read though absent": (("(present(B) ? B[n, c] : 0)", "B[n, c]"),
                                              "Replace 'B[n, c]' by "
                                              "'(present(B) ? B[n, c] : 0)'"),
    "an optional factor": (("+ (present(B) ? B[n, c] : 0)", "* B[n, c]"),
                           "Replace 'B[n, c]' by '(present(B) ? B[n, c] : 1)'"),
}  # fmt: skip
"""What is wrong, and the title of the first fix."""
LEFT = {
    "not": {"W0502"},  # B is read where it is not given.
    "a number with a type": {"W0001"},  # Nothing reads Factor.
    "a division that is a comment": {"W0001"},
    "a type before a definition": {"W0001"},
}
"""The codes of what else is wrong."""


@pytest.mark.parametrize("name", FIXES)
def test_the_first_fix_mends_the_mistake(editor: Editor, name: str) -> None:
    (old, new), title = FIXES[name]
    text = mark(old, new, TABLE)

    async def work() -> None:
        wrong = await editor.open(URI, text)
        assert wrong, "nothing is wrong"
        fixes = [f for f in await ask_fixes(editor, URI, everywhere(text)) if f.title == title]
        (fix,) = fixes
        assert fix.is_preferred
        assert fix.kind == types.CodeActionKind.QuickFix
        assert {d.message for d in fix.diagnostics or ()} < {*(d.message for d in wrong), ""}
        assert fix.edit is not None
        assert fix.edit.changes is not None
        (mended,) = [changed_by(text, edits) for edits in fix.edit.changes.values()]
        left = await editor.open(URI, mended)
        assert {d.code for d in left} == LEFT.get(name, set()), mended

    editor.run(work())


def test_a_missing_column_is_added_to_every_row(editor: Editor) -> None:
    text = "\n".join(
        line.replace("| Kind           ", "").replace("| Input          ", "")
        .replace("| Optional input ", "").replace("| Output         ", "")
        for line in TABLE.splitlines()
    ).replace("        | B", "        | --- | --- | --- |\n        | B")  # fmt: skip

    async def work() -> None:
        (wrong, *_) = await editor.open(URI, text)
        assert wrong.message == "this table has no column 'Kind'"
        (fix,) = await ask_fixes(editor, URI, wrong.range)
        assert fix.title == "Insert '| Kind' and 4 more edits"
        assert fix.edit is not None
        assert fix.edit.changes is not None
        mended = changed_by(text, fix.edit.changes[URI])
        assert "| Tensor | Kind | Dimensions | Types   |\n" in mended
        assert "| A      |      | { N, C }   | FLOAT32 |\n" in mended
        assert "| --- | ---- | --- | --- |\n" in mended
        left = await editor.open(URI, mended)
        assert {d.message for d in left if d.code == "E0107"} == {"this row names no kind"}
        titles = [f.title for f in await ask_fixes(editor, URI, left[0].range)]
        assert titles[:2] == ["Insert 'Input'", "Insert 'Output'"]

    editor.run(work())


def test_fixes_are_of_the_place_and_the_kind_that_are_asked_for(editor: Editor) -> None:
    text = mark("* Factor", "* Facter", TABLE)

    async def work() -> None:
        await editor.open(URI, text)
        assert await ask_fixes(editor, URI, to_range(Lines(text, Encoding.UTF16).range(0, 3))) == []
        params = types.CodeActionParams(
            types.TextDocumentIdentifier(URI), everywhere(text),
            types.CodeActionContext(diagnostics=[], only=[types.CodeActionKind.Refactor]),
        )  # fmt: skip
        assert not await editor.client.text_document_code_action_async(params)

    editor.run(work())


# References and renames ------------------------------------------------------------------------

MODES = """\
module m
enum MODE { A = 0, B = 1 }
function twice(x) = 2 * x
operator SCALE {
    attributes {
        | Attribute | Type |
        | Mode      | MODE |
    }
    tensors {
        | Tensor | Kind   | Dimensions |
        | X      | Input  | { N, K }   |
        | Y      | Output | { N, K }   |
    }
    compute { Y[n, k] = Mode == A ? X[n, k] : twice(X[n, k]) * N }
}
"""
USER = """\
import "modes.dml"
function four(x) = twice(twice(x))
graph g(a: FLOAT32[2, 3]) {
    t = m.SCALE(X: a, Mode: A)
    output z = t.Y + four(a)
}
"""


@pytest.fixture
def files(tmp_path: Path) -> Iterable[tuple[str, str]]:
    """The URIs of two files of a folder, one of which imports the other and is open nowhere."""
    (tmp_path / "modes.dml").write_text(MODES, "utf-8")
    (tmp_path / "user.dml").write_text(USER, "utf-8")
    (tmp_path / "apart.dml").write_text("function twice(x) = x\n", "utf-8")
    (tmp_path / "below").mkdir()
    (tmp_path / "below/apart.dml").write_text("function twice(x) = x\n", "utf-8")
    return (tmp_path / "modes.dml").as_uri(), (tmp_path / "user.dml").as_uri()


async def ask_rename(
    editor: Editor, uri: str, text: str, words: str, name: str
) -> Mapping[str, Sequence[types.TextEdit]]:
    params = types.RenameParams(**at(editor, uri, place(text, words)), new_name=name)
    found = await editor.client.text_document_rename_async(params)
    assert found is not None
    assert found.changes is not None
    return found.changes


@pytest.mark.parametrize(
    ("words", "name", "own", "theirs"),
    [
        ("twice", "double", 2, 2),
        ("SCALE", "SCALED", 1, 1),
        ("Mode  ", "Kind", 2, 1),
        ("A = 0", "AS_IT_IS", 2, 1),
        ("X  ", "Input", 3, 1),
        ("Y  ", "Z", 2, 1),
        ("N, K", "ROWS", 3, 0),
        ("n, k", "row", 3, 0),
        ("MODE {", "HOW", 2, 0),
    ],
)
def test_a_rename_reaches_every_file(
    editor: Editor, files: tuple[str, str], words: str, name: str, own: int, theirs: int
) -> None:
    """Operators, attributes, members, tensors, sizes, indices: each place, and no other."""

    async def work() -> None:
        modes, user = files
        assert await editor.open(modes, MODES) == []
        old = re.findall(r"\w+", words)[0]
        changes = await ask_rename(editor, modes, MODES, words, name)
        counts = {uri: len(edits) for uri, edits in changes.items()}
        assert counts == {u: n for u, n in ((modes, own), (user, theirs)) if n}
        where = [e.range for e in itertools.chain(*changes.values())]
        assert {r.end.character - r.start.character for r in where} == {len(old)}
        # The text that it makes names all of it again.
        made = changed_by(MODES, changes[modes])
        assert await editor.open(modes, made) == [] or theirs == 0
        params = types.ReferenceParams(
            **at(editor, modes, where[0].start), context=types.ReferenceContext(True)
        )
        found = await editor.client.text_document_references_async(params)
        assert [f.range.start for f in found if f.uri == modes] == [
            shifted(r.start, where[:own], len(name) - len(old)) for r in where[:own]
        ]
        editor.client.text_document_did_close(
            types.DidCloseTextDocumentParams(types.TextDocumentIdentifier(modes))
        )

    editor.run(work())


def shifted(start: types.Position, others: Iterable[types.Range], width: int) -> types.Position:
    """Where a place is once those before it on its line are wider."""
    before = [o for o in others if o.start.line == start.line and o.start < start]
    return types.Position(start.line, start.character + width * len(before))


def test_references_from_where_a_symbol_is_imported(editor: Editor, files: tuple[str, str]) -> None:
    async def work() -> None:
        modes, user = files
        await editor.open(user, USER)
        for declaration, count in ((True, 4), (False, 3)):
            params = types.ReferenceParams(
                **at(editor, user, place(USER, "twice")),
                context=types.ReferenceContext(declaration),
            )
            found = await editor.client.text_document_references_async(params)
            assert len(found) == count
            assert {f.uri for f in found} == {modes, user}
        shown = await editor.client.text_document_document_highlight_async(
            types.DocumentHighlightParams(**at(editor, user, place(USER, "twice")))
        )
        assert [h.range.start for h in shown] == [
            types.Position(1, 19), types.Position(1, 25)
        ]  # fmt: skip

    editor.run(work())


def test_the_folders_of_the_workspace(tmp_path: Path) -> None:
    """All that is below them is looked at, but for what is hidden; of a file in none of them, what
    lies beside it."""
    (tmp_path / "modes.dml").write_text(MODES, "utf-8")
    for folder in ("below/deep", ".hidden", "node_modules"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "user.dml").write_text(USER, "utf-8")
        (tmp_path / folder / "modes.dml").symlink_to(tmp_path / "modes.dml")
    (tmp_path / "user.dml").write_text(USER, "utf-8")
    near, deep = {"modes.dml", "user.dml"}, {"below/deep/user.dml"}
    for roots, files in (((), near), ((tmp_path,), near | deep)):
        session = Session(roots=roots, folders=[tmp_path])
        document = session.open(str(tmp_path / "modes.dml"), MODES)
        found = find_references(document, MODES.index("twice"))
        named = {str(Path(span.source.name).relative_to(tmp_path)) for span in found}
        assert named == files


def test_a_workspace_of_too_many_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(references, "MOST_FILES", 1)
    for name in ("a.dml", "b.dml"):
        (tmp_path / name).write_text(USER, "utf-8")
    document = Session(roots=[tmp_path]).open(str(tmp_path / "modes.dml"), MODES)
    with pytest.raises(DmlcError, match=r"more than 1 \.dml files.*\n.*open a smaller folder"):
        find_references(document, MODES.index("twice"))


@pytest.mark.parametrize(
    ("words", "name", "says"),
    [
        ("A      |", "B", "the name 'B' is taken: it is a tensor of m.SCALE"),
        ("Factor    |", "Mode", "the name 'Mode' is taken: it is an attribute of m.SCALE"),
        ("k : N", "c", "the name 'c' is taken: it is an index"),
        ("SCALE", "g", "the name 'g' is taken: it is a graph of m.g"),
        ("LINEAR", "NEAREST", "the name 'NEAREST' is taken: it is an enum member"),
        ("hat", "weight", "the name 'weight' would be wrong: functions are inlined"),
        ("hat", "max", "the name 'max' would be wrong: 'max' is a function of the language"),
        ("hat", "2x", "'2x' is no name"),
        ("abs", "magnitude", "'abs' is a built-in function of the language"),
        ("ACTIVATION_RELU", "R", "'ACTIVATION_RELU' is declared in dmlc's own library"),
        ("m\n", "n", "no name that dmlc knows stands here"),
    ],
)
def test_a_name_that_is_taken_is_refused(editor: Editor, words: str, name: str, says: str) -> None:
    async def work() -> None:
        await editor.open(URI, OPERATOR)
        with pytest.raises(JsonRpcException) as raised:
            await ask_rename(editor, URI, OPERATOR, words, name)
        assert raised.value.message.startswith(says)

    editor.run(work())


def test_a_rename_that_would_change_what_another_place_means_is_refused(editor: Editor) -> None:
    """`scaled` of the operator would hide the function that its formula calls."""
    text = mark("Y[n, c] =", "t = A * 2\n        Y[n, c] = t[n, c] + ", TABLE)
    text = "function scaled(x) = x\n" + mark("* Factor", "* scaled(Factor)", text)

    async def work() -> None:
        await editor.open(URI, text)
        with pytest.raises(JsonRpcException) as raised:
            await ask_rename(editor, URI, text, "t = A", "scaled")
        assert "'scaled'" in raised.value.message
        broken = text + "graph"
        await editor.open(URI, broken)
        with pytest.raises(JsonRpcException) as raised:
            await ask_rename(editor, URI, broken, "Factor", "Gain")
        assert "'edits.dml' cannot be read" in raised.value.message

    editor.run(work())


def test_a_rename_that_an_index_would_hide_is_refused(editor: Editor) -> None:
    """The text would have no error, and another meaning."""
    text = mark("* Factor", "* Factor * C", TABLE)

    async def work() -> None:
        await editor.open(URI, text)
        with pytest.raises(JsonRpcException) as raised:
            await ask_rename(editor, URI, text, "C }", "n")
        assert raised.value.message.startswith("the name 'n' is taken at line 16: it is an index")
        assert await editor.open(URI, text.replace("C }", "n }").replace("* C", "* n")) == []

    editor.run(work())


def test_what_is_renamed_is_shown_before(editor: Editor) -> None:
    async def work() -> None:
        await editor.open(URI, OPERATOR)
        start = place(OPERATOR, "Factor > 0")
        found = await editor.client.text_document_prepare_rename_async(
            types.PrepareRenameParams(**at(editor, URI, start))
        )
        end = types.Position(start.line, start.character + len("Factor"))
        assert found == types.PrepareRenamePlaceholder(types.Range(start, end), "Factor")

    editor.run(work())


def test_a_tensor_that_is_called_as_its_kind(editor: Editor) -> None:
    """The cells of other columns name no tensor."""
    text = TABLE.replace("| A      |", "| Input  |").replace("A[", "Input[")
    text = text.replace("A and", "Input and")

    async def work() -> None:
        assert await editor.open(URI, text) == []
        changes = await ask_rename(editor, URI, text, "Input  |", "A")
        assert changed_by(text, changes[URI]).replace("A  |", "A      |") == TABLE

    editor.run(work())


# Calls, colours, folds -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "label", "active"),
    [
        ("hat(@i", "hat(x)", 0),
        ("weight(n, @k))", "weight(i, k)", 1),
        ("max(0, @1", "max(x, y)", 1),
        ("SCALE(A: x, @Fac", "SCALE(A, B?, Mode: MODE = LINEAR, Format: STRING = \"NCX\", "
         "Factor: FLOAT)", 1),
        ("SCALE(A: x, Factor: @2", "SCALE(A, B?, Mode: MODE = LINEAR, Format: STRING = \"NCX\", "
         "Factor: FLOAT)", 4),
        ("RELU(@Input", "directml.ACTIVATION_RELU(InputTensor)", 0),
        ("abs(@x", "abs(x)", 0),
    ],
)  # fmt: skip
def test_signatures(editor: Editor, call: str, label: str, active: int) -> None:
    async def work() -> None:
        await editor.open(URI, OPERATOR)
        position = place(OPERATOR, call.replace("@", ""), call.index("@"))
        found = await editor.client.text_document_signature_help_async(
            types.SignatureHelpParams(**at(editor, URI, position))
        )
        assert found is not None
        assert (found.signatures[0].label, found.active_parameter) == (label, active)
        labels = [p.label for p in found.signatures[0].parameters or ()]
        assert all(isinstance(p, str) and p in label for p in labels)

    editor.run(work())


def test_no_signature_outside_of_calls(editor: Editor) -> None:
    async def work() -> None:
        await editor.open(URI, OPERATOR)
        for words in ("A * Factor", "Scales and", "[n, c] * weight"):
            found = await editor.client.text_document_signature_help_async(
                types.SignatureHelpParams(**at(editor, URI, place(OPERATOR, words, 2)))
            )
            assert found is None

    editor.run(work())


def test_semantic_tokens(editor: Editor) -> None:
    provider = editor.offered.capabilities.semantic_tokens_provider
    assert provider is not None
    legend = provider.legend

    async def work() -> list[int]:
        await editor.open(URI, OPERATOR)
        found = await editor.client.text_document_semantic_tokens_full_async(
            types.SemanticTokensParams(types.TextDocumentIdentifier(URI))
        )
        assert found is not None
        return list(found.data)

    data = editor.run(work())
    lines = OPERATOR.splitlines()
    line = column = 0
    said: dict[tuple[int, str], tuple[str, set[str]]] = {}
    for down, along, width, kind, bits in zip(*[iter(data)] * 5, strict=True):
        line, column = line + down, along + (0 if down else column)
        word = lines[line][column : column + width]
        has = {m for n, m in enumerate(legend.token_modifiers) if bits >> n & 1}
        said[line + 1, word] = (legend.token_types[kind], has)
    row = OPERATOR[: OPERATOR.index("Out[n")].count("\n") + 1
    assert said[8, "SCALE"] == ("class", {"declaration"})
    assert said[14, "Factor"] == ("property", {"declaration", "readonly"})
    assert said[18, "A"] == ("variable", {"declaration"})
    assert (18, "Input") not in said
    assert said[18, "N"][0] == "typeParameter"
    assert said[row, "Out"] == ("variable", set())
    assert said[row, "k"] == ("parameter", {"readonly"})
    assert said[row, "sum"] == ("function", {"defaultLibrary"})
    assert said[row, "weight"] == ("function", set())
    assert said[row, "LINEAR"] == ("enumMember", set())


def test_folds(editor: Editor) -> None:
    async def work() -> None:
        text = "/* a\nb */\n" + TABLE
        await editor.open(URI, text)
        found = await editor.client.text_document_folding_range_async(
            types.FoldingRangeParams(types.TextDocumentIdentifier(URI))
        )
        lines = text.splitlines()
        assert (found[0].start_line, found[0].end_line) == (0, 1)
        assert found[0].kind == types.FoldingRangeKind.Comment
        first = [lines[f.start_line].split()[0] for f in found[1:]]
        assert first == ["attributes", "tensors", "constraints", "compute", "operator"]
        assert [lines[f.end_line + 1].strip() for f in found[1:]] == ["}"] * 5

    editor.run(work())


# Commands --------------------------------------------------------------------------------------


async def execute(editor: Editor, command: str, *arguments: Any) -> Any:
    params = types.ExecuteCommandParams(command, arguments)
    return await editor.client.workspace_execute_command_async(params)


@pytest.mark.parametrize(
    ("words", "target", "name", "begins"),
    [
        ("operator SCALE", "hlsl", "m.SCALE", "// For a call as in the example: A=FLOAT32[1,1] "),
        ("RELU", "wgsl", "directml.ACTIVATION_RELU", "// ACTIVATION_RELU: WGSL"),
        ("RELU", "opencl", "directml.ACTIVATION_RELU", "// ACTIVATION_RELU: OpenCL C"),
    ],
)
def test_the_kernels_at_a_place(
    editor: Editor, words: str, target: str, name: str, begins: str
) -> None:
    async def work() -> None:
        await editor.open(URI, OPERATOR)
        position = {"line": (p := place(OPERATOR, words)).line, "character": p.character}
        found = await execute(editor, "dmlc.source", URI, position, target)
        assert found["name"] == name
        assert found["text"].startswith(begins)

    editor.run(work())


def test_what_has_no_kernels_says_why(editor: Editor) -> None:
    async def work() -> None:
        start = {"line": 0, "character": 0}
        await editor.open(URI, OPERATOR)
        for text, target, says in (
            (OPERATOR, "hlsl", "no operator or graph stands here\nput the cursor into one"),
            (OPERATOR, "metal", "unknown target 'metal'"),
            (mark("A * Factor", "Q * Factor"), "hlsl", "unknown name 'Q'"),
        ):
            await editor.open(URI, text)
            where = start
            if target == "metal":
                where = {"line": (p := place(text, "RELU")).line, "character": p.character}
            with pytest.raises(JsonRpcException) as raised:
                await execute(editor, "dmlc.source", URI, where, target)
            assert raised.value.message.startswith(says)

    editor.run(work())


def test_a_thorough_check(editor: Editor) -> None:
    """It draws calls that typing has no time for, and reports what the formula cannot take."""
    text = TABLE.replace("{ N, C }", "{ N, [C] }")

    async def work() -> None:
        quick = await editor.open(URI, text)
        editor.reports.clear()
        counts = await execute(editor, "dmlc.check", URI)
        found = await editor.published(URI)
        errors = [d for d in found if d.severity is types.DiagnosticSeverity.Error]
        assert counts == {"errors": len(errors), "warnings": len(found) - len(errors)}
        assert len(found) > len(quick)
        assert await editor.changed(URI, whole(TABLE)) == []

    editor.run(work())

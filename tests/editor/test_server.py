"""`dmlc lsp` as editors use it: over standard input and output, by a client of its own."""

from __future__ import annotations

import asyncio
import importlib
import json
import random
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from lsprotocol import types

from dmlc import cli
from dmlc.editor.documents import Session
from dmlc.editor.problems import list_problems
from dmlc.editor.server import as_diagnostic, name_of, uri_of
from tests.editor.client import Editor, at, part, place, whole
from tests.editor.texts import OPERATOR

ROOT = Path(__file__).parent.parent.parent
URI = "file:///nowhere/text.dml"
pytestmark = pytest.mark.usefixtures("nothing_goes_wrong")


def test_what_the_server_offers(editor: Editor) -> None:
    offers = editor.offered.capabilities
    assert editor.offered.server_info is not None
    assert editor.offered.server_info.name == "dmlc"
    assert offers.position_encoding == types.PositionEncodingKind.Utf16
    assert offers.hover_provider
    assert offers.definition_provider
    assert offers.document_symbol_provider
    assert offers.document_formatting_provider
    assert offers.completion_provider is not None
    assert offers.completion_provider.trigger_characters == (".", '"', "|")
    assert offers.references_provider
    assert offers.document_highlight_provider
    assert offers.folding_range_provider
    assert isinstance(offers.rename_provider, types.RenameOptions)
    assert offers.rename_provider.prepare_provider
    assert isinstance(offers.code_action_provider, types.CodeActionOptions)
    assert offers.code_action_provider.code_action_kinds == (types.CodeActionKind.QuickFix,)
    assert offers.signature_help_provider is not None
    assert offers.signature_help_provider.trigger_characters == ("(", ",")
    assert offers.semantic_tokens_provider is not None
    assert offers.semantic_tokens_provider.full is True
    assert offers.execute_command_provider is not None
    assert offers.execute_command_provider.commands == ("dmlc.source", "dmlc.check")


def test_a_session(editor: Editor) -> None:
    """Opens a text, breaks it, asks, mends and formats it, and closes it."""

    async def work() -> None:
        client = editor.client
        assert await editor.open(URI, OPERATOR) == []
        row = place(OPERATOR, "A * Factor")
        (wrong,) = await editor.changed(
            URI, part((row.line, row.character), (row.line, row.character + 1), "Q")
        )
        assert (wrong.code, wrong.source) == ("E0201", "dmlc")
        assert wrong.code_description is not None
        assert wrong.code_description.href.endswith("/diagnostics/E0201.md")
        assert wrong.message.startswith("unknown name 'Q'")
        assert wrong.severity is types.DiagnosticSeverity.Error
        assert wrong.range == types.Range(row, types.Position(row.line, row.character + 1))

        found = await client.text_document_hover_async(
            types.HoverParams(**at(editor, URI, place(OPERATOR, "Factor\n")))
        )
        assert found is not None
        assert "attribute, FLOAT" in found.contents.value

        items = await client.text_document_completion_async(
            types.CompletionParams(**at(editor, URI, place(OPERATOR, "LINEAR ? 1")))
        )
        assert [item.label for item in items.items] == ["NEAREST", "LINEAR"]

        target = await client.text_document_definition_async(
            types.DefinitionParams(**at(editor, URI, place(OPERATOR, "RELU(Input")))
        )
        assert target.uri.endswith("/library/directml/ACTIVATION_RELU.dml")

        mended = part((row.line, row.character), (row.line, row.character + 1), "A  ")
        assert await editor.changed(URI, mended) == []
        formatting = types.DocumentFormattingParams(
            text_document=types.TextDocumentIdentifier(URI),
            options=types.FormattingOptions(tab_size=4, insert_spaces=True),
        )
        edits = await client.text_document_formatting_async(formatting)
        assert "scaled       = A * Factor\n" in edits[0].new_text
        symbols = await client.text_document_document_symbol_async(
            types.DocumentSymbolParams(types.TextDocumentIdentifier(URI))
        )
        assert [symbol.name for symbol in symbols] == ["MODE", "hat", "SCALE", "g"]

        client.text_document_did_close(
            types.DidCloseTextDocumentParams(types.TextDocumentIdentifier(URI))
        )

    editor.run(work())


def test_positions_count_utf16(editor: Editor) -> None:
    async def work() -> None:
        text = "operator \U0001f600"
        (wrong,) = await editor.open("file:///nowhere/smile.dml", text)
        assert wrong.range.start == types.Position(0, 9)
        assert wrong.range.end == types.Position(0, 11)
        text = "/* \U0001f600 */ enum E { A = 0, }}"
        (wrong,) = await editor.changed("file:///nowhere/smile.dml", whole(text))
        assert wrong.range.start == types.Position(0, len(text))

    editor.run(work())


def test_positions_count_what_the_editor_prefers(tmp_path: Path) -> None:
    editor = Editor(tmp_path / "log.txt", kind="neovim@v0.11.0")
    assert editor.offered.capabilities.position_encoding == types.PositionEncodingKind.Utf8
    (wrong,) = editor.run(editor.open(URI, "operator \U0001f600"))
    assert wrong.range.end == types.Position(0, 13)
    editor.leave()
    assert editor.complaints() == []


def test_a_form_feed_begins_no_line(editor: Editor) -> None:
    """Lines end at line breaks alone, and not where `str.splitlines` ends them too."""

    async def work() -> None:
        uri = "file:///nowhere/fed.dml"
        await editor.open(uri, "/* \x0c */\nenum E { A = 0, }}")
        assert await editor.changed(uri, part((1, 15), (1, 18), " }")) == []

    editor.run(work())


def test_a_text_without_a_file(editor: Editor) -> None:
    async def work() -> None:
        uri = "untitled:Untitled-1"
        assert await editor.open(uri, "enum E { A = 0 }") == []
        (wrong,) = await editor.changed(uri, whole('import "missing.dml"'))
        assert "missing.dml" in wrong.message

    editor.run(work())


def test_what_imports_an_edited_text_is_reported_anew(editor: Editor, tmp_path: Path) -> None:
    async def work() -> None:
        (tmp_path / "modes.dml").write_text("enum MODE { A = 0 }", "utf-8")
        modes = (tmp_path / "modes.dml").as_uri()
        user = (
            (tmp_path / "user.dml").as_uri().replace("user", "%75ser")
        )  # Another way to write it.
        assert await editor.open(user, 'import "modes.dml"') == []
        await editor.open(modes, "enum MODE { A = 0 }")
        (own,) = await editor.changed(modes, whole("enum MODE {"))
        # It is reported when the import is opened too, and was right then.
        while not (found := await editor.published(user)):
            await asyncio.sleep(0.002)
        (wrong,) = found
        assert wrong.message.startswith("'modes.dml': ")
        (related,) = wrong.related_information[:1]
        assert related.location.uri == modes
        assert related.location.range == own.range
        editor.client.text_document_did_save(
            types.DidSaveTextDocumentParams(types.TextDocumentIdentifier(user))
        )

    editor.run(work())


# Random edits ----------------------------------------------------------------------------------

EDITS = 1000
LONGEST = 4000
PIECES = '{}[]()|=.,:*"/\\ \nxA\u00e9\U0001f600\r\x0c\u2026' + "0;"
WORDS = ["operator ", "graph g(", "compute {", "sum[k : ", "gradient of ", "directml.", "/*", '"']


class Typist:
    """Edits texts of the library at random, and keeps what they are by then."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        files = sorted(ROOT.glob("dmlc/library/*/*.dml")) + sorted(ROOT.glob("examples/*.dml"))
        texts = [path.read_text("utf-8") for path in files]
        self.texts = [text for text in texts if len(text) < 1200]
        self.lines = [line for text in texts for line in text.splitlines(keepends=True)]
        self.text = ""

    def edit(self) -> types.TextDocumentContentChangeEvent:
        """The next edit: another text now and then, else of a few characters or a line."""
        if not self.text or len(self.text) > LONGEST or self.random.random() < 0.02:
            self.text = self.random.choice(self.texts)
            return whole(self.text)
        start = self.random.randrange(len(self.text) + 1)
        end, new = start, ""
        match self.random.randrange(5):
            case 0:
                new = "".join(self.random.choices(PIECES, k=self.random.randrange(1, 4)))
            case 1:
                end = min(len(self.text), start + self.random.randrange(1, 9))
            case 2:
                new = self.random.choice(self.lines)
            case 3:
                start, end = self.random.choice(
                    [m.span() for m in re.finditer(r"\w+|[^\w\s]", self.text)] or [(start, end)]
                )
            case _:
                end = min(len(self.text), start + self.random.randrange(40))
                new = self.random.choice(WORDS)
        change = part(self.place(start), self.place(end), new)
        # Between the two characters of a line break there is no place.
        while self.text[start - 1 : start + 1] == "\r\n" and start:
            start -= 1
        while self.text[end - 1 : end + 1] == "\r\n" and end:
            end -= 1
        self.text = self.text[:start] + new + self.text[end:]
        return change

    def place(self, offset: int) -> tuple[int, int]:
        """The line and the column in UTF-16, counted another way than the server does."""
        lines = re.split("\r\n|\r|\n", self.text[:offset])
        if self.text[offset - 1 : offset + 1] == "\r\n" and offset:
            lines = lines[:-1]
        return len(lines) - 1, len(lines[-1].encode("utf-16-le")) // 2

    def somewhere(self) -> types.Position:
        return types.Position(*self.place(self.random.randrange(len(self.text) + 1)))


def parts(diagnostic: types.Diagnostic) -> tuple[object, ...]:
    """What a diagnostic says."""
    related = [(r.location, r.message) for r in diagnostic.related_information or ()]
    return diagnostic.range, diagnostic.code, diagnostic.severity, diagnostic.message, related


def test_a_thousand_random_edits(editor: Editor) -> None:
    """No edit and no question after it is answered by an error; what is reported is what is wrong
    with the text as it is by then."""
    typist = Typist(seed=21)
    uri = "file:///nowhere/typed.dml"

    async def ask(number: int) -> None:
        client, given = editor.client, at(editor, uri, typist.somewhere())
        text = types.TextDocumentIdentifier(uri)
        match number % 8:
            case 0:
                await client.text_document_completion_async(types.CompletionParams(**given))
            case 1:
                await client.text_document_definition_async(types.DefinitionParams(**given))
            case 2:
                await client.text_document_signature_help_async(types.SignatureHelpParams(**given))
            case 3:
                await client.text_document_document_highlight_async(
                    types.DocumentHighlightParams(**given)
                )
            case 4:
                await client.text_document_semantic_tokens_full_async(
                    types.SemanticTokensParams(text)
                )
            case 5:
                await client.text_document_folding_range_async(types.FoldingRangeParams(text))
            case 6:
                range = types.Range(types.Position(0, 0), typist.somewhere())
                context = types.CodeActionContext(diagnostics=[])
                await client.text_document_code_action_async(
                    types.CodeActionParams(text, range, context)
                )
            case _:
                await client.text_document_hover_async(types.HoverParams(**given))

    async def work(first: int) -> None:
        for number in range(first, first + 100):
            change = typist.edit()
            if number % 20 < 19:
                editor.change(uri, change)
                await ask(number)
                continue
            found = await editor.changed(uri, change)
            document = Session().open("/nowhere/typed.dml", typist.text)
            expected = [as_diagnostic(problem, uri_of) for problem in list_problems(document)]
            assert [parts(d) for d in found] == [parts(d) for d in expected]

    editor.run(editor.open(uri, ""))
    for first in range(0, EDITS, 100):
        editor.run(work(first))


# Without the package ---------------------------------------------------------------------------


def test_without_pygls_the_command_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = importlib.import_module

    def missing(name: str, package: str | None = None) -> object:
        if name == "dmlc.editor.server":
            raise ModuleNotFoundError("No module named 'pygls'", name="pygls")
        return real(name, package)

    monkeypatch.setattr(importlib, "import_module", missing)
    assert cli.run(["lsp"]) == 3
    assert "pip install 'dmlc[lsp]'" in capsys.readouterr().err


# Documentation ---------------------------------------------------------------------------------


def test_the_settings_in_the_documentation_start_the_server() -> None:
    text = (ROOT / "docs/how-to/editor.md").read_text("utf-8")
    found = dict(re.findall(r"<!-- editor: (\S+) -->\n```\w+\n(.*?)```", text, re.DOTALL))
    helix = tomllib.loads(found["languages.toml"])
    (own,) = helix["language"]
    grammar = json.loads((ROOT / "grammar/dmlc.tmLanguage.json").read_text("utf-8"))
    assert own["scope"] == grammar["scopeName"]
    server = helix["language-server"][own["language-servers"][0]]
    assert [server["command"], *server["args"]] == ["dmlc", "lsp"]
    assert 'cmd = { "dmlc", "lsp" }' in found["init.lua"]


@pytest.mark.parametrize(
    "uri", ["file:///a%00b.dml", "file:///\ud800.dml", "untitled:\udcff", "untitled:a\0"]
)
def test_a_uri_that_no_file_can_have(uri: str) -> None:
    """Its text may import files as any other may."""
    document = Session().open(name_of(uri), 'import "no.dml"\nenum E { A = 0 }\n')
    assert [problem.code for problem in list_problems(document)] == ["E0001"]


def ask_broken(*requests: object) -> tuple[list[dict[str, Any]], int]:
    """What a server of its own answers to requests of one open text, after the first answer; and
    its exit status."""
    item = {"uri": URI, "languageId": "dml", "version": 1, "text": OPERATOR}
    messages = [
        {"id": 1, "method": "initialize", "params": {"processId": None, "capabilities": {}}},
        {"method": "initialized", "params": {}},
        {"method": "textDocument/didOpen", "params": {"textDocument": item}},
        *requests,
        {"id": 99, "method": "shutdown"},
        {"method": "exit"},
    ]
    bodies = [json.dumps({"jsonrpc": "2.0", **message}).encode() for message in messages]
    sent = b"".join(b"Content-Length: %d\r\n\r\n%b" % (len(b), b) for b in bodies)
    done = subprocess.run(
        [sys.executable, "-m", "dmlc", "lsp"], input=sent, capture_output=True, check=False,
        timeout=60,
    )  # fmt: skip
    found = [
        json.loads(text) for text in re.findall(rb"\r\n\r\n(\{.*?\})(?=Content-|$)", done.stdout)
    ]
    answers = [answer for answer in found if "id" in answer]
    assert [answers[0]["id"], answers[-1]["id"]] == [1, 99]
    return answers[1:-1], done.returncode


def test_broken_requests_are_answered() -> None:
    """An editor would wait for ever. The server goes on, and leaves as it does of any session."""
    text = {"uri": URI}
    positions = [
        {"line": -1, "character": 0},
        {"line": 0, "character": 1 << 70},
        {"line": "x"},
        None,
    ]
    given: list[object] = [{"textDocument": text, "position": each} for each in positions]
    given += [
        None,
        [1],
        {"textDocument": {"uri": "file:///closed.dml"}, "position": {"line": 0, "character": 0}},
    ]
    requests = [
        {"id": number, "method": "textDocument/hover", "params": params}
        for number, params in enumerate(given, 2)
    ]
    requests.append(
        {"id": 50, "method": "textDocument/documentSymbol", "params": {"textDocument": text}}
    )
    answers, status = ask_broken(*requests)
    assert [a["id"] for a in answers] == [*range(2, 2 + len(given)), 50]
    assert {a["error"]["code"] for a in answers[:-1]} == {-32602}
    assert answers[-1]["result"]
    assert status == 0


@pytest.mark.parametrize("uri", ["file://[x/y.dml", "file://[", "untitled:a b", "%"])
def test_a_uri_that_names_no_file(uri: str) -> None:
    assert name_of(uri)

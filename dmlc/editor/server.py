"""Language server, `dmlc lsp`: this package over the Language Server Protocol.

It needs pygls, and no other module imports it. It keeps the texts itself, since pygls ends lines
where the protocol does not.
"""

from __future__ import annotations

import asyncio
import functools
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, ParamSpec, Protocol, TypeVar
from urllib.parse import quote, unquote, urlsplit

from lsprotocol import types
from pygls import uris
from pygls.exceptions import JsonRpcException, JsonRpcInvalidParams
from pygls.lsp.server import LanguageServer
from pygls.protocol import LanguageServerProtocol

from dmlc import diagnostics
from dmlc.editor import outline as outlines
from dmlc.editor import semantic
from dmlc.editor.complete import Completion, complete
from dmlc.editor.documents import Document, Session
from dmlc.editor.hover import hover
from dmlc.editor.listing import list_kernels
from dmlc.editor.positions import Encoding, Lines, Position, Range
from dmlc.editor.problems import Problem, describe_fix, list_problems
from dmlc.editor.references import find_highlights, find_references
from dmlc.editor.rename import find_renamable, rename
from dmlc.editor.resolve import find_definition
from dmlc.editor.scopes import What
from dmlc.editor.signatures import Help, Signature, find_signature
from dmlc.program import VERSION
from dmlc.source import DmlcError, Edit, Span
from dmlc.testing.findings import THOROUGH

P = ParamSpec("P")
T = TypeVar("T")
SOURCE, CHECK = "dmlc.source", "dmlc.check"
"""Commands: the kernels at an offset, and a thorough check of a text."""
_TYPES = tuple(dict.fromkeys(semantic.TYPES.values()))
_NO_NAME = re.compile("[\0\ud800-\udfff]")
_PAUSE = 0.02
"""Seconds without an edit before the errors of a text are reported."""

_SYMBOLS = {
    What.OPERATOR: types.SymbolKind.Class,
    What.GRAPH: types.SymbolKind.Module,
    What.ENUM: types.SymbolKind.Enum,
    What.MEMBER: types.SymbolKind.EnumMember,
    What.FUNCTION: types.SymbolKind.Function,
    What.TENSOR: types.SymbolKind.Field,
    What.ATTRIBUTE: types.SymbolKind.Property,
    What.INPUT: types.SymbolKind.Field,
    What.LOCAL: types.SymbolKind.Variable,
    What.FILE: types.SymbolKind.File,
}
_ITEMS = {
    What.OPERATOR: types.CompletionItemKind.Class,
    What.GRAPH: types.CompletionItemKind.Module,
    What.ENUM: types.CompletionItemKind.Enum,
    What.MEMBER: types.CompletionItemKind.EnumMember,
    What.FUNCTION: types.CompletionItemKind.Function,
    What.BUILT_IN: types.CompletionItemKind.Function,
    What.TENSOR: types.CompletionItemKind.Field,
    What.ATTRIBUTE: types.CompletionItemKind.Property,
    What.FACT: types.CompletionItemKind.Property,
    What.TYPE: types.CompletionItemKind.TypeParameter,
    What.FILE: types.CompletionItemKind.File,
    "keyword": types.CompletionItemKind.Keyword,
    "constant": types.CompletionItemKind.Constant,
    "value": types.CompletionItemKind.Value,
}


class _Protocol(LanguageServerProtocol):
    """Protocol that answers invalid requests, such as those about positions before a text, with an
    error: pygls only logs them, and the editor would wait for ever."""

    def structure_message(self, data: dict[str, Any]) -> Any:
        try:
            return super().structure_message(data)
        except JsonRpcException as error:
            if "id" in data and "method" in data:
                number: Any = data["id"] if isinstance(data["id"], int | str) else None
                self._send_response(number, error=error.to_response_error())
            raise

    def _send_response(
        self, msg_id: Any, result: Any = None, error: types.ResponseError | None = None
    ) -> None:
        # A refusal is an answer, and no failure of the server.
        refused = isinstance(result, types.ResponseError)
        super()._send_response(msg_id, None if refused else result, result if refused else error)


def _refusing(answer: Callable[P, T]) -> Callable[P, T | types.ResponseError]:
    """Converts a `DmlcError` to an error response with its message and cures."""

    @functools.wraps(answer)
    def asked(*given: P.args, **named: P.kwargs) -> T | types.ResponseError:
        try:
            return answer(*given, **named)
        except DmlcError as error:
            first = error.diagnostics[0]
            notes = [note.message for note in first.notes if note.span is None]
            code = types.LSPErrorCodes.RequestFailed
            return types.ResponseError(code.value, "\n".join([first.message, *notes]))

    return asked


class _PositionParams(Protocol):
    """Parameters of a request about a position in a text."""

    @property
    def text_document(self) -> types.TextDocumentIdentifier: ...

    @property
    def position(self) -> types.Position: ...


class Server:
    """Session of one editor, and the connection to it."""

    def __init__(self, folders: Sequence[Path] = ()) -> None:
        make: Any = LanguageServer
        self.connection: LanguageServer = make("dmlc", VERSION, protocol_cls=_Protocol)
        self.session = Session(folders)
        self.uris: dict[str, str] = {}
        """Editor's URIs of the open texts, since one URI can be written in several ways."""
        self.reported: dict[str, tuple[Lines, list[Problem]]] = {}
        """Errors of each text that were reported last, with the lines they refer to."""
        for handle in (
            _handle_start,
            _handle_texts,
            _handle_files,
            _handle_questions,
            _handle_symbols,
            _handle_colours,
            _handle_edits,
            _handle_commands,
        ):
            handle(self)  # fmt: skip

    def serve(self) -> None:
        """Serves the editor at standard input and output until it leaves."""
        self.connection.start_io()

    def uri(self, name: str) -> str:
        """URI of a text, in the editor's form if it is open there."""
        return self.uris.get(name) or uri_of(name)

    def document(self, uri: str) -> Document:
        """Open text with that URI. Raises `JsonRpcInvalidParams`, which becomes the answer."""
        found = self.session.documents.get(name_of(uri))
        if found is None:
            raise JsonRpcInvalidParams(f"'{uri}' is not open")
        return found

    def place(self, params: _PositionParams) -> tuple[Document, int]:
        """Document and offset of a request."""
        document = self.document(params.text_document.uri)
        return document, document.offset(from_position(params.position))

    def publish(
        self, document: Document, version: int | None = None, bind: bool = False, calls: int = 0
    ) -> list[Problem]:
        """Reports the errors of a document; `bind` and `calls` as in `list_problems`."""
        uri = self.uri(document.name)
        problems = list_problems(document, bind, calls)
        self.reported[document.name] = document.lines, problems
        found = [as_diagnostic(problem, self.uri) for problem in problems]
        self.connection.text_document_publish_diagnostics(
            types.PublishDiagnosticsParams(uri=uri, diagnostics=found, version=version)
        )
        return problems

    def problems(self, document: Document) -> list[Problem]:
        """Errors of a document as last reported, or newly computed if the text has changed."""
        reported = self.reported.get(document.name)
        if reported is not None and reported[0] is document.lines:
            return reported[1]
        return list_problems(document)

    def publish_importers(self, changed: Document) -> None:
        """Reports the errors of the documents that import another again."""
        for document in self.session.importers(changed):
            self.publish(document)


def _handle_start(server: Server) -> None:
    """Registers the handlers of initialization."""

    @server.connection.feature(types.INITIALIZE)
    def initialize(params: types.InitializeParams) -> None:
        workspace = server.connection.workspace
        workspace.update_text_document = _leave
        agreed = workspace.position_encoding
        server.session.encoding = Encoding(getattr(agreed, "value", agreed))
        named = [folder.uri for folder in params.workspace_folders or ()]
        named += [params.root_uri] if params.root_uri and not named else []
        server.session.roots = tuple(map(Path, map(name_of, named)))


def _leave(
    text_doc: types.VersionedTextDocumentIdentifier, change: types.TextDocumentContentChangeEvent
) -> None:
    """Keeps pygls from storing texts of its own. It begins lines at form feeds too, and would move
    the range of a change into such a line."""


def _handle_texts(server: Server) -> None:
    """Registers the handlers of open texts."""

    @server.connection.feature(types.TEXT_DOCUMENT_DID_OPEN)
    def did_open(params: types.DidOpenTextDocumentParams) -> None:
        item = params.text_document
        document = server.session.open(name_of(item.uri), item.text)
        server.uris[document.name] = item.uri
        server.publish(document, item.version, bind=True)
        server.publish_importers(document)

    @server.connection.feature(types.TEXT_DOCUMENT_DID_CHANGE)
    async def did_change(params: types.DidChangeTextDocumentParams) -> None:
        document = server.document(params.text_document.uri)
        for change in params.content_changes:
            part = getattr(change, "range", None)
            range = None if part is None else from_range(part)
            server.session.edit(document.name, range, change.text)
        edited = document.lines
        await asyncio.sleep(_PAUSE)
        # A later edit reports for this one; a text that was closed has nothing to report.
        if document.lines is edited and server.session.documents.get(document.name) is document:
            server.publish(document, params.text_document.version)
            server.publish_importers(document)


def _handle_files(server: Server) -> None:
    """Registers the handlers of saved files and closed texts."""

    @server.connection.feature(types.TEXT_DOCUMENT_DID_SAVE)
    def did_save(params: types.DidSaveTextDocumentParams) -> None:
        document = server.document(params.text_document.uri)
        document.forget()
        server.session.forget_importers(document)
        server.publish(document, bind=True)
        server.publish_importers(document)

    @server.connection.feature(types.TEXT_DOCUMENT_DID_CLOSE)
    def did_close(params: types.DidCloseTextDocumentParams) -> None:
        uri = params.text_document.uri
        document = server.document(uri)
        server.session.close(document.name)
        server.uris.pop(document.name, None)
        server.reported.pop(document.name, None)
        cleared = types.PublishDiagnosticsParams(uri=uri, diagnostics=[])
        server.connection.text_document_publish_diagnostics(cleared)
        server.publish_importers(document)


def _handle_questions(server: Server) -> None:
    """Registers the handlers of requests about a position."""

    @server.connection.feature(types.TEXT_DOCUMENT_HOVER)
    def show(params: types.HoverParams) -> types.Hover | None:
        document, offset = server.place(params)
        found = hover(document, offset)
        if found is None:
            return None
        kind = hover_kind(server)
        text = found.markdown() if kind is types.MarkupKind.Markdown else found.plain()
        range = to_range(document.lines.range(found.start, found.end))
        return types.Hover(contents=types.MarkupContent(kind=kind, value=text), range=range)

    @server.connection.feature(
        types.TEXT_DOCUMENT_COMPLETION, types.CompletionOptions(trigger_characters=[".", '"', "|"])
    )
    def suggest(params: types.CompletionParams) -> types.CompletionList:
        document, offset = server.place(params)
        found = complete(document, offset)
        items = [as_item(document, offset, c, number) for number, c in enumerate(found)]
        return types.CompletionList(is_incomplete=False, items=items)

    @server.connection.feature(types.TEXT_DOCUMENT_DEFINITION)
    def define(params: types.DefinitionParams) -> types.Location | None:
        document, offset = server.place(params)
        span = find_definition(document, offset)
        return None if span is None else as_location(document, span, server.uri)

    @server.connection.feature(types.TEXT_DOCUMENT_DOCUMENT_SYMBOL)
    def symbols(params: types.DocumentSymbolParams) -> list[types.DocumentSymbol]:
        document = server.document(params.text_document.uri)
        return [as_symbol(document, made) for made in outlines.outline(document)]

    @server.connection.feature(
        types.TEXT_DOCUMENT_SIGNATURE_HELP,
        types.SignatureHelpOptions(trigger_characters=["(", ","]),
    )
    def sign(params: types.SignatureHelpParams) -> types.SignatureHelp | None:
        document, offset = server.place(params)
        found = find_signature(document, offset)
        return None if found is None else as_signatures(found)

    @server.connection.feature(types.TEXT_DOCUMENT_FOLDING_RANGE)
    def fold(params: types.FoldingRangeParams) -> list[types.FoldingRange]:
        document = server.document(params.text_document.uri)
        return [as_fold(document, *found) for found in outlines.list_folds(document)]


def _handle_symbols(server: Server) -> None:
    """Registers the handlers of requests about all references to a symbol."""

    @server.connection.feature(types.TEXT_DOCUMENT_REFERENCES)
    @_refusing
    def refer(params: types.ReferenceParams) -> list[types.Location]:
        document, offset = server.place(params)
        found = find_references(document, offset)
        if not params.context.include_declaration:
            declared = find_definition(document, offset)
            found = [span for span in found if span != declared]
        return [as_location(document, span, server.uri) for span in found]

    @server.connection.feature(types.TEXT_DOCUMENT_DOCUMENT_HIGHLIGHT)
    def highlight(params: types.DocumentHighlightParams) -> list[types.DocumentHighlight]:
        document, offset = server.place(params)
        found = find_highlights(document, offset)
        return [types.DocumentHighlight(to_range(document.range(span))) for span in found]

    @server.connection.feature(types.TEXT_DOCUMENT_PREPARE_RENAME)
    @_refusing
    def prepare(params: types.PrepareRenameParams) -> types.PrepareRenamePlaceholder:
        document, offset = server.place(params)
        found = find_renamable(document, offset)
        range = to_range(document.lines.range(found.start, found.end))
        return types.PrepareRenamePlaceholder(range, document.text[found.start : found.end])

    @server.connection.feature(types.TEXT_DOCUMENT_RENAME)
    @_refusing
    def change_name(params: types.RenameParams) -> types.WorkspaceEdit:
        document, offset = server.place(params)
        return as_workspace_edit(server, rename(document, offset, params.new_name))


def _handle_colours(server: Server) -> None:
    """Registers the handlers of semantic tokens."""

    legend = types.SemanticTokensLegend(_TYPES, semantic.MODIFIERS)

    @server.connection.feature(types.TEXT_DOCUMENT_SEMANTIC_TOKENS_FULL, legend)
    def colour(params: types.SemanticTokensParams) -> types.SemanticTokens:
        document = server.document(params.text_document.uri)
        return types.SemanticTokens(data=encode(document, semantic.list_meanings(document)))


def _handle_edits(server: Server) -> None:
    """Registers the handlers of requests for edits."""

    @server.connection.feature(types.TEXT_DOCUMENT_FORMATTING)
    def lay_out(params: types.DocumentFormattingParams) -> list[types.TextEdit]:
        document = server.document(params.text_document.uri)
        return [as_edit(document.lines, edit) for edit in outlines.format_document(document)]

    quick = types.CodeActionKind.QuickFix

    @server.connection.feature(
        types.TEXT_DOCUMENT_CODE_ACTION, types.CodeActionOptions(code_action_kinds=[quick])
    )
    def mend(params: types.CodeActionParams) -> list[types.CodeAction]:
        document = server.document(params.text_document.uri)
        wanted = params.context.only
        if wanted is not None and not {"", quick, quick.value} & {*wanted}:
            return []
        start, end = (document.offset(from_position(p)) for p in
                      (params.range.start, params.range.end))  # fmt: skip
        return [
            types.CodeAction(
                title=describe_fix(fix),
                kind=quick,
                diagnostics=[as_diagnostic(problem, server.uri)],
                is_preferred=number == 0,
                edit=as_workspace_edit(server, fix),
            )
            for problem in server.problems(document)
            if document.offset(problem.range.start) <= end
            and start <= document.offset(problem.range.end)
            for number, fix in enumerate(problem.fixes)
        ]


def _handle_commands(server: Server) -> None:
    """Registers the commands: `workspace/executeCommand`."""

    @server.connection.command(SOURCE)
    @_refusing
    def show_source(uri: str, position: types.Position, target: str) -> dict[str, str]:
        document = server.document(uri)
        found = list_kernels(document, document.offset(from_position(position)), target)
        return {"name": found.name, "text": found.text}

    @server.connection.command(CHECK)
    def check(uri: str) -> dict[str, int]:
        problems = server.publish(server.document(uri), bind=True, calls=THOROUGH)
        warnings = sum(problem.warning for problem in problems)
        return {"errors": len(problems) - warnings, "warnings": warnings}


def hover_kind(server: Server) -> types.MarkupKind:
    """Markup that the editor prefers."""
    text = server.connection.client_capabilities.text_document
    shown = None if text is None or text.hover is None else text.hover.content_format
    return types.MarkupKind.PlainText if not shown else types.MarkupKind(shown[0])


# The protocol's values -------------------------------------------------------------------------


def name_of(uri: str) -> str:
    """Name of a text: the path of its file, or the editor's name for a text without one."""
    try:
        path = uris.to_fs_path(uri) if urlsplit(uri).scheme == "file" else None
    except ValueError:
        # An invalid URI, such as one with brackets around no address, is an ordinary name.
        path = None
    name = path or unquote(uri)
    # A text that cannot name a file is kept unchanged.
    return quote(uri, safe="/:%", errors="replace") if _NO_NAME.search(name) else name


def uri_of(name: str) -> str:
    """URI of a file, or of a text without one."""
    return (uris.from_fs_path(name) if Path(name).is_absolute() else None) or name


def from_position(position: types.Position) -> Position:
    return Position(position.line, position.character)


def from_range(range: types.Range) -> Range:
    return Range(from_position(range.start), from_position(range.end))


def to_range(range: Range) -> types.Range:
    start, end = (types.Position(p.line, p.column) for p in (range.start, range.end))
    return types.Range(start=start, end=end)


def as_diagnostic(problem: Problem, find_uri: Callable[[str], str]) -> types.Diagnostic:
    severity = types.DiagnosticSeverity
    related = [
        types.DiagnosticRelatedInformation(
            location=types.Location(uri=find_uri(remark.name), range=to_range(remark.range)),
            message=remark.message,
        )
        for remark in problem.remarks
    ]
    return types.Diagnostic(
        range=to_range(problem.range),
        message=problem.message,
        severity=severity.Warning if problem.warning else severity.Error,
        code=problem.code,
        code_description=describe_code(problem.code),
        source="dmlc",
        related_information=related or None,
    )


def describe_code(code: str | None) -> types.CodeDescription | None:
    """Link to the explanation of an error code, which editors open from the message."""
    if code is None or code not in diagnostics.list_codes():
        return None
    return types.CodeDescription((diagnostics.FOLDER / f"{code}.md").as_uri())


def as_item(
    document: Document, offset: int, completion: Completion, number: int
) -> types.CompletionItem:
    """Item of a completion list, with a key that keeps the order."""
    range = to_range(document.lines.range(completion.start, offset))
    return types.CompletionItem(
        label=completion.label,
        kind=_ITEMS.get(completion.what, types.CompletionItemKind.Variable),
        detail=completion.detail or None,
        sort_text=f"{number:05}",
        text_edit=types.TextEdit(range=range, new_text=completion.text),
    )


def as_edit(lines: Lines, edit: Edit) -> types.TextEdit:
    range = to_range(lines.range(edit.span.start, edit.span.end))
    return types.TextEdit(range=range, new_text=edit.text)


def as_workspace_edit(server: Server, edits: Iterable[Edit]) -> types.WorkspaceEdit:
    """Edits of several texts, each by its URI."""
    changes: dict[str, list[types.TextEdit]] = {}
    for edit in edits:
        lines = Lines(edit.span.source.text, server.session.encoding)
        changes.setdefault(server.uri(edit.span.source.name), []).append(as_edit(lines, edit))
    return types.WorkspaceEdit(changes=changes)


def as_signatures(found: Help) -> types.SignatureHelp:
    def one(signature: Signature) -> types.SignatureInformation:
        parameters = [
            types.ParameterInformation(label=p.label, documentation=p.says or None)
            for p in signature.parameters
        ]
        says = signature.says or None
        return types.SignatureInformation(signature.label, says, parameters)

    # The protocol has no other way to say that no parameter is meant: one behind the last.
    none = max(len(s.parameters) for s in found.signatures)
    active = none if found.active is None else found.active
    signatures = [one(signature) for signature in found.signatures]
    return types.SignatureHelp(signatures, active_signature=0, active_parameter=active)


def as_fold(document: Document, span: Span, comment: bool) -> types.FoldingRange:
    range = document.range(span)
    # The line of a closing brace stays in sight.
    end = range.end.line - (0 if comment else 1)
    kind = types.FoldingRangeKind.Comment if comment else None
    return types.FoldingRange(range.start.line, max(range.start.line, end), kind=kind)


def encode(document: Document, meanings: Iterable[semantic.Meaning]) -> list[int]:
    """Semantic tokens in the protocol's form: five numbers each, relative to the word before."""
    found: list[int] = []
    line = column = 0
    for meaning in meanings:
        range = document.lines.range(meaning.start, meaning.end)
        start, width = range.start, range.end.column - range.start.column
        modifiers = sum(1 << semantic.MODIFIERS.index(m) for m in meaning.modifiers)
        along = start.column - (column if start.line == line else 0)
        found += [start.line - line, along, width, _TYPES.index(meaning.type), modifiers]
        line, column = start.line, start.column
    return found


def as_location(document: Document, span: Span, find_uri: Callable[[str], str]) -> types.Location:
    lines = Lines(span.source.text, document.lines.encoding)
    range = to_range(lines.range(span.start, span.end))
    return types.Location(uri=find_uri(span.source.name), range=range)


def as_symbol(document: Document, made: outlines.Outline) -> types.DocumentSymbol:
    parts: Iterable[types.DocumentSymbol] = (as_symbol(document, part) for part in made.parts)
    return types.DocumentSymbol(
        name=made.name or "?",
        kind=_SYMBOLS.get(made.what, types.SymbolKind.Variable),
        range=to_range(document.range(made.whole)),
        selection_range=to_range(document.range(made.named)),
        detail=made.detail,
        children=list(parts),
    )

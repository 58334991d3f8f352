"""Formulas of a page as a whole: their definitions, and whether they are the complete operator.

Statements are collected while a page is read, and translated when all names are known. An equation
that defines no output and names a row of no table becomes a function of the file, for whoever
writes the formula.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable

from dmlc.pages.blocks import Code, Formula, code_spans, words
from dmlc.pages.draft import Clause, Draft, Tensor
from dmlc.pages.formulas import (
    NO_OPERATOR,
    NameMap,
    Statement,
    is_condition,
    make_function,
    read_statement,
    split_statements,
    translate,
)
from dmlc.pages.known import find_function
from dmlc.pages.ledger import Ledger, Mark
from dmlc.pages.mathematics import read_latex
from dmlc.pages.sentences import Sentence, SentenceReader
from dmlc.scalars import DataType, find_data_type

_SCALED = re.compile(r"g\(x\)\s*=\s*x\s*\*\s*scale\s*\+\s*bias", re.IGNORECASE)
_EQUATION = re.compile(r"[A-Za-z_]\w*\s*(?:\([^()]*\)|\[[ijkn]\])?\s*=(?![=>])\s*\S.*", re.DOTALL)
_BARE = re.compile(r"\bf\(\w+(?:, *\w+)*\) = .+")
"""Formula without code marks, as on the oldest pages."""
_CONDITION = re.compile(r"\b(?:if|when|unless|otherwise)\b", re.IGNORECASE)


class FormulaReader:
    """Collector of the statements of one page."""

    def __init__(self, draft: Draft, ledger: Ledger, sentences: SentenceReader) -> None:
        self.draft = draft
        self.ledger = ledger
        self.sentences = sentences
        self.statements: list[Statement] = []
        self.scaled = False
        """Whether the input is scaled and shifted by ScaleBias first."""

    def read_code(self, code: Code) -> bool:
        """Reads a block of statements; returns whether it was one."""
        made = split_statements(code.lines)
        if made is None:
            return False
        statements, others = made
        self.statements += statements
        text = dict(code.lines)
        for line in others:
            self.ledger.note_prose([line], text[line].strip())
        return True

    def read_inline(self, sentence: Sentence, field: str | None) -> bool:
        """Reads a sentence that contains a formula as code; returns whether it was one."""
        if _SCALED.search(words(sentence.raw)) and self.draft.attribute("ScaleBias") is not None:
            self.scaled = True
            self.ledger.mark(sentence.lines, Mark.LANGUAGE)
            return True
        spans = [s for s in code_spans(sentence.raw) if _EQUATION.fullmatch(s)]
        around = re.sub(r"`[^`]*`", "", sentence.raw)
        if not spans and (bare := _BARE.search(sentence.text)) is not None:
            spans, around = [bare[0]], sentence.text[: bare.start()]
        if len(spans) != 1 or _CONDITION.search(around):
            return False
        made = read_statement(spans[0], sentence.lines)
        if made is None or (field is not None and self.find_output(made.target) is None):
            return False
        self.statements.append(made)
        return True

    def read_latex(self, formula: Formula) -> None:
        """Reads a formula in LaTeX."""
        made = read_latex(formula.text)
        text = " ".join(formula.text.split())
        if self.sentences.illustrating:
            # Of a worked example, which the sentence before it leads to.
            self.sentences.illustrating = False
            self.ledger.mark(formula.lines, Mark.ILLUSTRATION)
            self.ledger.keep(formula.lines, text)
            return
        if made is None:
            self.ledger.miss(formula.lines, text)
            return
        self.statements.append(Statement(*made, text, formula.lines))

    # What they define -------------------------------------------------------------------------

    def find_output(self, name: str) -> str | None:
        """Output that a formula's name denotes."""
        outputs = {t.name for t in self.draft.tensors if t.output}
        folded = {o.lower(): o for o in outputs}
        for wanted in (name.lower(), f"{name.lower()}tensor"):
            if wanted in folded:
                return folded[wanted]
        return None

    def finish(self) -> None:
        """Adds the collected statements to the description."""
        names = NameMap(self.draft)
        made: dict[str, Clause] = {}
        failed: list[Statement] = []
        for statement in self.statements:
            clause = self.define(statement, names)
            if clause is None or clause.text.partition(" =")[0] in made:
                failed.append(statement)
            else:
                made[clause.text.partition(" =")[0]] = clause
        wanted = [t.name for t in self.draft.tensors if t.output and not t.optional]
        complete = bool(made) and all(name in made for name in wanted)
        if complete and self.reads_all(made.values()) and not self.mixes(made.values()):
            self.draft.compute = [*self.scale(), *made.values()]
            for clause in made.values():
                self.ledger.mark(clause.lines, Mark.LANGUAGE)
            self.refuse_fused()
            self.require_inputs()
            self.require_floats()
        for statement in failed if self.draft.compute else self.statements:
            self.set_aside(statement)

    def define(self, statement: Statement, names: NameMap) -> Clause | None:
        """Statement in terms of the description."""
        target = self.find_output(statement.target)
        names.parameters, names.elements = {}, frozenset({"i", "j", "k", "n"})
        outputs = [t.name for t in self.draft.tensors if t.output]
        inputs = [t.name for t in self.draft.tensors if not t.output]
        own = statement.parameters
        if own is not None or (target is None and find_function(statement.target) is not None):
            if len(outputs) != 1 or len(own or ()) > len(inputs):
                return None
            target = outputs[0]
            first = "scaled" if self.scaled else inputs[0] if inputs else ""
            names.parameters = dict(zip(own or (), [first, *inputs[1:]], strict=False))
        elif target is None:
            target = statement.target
            if find_function(target) is not None or self.draft.attribute(target) is not None:
                return None
            self.guess(target, names)
        value = translate(statement.value, names, self.sentences.like)
        if value is None:
            return None
        names.locals.add(target)
        tensor = self.draft.tensor(target)
        if tensor is not None and tensor.output and self.list_types(tensor) and is_condition(value):
            value = f"cast({value}, {target}.DataType)"
        return Clause(f"{target} = {value}", statement.words, statement.lines)

    def guess(self, target: str, names: NameMap) -> None:
        """Binds the name under definition, where its value reads it, to the input whose name it
        begins with."""
        known = names.begin(target)
        if target not in names.locals and known is not None and self.draft.tensor(target) is None:
            names.parameters = {target: known}

    def scale(self) -> list[Clause]:
        inputs = [t.name for t in self.draft.tensors if not t.output]
        if not self.scaled or not inputs:
            return []
        return [Clause(f"scaled = {inputs[0]} * ScaleBias[0] + ScaleBias[1]", "ScaleBias", ())]

    def refuse_fused(self) -> None:
        """Requires that no activation is fused, since the formula has none."""
        for attribute in self.draft.attributes:
            if attribute.default == NO_OPERATOR:
                text = f'{attribute.name} == "NONE", "the formula here fuses no activation"'
                self.draft.require(text, f"{attribute.name} is not in the formula", ())

    def list_tensors(self, clauses: Iterable[Clause]) -> list[Tensor]:
        """Tensors that formulas name."""
        named = {n for c in clauses for n in re.findall(r"[A-Za-z_]\w*", c.text)}
        return [t for t in self.draft.tensors if t.name in named]

    def list_types(self, tensor: Tensor) -> list[DataType]:
        """Numeric types that a tensor may have at any level, as far as the language has them."""
        rows = self.draft.rows(tensor.name)
        names = dict.fromkeys(n for row in rows for n in (row.types or "").split(", "))
        found = [find_data_type(name) for name in names]
        return [t for t in found if t is not None and t is not DataType.BOOL]

    def reads_all(self, clauses: Iterable[Clause]) -> bool:
        """Whether formulas read each required input; otherwise they describe a part of the
        operator."""
        read = {t.name for t in self.list_tensors([*clauses, *self.scale()])}
        needed = [t for t in self.draft.tensors if not t.output and not t.optional]
        return all(t.name in read for t in needed)

    def mixes(self, clauses: Iterable[Clause]) -> bool:
        """Whether formulas name tensors of floats only and tensors of integers only: pages describe
        such conversions in words, if at all."""
        kinds: set[bool] = set()
        for tensor in self.list_tensors(clauses):
            floats = {t.is_float for t in self.list_types(tensor)}
            kinds |= floats if len(floats) == 1 else set()
        return len(kinds) > 1

    def require_floats(self) -> None:
        """Requires floating-point tensors for a formula with fractional numbers."""
        text = " ".join(clause.text for clause in self.draft.compute)
        named = [a for a in self.draft.attributes if re.search(rf"\b{a.name}\b", text)]
        if not any(a.type.startswith("FLOAT") for a in named) and "." not in text:
            return
        for tensor in self.list_tensors(self.draft.compute):
            types = self.list_types(tensor)
            floats = [t for t in types if t.is_float]
            if len(floats) < len(types):
                names = " || ".join(f"{tensor.name}.DataType == {t.name}" for t in floats)
                text = f'{names or "false"}, "the formula here is of floating-point numbers"'
                self.draft.require(text, f"{tensor.name} is in the formula", ())

    def require_inputs(self) -> None:
        """Makes the inputs that a formula reads required, even if the page has them optional."""
        for tensor in self.list_tensors(self.draft.compute):
            if tensor.optional and not tensor.output:
                text = f'present({tensor.name}), "the formula here reads it"'
                self.draft.require(text, f"{tensor.name} is in the formula", ())

    def set_aside(self, statement: Statement) -> None:
        """Keeps an equation that defines no output as a function, or as a comment."""
        made = None
        if self.find_output(statement.target) is None and statement.parameters is None:
            made = make_function(statement.target, statement.value)
        known = self.draft.tensor(statement.target) or self.draft.attribute(statement.target)
        head = None if made is None else made.partition("(")[0]
        twice = any(f.text.partition("(")[0] == head for f in self.draft.functions)
        if made is None or known is not None or twice:
            self.ledger.miss(statement.lines, html.unescape(statement.words))
            return
        self.draft.functions.append(Clause(made, statement.words, statement.lines))
        self.ledger.mark(statement.lines, Mark.LANGUAGE)

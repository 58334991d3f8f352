"""The formulas of a page, together: what they define, and whether that is the whole operator.

Statements are collected while a page is read, and put in terms of the description when all of it is
known. An equation that defines no output and names what no table has becomes a function of the
file, for whoever writes the formula.
"""

from __future__ import annotations

import html
import re

from dmlc.pages.blocks import Code, Formula, code_spans, words
from dmlc.pages.draft import Clause, Draft
from dmlc.pages.formulas import (
    NO_OPERATOR,
    Names,
    Statement,
    make_function,
    read_statement,
    split_statements,
    translate,
)
from dmlc.pages.known import find_function
from dmlc.pages.ledger import Ledger, Mark
from dmlc.pages.mathematics import read_latex
from dmlc.pages.sentences import Sentence, SentenceReader

_SCALED = re.compile(r"g\(x\)\s*=\s*x\s*\*\s*scale\s*\+\s*bias", re.IGNORECASE)
_EQUATION = re.compile(r"[A-Za-z_]\w*\s*(?:\([^()]*\))?\s*=(?![=>])\s*\S.*", re.DOTALL)


class FormulaReader:
    """Collects the statements of one page."""

    def __init__(self, draft: Draft, ledger: Ledger, sentences: SentenceReader) -> None:
        self.draft = draft
        self.ledger = ledger
        self.sentences = sentences
        self.statements: list[Statement] = []
        self.scaled = False
        """Whether the input is scaled and shifted by ScaleBias first."""

    def read_code(self, code: Code) -> bool:
        """Takes a block of statements; tells whether it was one."""
        made = split_statements(code.lines)
        if made is None:
            return False
        statements, others = made
        self.statements += statements
        self.ledger.mark(others, Mark.PROSE)
        return True

    def read_inline(self, sentence: Sentence, field: str | None) -> bool:
        """Takes a sentence that holds a formula as code; tells whether it was one."""
        if _SCALED.search(words(sentence.raw)) and self.draft.attribute("ScaleBias") is not None:
            self.scaled = True
            self.ledger.mark(sentence.lines, Mark.LANGUAGE)
            return True
        spans = [s for s in code_spans(sentence.raw) if _EQUATION.fullmatch(s)]
        if len(spans) != 1:
            return False
        made = read_statement(spans[0], sentence.lines)
        if made is None or (field is not None and self.find_output(made.target) is None):
            return False
        self.statements.append(made)
        return True

    def read_latex(self, formula: Formula) -> None:
        """Takes a formula in LaTeX."""
        made = read_latex(formula.text)
        text = " ".join(formula.text.split())
        if made is None:
            self.ledger.miss(formula.lines, text)
            return
        self.statements.append(Statement(*made, text, formula.lines))

    # What they define -------------------------------------------------------------------------

    def find_output(self, name: str) -> str | None:
        """The output that a formula calls so."""
        outputs = {t.name for t in self.draft.tensors if t.output}
        folded = {o.lower(): o for o in outputs}
        for wanted in (name.lower(), f"{name.lower()}tensor"):
            if wanted in folded:
                return folded[wanted]
        return None

    def finish(self) -> None:
        """Puts what was collected into the description."""
        names = Names(self.draft)
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
        if complete:
            self.draft.compute = [*self.scale(), *made.values()]
            for clause in made.values():
                self.ledger.mark(clause.lines, Mark.LANGUAGE)
            self.refuse_fused()
        for statement in failed if complete else self.statements:
            self.set_aside(statement)

    def define(self, statement: Statement, names: Names) -> Clause | None:
        """A statement in terms of the description."""
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
        return Clause(f"{target} = {value}", statement.words, statement.lines)

    def guess(self, target: str, names: Names) -> None:
        """What is read by the name that is just being defined: the input whose name it begins
        with."""
        known = names.begin(target)
        if target not in names.locals and known is not None and self.draft.tensor(target) is None:
            names.parameters = {target: known}

    def scale(self) -> list[Clause]:
        inputs = [t.name for t in self.draft.tensors if not t.output]
        if not self.scaled or not inputs:
            return []
        return [Clause(f"scaled = {inputs[0]} * ScaleBias[0] + ScaleBias[1]", "ScaleBias", ())]

    def refuse_fused(self) -> None:
        """A formula fuses no activation."""
        for attribute in self.draft.attributes:
            if attribute.default == NO_OPERATOR:
                text = f'{attribute.name} == "NONE", "the formula here fuses no activation"'
                self.draft.require(text, f"{attribute.name} is not in the formula", ())

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

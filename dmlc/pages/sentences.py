"""Sentences of a page, their lines and their classes.

A rule is a pattern and a handler of its match. A sentence that no rule accepts is prose if it has
none of the words by which pages state a fact, and no number; otherwise it is not understood.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

from dmlc.pages.blocks import Page, Paragraph, words
from dmlc.pages.draft import Attribute, Draft, Tensor
from dmlc.pages.ledger import Ledger, Mark

FACT = re.compile(
    r"\b(?:must|should|shall|requires?|required|only|equals?|equivalent|when|if|unless|defaults?"
    r"|range|greater|less|smaller|larger|at (?:least|most)|ignored?|match(?:es)?|null(?:ptr)?"
    r"|cannot|can't|never|always|permitted|allowed|invalid|supported|broadcast\w*|in-place|up to"
    r"|except|precedes?|otherwise|neither|undefined|not defined|out-of-bounds|guaranteed"
    r"|same (?:as|sizes?|data|dimensions?|ranks?|shapes?|DataType|DimensionCount|span))\b"
    r"|(?<![\w.])\d+(?:\.\d+)?f?(?![\w.]*\w)|[<>={}]",
    re.IGNORECASE,
)
"""Marks of a sentence that states a fact: a word of duty, condition or comparison, or a number."""
_MOST_CHARACTERS = 2000
"""Longest sentence that rules are tried on, in characters."""
_ENGLISH = re.compile(r"\b(?:the|of|is|are|to|and|in|this|for|by|that|with)\b", re.IGNORECASE)
_NAMED = re.compile(r"\\f\$(?:(?!\\f\$|\\frac|\\in\b|\\sum|\\[lg]e|[=<>]).)*\\f\$")
"""Formula within a sentence that is only a name."""
_BOUNDARY = re.compile(
    r"(?<=[.!?])(?<!e\.g\.)(?<!i\.e\.)(?<!etc\.)\s+(?=[`*_(\[\"\\<]{0,3}[A-Z`\\])"
)
_WHOLE = re.compile(r"`[^`]*`|\\f\$.*?\\f\$|\[[^\[\]]*\]\([^()]*\)|\$[^$\n]{1,80}\$")
_SHARE = 0.25
"""Fraction of a line that a sentence must fill to count for it."""
_PRELUDE = re.compile(r"^\s*(?:@note\b|@warning\b|\[![A-Z]+\])\s*|\\n(?=\s|$)")


@dataclasses.dataclass(frozen=True, slots=True)
class Sentence:
    raw: str
    """Source text with its markup."""
    lines: tuple[int, ...]

    @property
    def text(self) -> str:
        """Words without the full stop; `\\src` is a name."""
        return re.sub(r"\\(?!f[$\[\]])(?=[A-Za-z])", "", words(self.raw)).rstrip(".: ").strip()


def split(paragraph: Paragraph) -> Iterator[Sentence]:
    """Sentences of a paragraph, each with the lines that it fills to a good part."""
    owners: list[int] = []
    parts: list[str] = []
    lengths: dict[int, int] = {}
    for line, text in paragraph.lines:
        cleaned = _PRELUDE.sub("", text).strip()
        parts.append(cleaned)
        owners += [line] * (len(cleaned) + 1)
        lengths[line] = len(cleaned)
    joined = " ".join(parts)
    masked = _WHOLE.sub(lambda m: m[0][0] + "x" * (len(m[0]) - 1), joined)
    starts = [0, *(m.end() for m in _BOUNDARY.finditer(masked)), len(joined)]
    for start, end in itertools.pairwise(starts):
        if not joined[start:end].strip():
            continue
        held: dict[int, int] = {}
        for line in owners[start:end]:
            held[line] = held.get(line, 0) + 1
        most = max(held, key=lambda line: held[line])
        lines = tuple(n for n in held if n == most or held[n] >= _SHARE * lengths[n])
        yield Sentence(joined[start:end].strip(), lines)


def is_english(page: Page) -> bool:
    """Whether the text of a page is English; sentences of other languages cannot be classified."""
    text = " ".join(words(b.text) for b in page.blocks if isinstance(b, Paragraph))
    count = len(re.findall(r"[^\W\d_]{2,}", text))
    return len(_ENGLISH.findall(text)) >= count // 12


def split_names(text: str) -> list[str]:
    """Names in `A, B, and C`."""
    found = re.findall(r"[A-Za-z_]\w*", re.sub(r"\b(?:and|or|the|both|tensors?)\b", " ", text))
    return list(dict.fromkeys(found))


@dataclasses.dataclass(frozen=True, slots=True)
class Claim:
    """Sentence that matches the pattern of a rule; `field` is the row it describes, if any."""

    reader: SentenceReader
    match: re.Match[str]
    sentence: Sentence
    field: str | None

    def __getitem__(self, group: str) -> str:
        """Text of a group of the pattern; empty for one that takes no part in the match."""
        return self.match[group] or ""

    @property
    def draft(self) -> Draft:
        return self.reader.draft

    @property
    def words(self) -> str:
        """Words of the page, for the comment at a fact."""
        return words(self.sentence.raw)

    @property
    def tensor(self) -> Tensor | None:
        """Tensor that the sentence describes."""
        return self.find_tensor(self.field)

    @property
    def attribute(self) -> Attribute | None:
        """Attribute that the sentence describes."""
        return self.find_attribute(self.field)

    def find_tensor(self, name: str | None) -> Tensor | None:
        return None if name is None else self.draft.tensor(name)

    def find_attribute(self, name: str | None) -> Attribute | None:
        return None if name is None else self.draft.attribute(name)

    def find_tensors(self, text: str) -> list[str] | None:
        """Tensors that a text names; None if it names anything else."""
        names = split_names(text)
        known = {t.name for t in self.draft.tensors}
        return names if names and known.issuperset(names) else None

    def state(self, text: str) -> Mark:
        """Adds a constraint."""
        self.draft.state(text, self.words, self.sentence.lines)
        return Mark.LANGUAGE

    def require(self, condition: str) -> Mark:
        """Adds a condition as a constraint."""
        return self.state(f"require {condition}")

    def require_same(self, names: Sequence[str], facts: Iterable[str]) -> Mark:
        """Equates facts of tensors."""
        self.draft.require_same(names, facts, self.words, self.sentence.lines)
        return Mark.LANGUAGE


Handler: TypeAlias = Callable[[Claim], "Mark | None"]
"""Judge of a sentence, which adds its facts to the description; returns None to decline."""
Rules: TypeAlias = Sequence[tuple[re.Pattern[str], Handler]]


def make_rules(*rules: tuple[str, Handler | Mark]) -> Rules:
    """Rules from patterns, each with its handler, or the class of every sentence that matches."""
    return [
        (re.compile(pattern), (lambda _, mark=each: mark) if isinstance(each, Mark) else each)
        for pattern, each in rules
    ]


def illustrate(claim: Claim) -> Mark:
    """Handler of a sentence that introduces a worked example."""
    claim.reader.illustrating = True
    return Mark.ILLUSTRATION


class SentenceReader:
    """Classifier of the sentences of one page, which adds their facts to a description."""

    def __init__(self, draft: Draft, ledger: Ledger, rules: Rules) -> None:
        self.draft = draft
        self.ledger = ledger
        self.rules = rules
        self.like: str | None = None
        """Tensor that sums without axes reduce to."""
        self.idle = False
        """Whether the condition of the current sentences never holds."""
        self.illustrating = False
        """Whether the sentences before introduce a worked example."""
        self.english = is_english(ledger.page)
        self.take: Callable[[Sentence, str | None], bool] | None = None
        """Handler of sentences that contain a formula."""

    def read(self, paragraph: Paragraph, field: str | None = None, doc: bool = False) -> None:
        """Classifies a paragraph, and marks its lines. In the one that begins with the operator's
        `doc` string, the first sentence is understood."""
        self.idle = False
        for line, text in paragraph.lines:
            if not _PRELUDE.sub("", text).strip():
                self.ledger.mark([line], Mark.FURNITURE)
        for number, sentence in enumerate(split(paragraph)):
            if self.take is not None and self.take(sentence, field):
                continue
            mark = self.judge(sentence, field)
            if doc and number == 0:
                mark = Mark.LANGUAGE
            if mark is Mark.MISSED:
                self.ledger.miss(sentence.lines, words(sentence.raw))
            elif mark is Mark.PROSE:
                self.ledger.note_prose(sentence.lines, words(sentence.raw))
            else:
                self.ledger.mark(sentence.lines, mark)
            if mark is Mark.ILLUSTRATION:
                self.ledger.keep(sentence.lines, words(sentence.raw))

    def read_cell(self, text: str, lines: tuple[int, ...], field: str) -> None:
        """Classifies a cell of prose in a table row. The row is understood by its other cells; text
        of this one that is not understood is kept."""
        for sentence in split(Paragraph(((lines[0], text),))):
            mark = self.judge(sentence, field)
            if mark is Mark.MISSED:
                self.ledger.keep(lines, f"{field}: {words(sentence.raw)}")
            elif mark is Mark.PROSE:
                self.ledger.note_prose(lines, f"{field}: {words(sentence.raw)}")

    def judge(self, sentence: Sentence, field: str | None) -> Mark:
        """Class of a sentence."""
        text = sentence.text
        if len(text) > _MOST_CHARACTERS:
            return Mark.MISSED
        for pattern, handler in self.rules:
            match = pattern.match(text)
            if match is not None:
                mark = handler(Claim(self, match, sentence, field))
                if mark is not None:
                    return mark
        if self.idle:
            return Mark.LANGUAGE
        fact = FACT.search(_NAMED.sub("x", text)) is not None
        return Mark.MISSED if fact or not self.english else Mark.PROSE

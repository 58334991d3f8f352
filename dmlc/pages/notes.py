"""Rules for sentences of oneDNN Graph pages that state facts, with the form of each in the
language."""

from __future__ import annotations

import re

from dmlc.pages.blocks import Paragraph, code_spans, words
from dmlc.pages.draft import Clause, Draft
from dmlc.pages.formulas import make_function, parse_code
from dmlc.pages.known import find_function
from dmlc.pages.ledger import Mark
from dmlc.pages.sentences import Rules, Sentence, SentenceReader, split, split_names


def _require(reader: SentenceReader, condition: str, sentence: Sentence) -> Mark:
    reader.draft.require(condition, words(sentence.raw), sentence.lines)
    return Mark.LANGUAGE


def _forward(
    reader: SentenceReader, match: re.Match[str], _: Sentence, __: str | None
) -> Mark | None:
    name = match["name"]
    if "Backward" not in reader.draft.name or not name[:1].isupper():
        return None
    reader.draft.forward = name
    return Mark.LANGUAGE


def _together(
    reader: SentenceReader, match: re.Match[str], sentence: Sentence, _: str | None
) -> Mark | None:
    """`gamma and beta should be either both provided or neither provided`"""
    names = reader.tensors(match["names"])
    if names is None or len(names) != 2:
        return None
    return _require(reader, f"present({names[0]}) == present({names[1]})", sentence)


def _given(reader: SentenceReader, name: str, kind: str) -> str | None:
    """Condition that an input or an attribute is given; an attribute may have been renamed."""
    tensor = reader.tensor(name)
    if tensor is not None and kind != "attribute":
        return f"present({name})" if tensor.optional else None
    attribute = reader.attribute(f"{name}_attribute") or reader.attribute(name)
    if attribute is None or not attribute.is_array:
        return None
    return f"length({attribute.name}) > 0"


def _one_of(
    reader: SentenceReader, match: re.Match[str], sentence: Sentence, _: str | None
) -> Mark | None:
    """`Either src_shape input or src_shape attribute should be provided`"""
    given: list[str] = []
    for name, kind in ((match["a"], match["ka"]), (match["b"], match["kb"])):
        ways = [_given(reader, name, k) for k in ((kind,) if kind else ("input", "attribute"))]
        given += [w for w in ways if w is not None]
    given = list(dict.fromkeys(given))
    return _require(reader, " || ".join(given), sentence) if len(given) > 1 else None


def _exactly_one(
    reader: SentenceReader, match: re.Match[str], sentence: Sentence, _: str | None
) -> Mark | None:
    """`Exactly one of attribute axes and the second input tensor axes should be available`"""
    attribute = _given(reader, match["a"], "attribute")
    tensor = _given(reader, match["b"], "input")
    if attribute is None or tensor is None:
        return None
    return _require(reader, f"({attribute}) != {tensor}", sentence)


def _vector(
    reader: SentenceReader, match: re.Match[str], sentence: Sentence, _: str | None
) -> Mark | None:
    """`sizes is a 1D tensor`; `They are both 1D tensor ... required if attribute x is set to True`,
    about the tensors of the sentences before."""
    names = split_names(match["names"])
    if names == ["They"]:
        names = re.findall(r"(?:^|(?<=[.\s]))`?([a-z_]+)`? is\b", _before(reader, sentence))
    found = [t for t in map(reader.tensor, names) if t is not None]
    if not found or len(found) != len(names):
        return None
    for tensor in found:
        tensor.ranks = "1"
    needed = re.search(r"\brequired if (?:the )?attribute (\w+) is set to [Tt]rue\b", sentence.text)
    if needed is not None and reader.attribute(needed[1]) is not None:
        for tensor in found:
            _require(reader, f"!{needed[1]} || present({tensor.name})", sentence)
    if re.search(r"same span as", sentence.text):
        source, axis = _channels(reader)
        if source is None:
            return None
        for tensor in found:
            size = f"{tensor.name}.Sizes[0] == {source}.Sizes[{axis}]"
            _require(reader, f"!present({tensor.name}) || {size}", sentence)
    return Mark.LANGUAGE


def _needed(
    reader: SentenceReader, match: re.Match[str], sentence: Sentence, _: str | None
) -> Mark | None:
    """`mean and variance are required if the attribute keep_stats is set to True`"""
    names = reader.tensors(match["names"])
    if names is None or reader.attribute(match["attribute"]) is None:
        return None
    for name in names:
        _require(reader, f"!{match['attribute']} || present({name})", sentence)
    return Mark.LANGUAGE


def _alike(
    reader: SentenceReader, match: re.Match[str], sentence: Sentence, _: str | None
) -> Mark | None:
    names = reader.tensors(match["names"])
    if names is None:
        return None
    facts = ("DimensionCount", "Sizes")
    reader.draft.require_same(names, facts, words(sentence.raw), sentence.lines)
    return Mark.LANGUAGE


def _unbroadcast(
    reader: SentenceReader, match: re.Match[str], sentence: Sentence, _: str | None
) -> Mark | None:
    """`All input shapes should match and no broadcasting is allowed if auto_broadcast is none`"""
    given = [t.name for t in reader.draft.tensors if not t.output and not t.optional]
    attribute = match["attribute"]
    if len(given) < 2 or reader.attribute(attribute) is None:
        return None
    for name in given[1:]:
        same = f"{given[0]}.DimensionCount == {name}.DimensionCount"
        same = f"{same} && {given[0]}.Sizes == {name}.Sizes"
        _require(reader, f'{attribute} != "none" || {same}', sentence)
    return Mark.LANGUAGE


def _before(reader: SentenceReader, sentence: Sentence) -> str:
    """Page's words on the lines before a sentence, without markup."""
    first = min(sentence.lines)
    return " ".join(words(t) for t in reader.ledger.page.text[max(0, first - 3) : first])


def _channels(reader: SentenceReader) -> tuple[str | None, str]:
    """Input with channels, and their axis: the last one unless stated otherwise."""
    source = "src" if reader.tensor("src") is not None else None
    layout = reader.attribute("data_format")
    last = f"{source}.DimensionCount - 1"
    if layout is None or "NCX" not in (layout.values or ""):
        return source, last
    return source, f'data_format == "NCX" ? 1 : {last}'


def _but_space(
    reader: SentenceReader, match: re.Match[str], sentence: Sentence, _: str | None
) -> Mark | None:
    """`The shape of the dst matches src shape except spatial dimensions`"""
    names = [match["a"], match["b"]]
    layout = reader.attribute("data_format")
    if any(reader.tensor(n) is None for n in names) or layout is None:
        return None
    a, b = names
    axis = f'data_format == "NCX" ? 1 : {b}.DimensionCount - 1'
    reader.draft.require_same(names, ("DimensionCount",), words(sentence.raw), sentence.lines)
    same = f"{a}.Sizes[0] == {b}.Sizes[0] && {a}.Sizes[{axis}] == {b}.Sizes[{axis}]"
    return _require(reader, same, sentence)


def _space(
    reader: SentenceReader, match: re.Match[str], sentence: Sentence, _: str | None
) -> Mark | None:
    """`For spatial dimensions, they should match sizes from sizes or calculated from scales`"""
    sizes = reader.attribute(f"{match['sizes']}_attribute") or reader.attribute(match["sizes"])
    scales, layout = reader.attribute(match["scales"]), reader.attribute("data_format")
    source, result = reader.tensor("src"), reader.tensor("dst")
    if None in (sizes, scales, layout, source, result) or sizes is None or scales is None:
        return None
    first = 'data_format == "NCX" ? 2 : 1'
    end = "src.DimensionCount - (" + 'data_format == "NCX" ? 0 : 1)'
    space = f"range({first}, {end})"
    wanted = f"length({sizes.name}) > 0 ? {sizes.name} : floor(src.Sizes[{space}] * {scales.name})"
    condition = f"all(dst.Sizes[{space}] == ({wanted}))"
    given = reader.tensor(match["sizes"])
    if given is not None and given.optional:
        condition = f"present({given.name}) || {condition}"
    return _require(reader, condition, sentence)


def _marked(
    reader: SentenceReader, _: re.Match[str], sentence: Sentence, __: str | None
) -> Mark | None:
    """`The tensors marked with an asterisk are used only when the operation is configured to use
    gamma and beta`: the asterisks are in the paragraph before."""
    page = "\n".join(reader.ledger.page.text)
    marked = re.findall(r"\\?(diff)?_?\\?(\w+)\([^()]*\)\s*\^\*", page)
    names = list(dict.fromkeys(f"diff_{n}" if d else n for d, n in marked))
    names = [n.replace("diff_diff", "diff_").replace("diffgamma", "diff_gamma") for n in names]
    names = [re.sub(r"^diff(?=[a-z])", "diff_", n) for n in names]
    used = [n for n in split_names(sentence.text.rpartition(" use ")[2].replace("(c)", ""))
            if reader.tensor(n) is not None]  # fmt: skip
    outputs = [t for n in names if (t := reader.tensor(n)) is not None and t.output and t.optional]
    if not used or not outputs:
        return None
    needed = " && ".join(f"present({n})" for n in used)
    needed = f"({needed})" if len(used) > 1 else needed
    for tensor in outputs:
        _require(reader, f"!present({tensor.name}) || {needed}", sentence)
    return Mark.LANGUAGE


def _no_attributes(reader: SentenceReader, *_: object) -> Mark | None:
    return None if reader.draft.attributes else Mark.LANGUAGE


def _order(reader: SentenceReader, *_: object) -> Mark | None:
    """Order of arguments, which the order of the rows states."""
    return Mark.LANGUAGE if reader.draft.tensors else None


def _furniture(*_: object) -> Mark:
    return Mark.FURNITURE


def _illustration(reader: SentenceReader, *_: object) -> Mark:
    reader.illustrating = True
    return Mark.ILLUSTRATION


def _which(
    reader: SentenceReader, match: re.Match[str], _: Sentence, field: str | None
) -> Mark | None:
    """`If true, use dst of ReLU operation to calculate the gradient. Otherwise, use src`: about the
    input that has both names."""
    return Mark.LANGUAGE if field is not None and reader.attribute(field) is not None else None


_PROVIDED = r"(?: (?P<k{0}>input|attribute))?"

ONEDNN: Rules = [
    (re.compile(pattern), handler)
    for pattern, handler in (
        (r"\w+ (?:operation )?(?:computes|calculates) (?:the )?gradients? (?:on .+ )?(?:for|of) "
         r"(?P<name>[A-Z]\w*)(?: operat(?:ion|or))?$", _forward),
        (r"\w+ (?:operation )?performs the backward of (?P<name>[A-Z]\w*)(?: operation)?$",
         _forward),
        (r"\w+ (?:operation )?does not support any attributes?$", _no_attributes),
        (r"The inputs and outputs must be provided according to (?:the )?(?:below index order|"
         r"index order shown below|following index order)\b", _order),
        (r"\w+ (?:operation )?supports the following data type combinations?$", _furniture),
        (r"(?P<names>\w+ and \w+) should be either both provided or neither provided$", _together),
        (rf"Either (?P<a>\w+){_PROVIDED.format('a')} or (?P<b>\w+){_PROVIDED.format('b')} "
         "should be provided$", _one_of),
        (r"(?P<names>They|\w+(?: and \w+)*) (?:is|are)(?: both)? (?:an? )?(?:\w+ )?1-?D tensors?\b",
         _vector),
        (r"(?:Both )?(?P<names>\w+(?: and \w+)*) (?:is|are) required if (?:the )?attribute "
         r"(?P<attribute>\w+) is set to [Tt]rue$", _needed),
        (r"(?:It requires that )?(?P<names>\w+ and \w+) (?:must |should )?have the same shape"
         r"(?: and layout)?$", _alike),
        (r".*\bshapes should match and no (?:auto-)?broadcasting is allowed if (?:the )?"
         r"(?P<attribute>\w+) (?:attributes? )?is (?:set to )?none(?:, or can be broadcasted .*)?$",
         _unbroadcast),
        (r"Exactly one of attribute (?P<a>\w+) and the (?:\w+ )?input tensor (?P<b>\w+) should be "
         r"available$", _exactly_one),
        (r"The shape of (?:the )?(?P<a>\w+) matches (?P<b>\w+) shape except spatial dimensions$",
         _but_space),
        (r"For spatial dimensions, they should match sizes from (?P<sizes>\w+) or calculated from "
         r"(?P<scales>\w+) attribute$", _space),
        (r"The tensors marked with an asterisk are used only when ", _marked),
        (r"If true, use \w+ of \w+(?: operation)? to calculate the gradient$", _which),
        (r"Otherwise, use \w+$", _which),
        (r"(?:Take|For per-channel [\w-]+, taking) .* as an example$", _illustration),
    )
]  # fmt: skip
"""Rules in order; the first that accepts a sentence is used."""


# Formulas of coordinates -----------------------------------------------------------------------

_SUBJECT = re.compile(r"The attribute (?P<name>\w+) is the name of .* mode in string format$")
_CASE = re.compile(r"For (?P<value>\w+): the (?P<what>[a-z]+) .* is calculated as (?P<rest>.+)$")
_HERE = re.compile(r"Here (?P<name>\w+)(?:\[\w+\])? is (?P<value>.+?)(?: and \w+ is an? .*)?$")


def read_coordinates(draft: Draft, block: Paragraph) -> bool:
    """Reads a note with a calculation for each value of an attribute as a function; returns whether
    it was such a note."""
    sentences = list(split(block))
    subject = next((m for s in sentences if (m := _SUBJECT.match(s.text))), None)
    attribute = None if subject is None else draft.attribute(subject["name"])
    cases = [(m, s) for s in sentences if (m := _CASE.match(s.text))]
    if attribute is None or len(cases) < 2:
        return False
    helpers = {m["name"]: f"({_element(m['value'])})" for s in sentences
               if (m := _HERE.match(s.text))}  # fmt: skip
    values: list[tuple[str, str]] = []
    for match, sentence in cases:
        code = [_element(c) for c in code_spans(sentence.raw)][1:]
        value = _choose(code, sentence.text)
        if value is None or match["value"] not in (attribute.values or ""):
            return False
        for name, helper in helpers.items():
            value = re.sub(rf"\b{name}\b", helper, value)
        values.append((match["value"], value))
    chosen = values[-1][1]
    for name, value in reversed(values[:-1]):
        chosen = f'({attribute.name} == "{name}" ? ({value}) : ({chosen}))'
    what = cases[0][0]["what"]
    made = make_function(what, chosen) if find_function(what) is None else None
    if made is None:
        return False
    text = " ".join(words(s.raw) for s in sentences)
    draft.functions.append(Clause(made, text, tuple(line for line, _ in block.lines)))
    return True


def _element(text: str) -> str:
    """Code of one axis: `scale` for `scale[x]`."""
    return re.sub(r"\[[a-z]\]", "", text)


def _choose(code: list[str], text: str) -> str | None:
    """Choice `E`, or `0 if C else E`, from the code fragments of a sentence."""
    known = [c for c in code if parse_code(c) is not None and not re.fullmatch(r"\w+", c)]
    match = re.search(r"calculated as (?P<value>-?[\w.]+) if ", text)
    if match is not None and len(known) == 2:
        return f"({known[0]}) ? {match['value']} : ({known[1]})"
    return known[0] if len(known) == 1 else None

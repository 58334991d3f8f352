"""Rules for sentences of oneDNN Graph pages that state facts, with the form of each in the
language."""

from __future__ import annotations

import re

from dmlc.pages.blocks import Paragraph, code_spans, words
from dmlc.pages.draft import Attribute, Clause, Draft
from dmlc.pages.formulas import make_function, parse_code
from dmlc.pages.known import find_function
from dmlc.pages.ledger import Mark
from dmlc.pages.sentences import Claim, Rules, illustrate, make_rules, split, split_names


def _forward(claim: Claim) -> Mark | None:
    name = claim["name"]
    if "Backward" not in claim.draft.name or not name[:1].isupper():
        return None
    claim.draft.forward = name
    return Mark.LANGUAGE


def _together(claim: Claim) -> Mark | None:
    """`gamma and beta should be either both provided or neither provided`"""
    names = claim.find_tensors(claim["names"])
    if names is None or len(names) != 2:
        return None
    return claim.require(f"present({names[0]}) == present({names[1]})")


def _given(claim: Claim, name: str, kind: str) -> str | None:
    """Condition that an input or an attribute is given."""
    tensor = claim.find_tensor(name)
    if tensor is not None and kind != "attribute":
        return f"present({name})" if tensor.optional else None
    attribute = _find_renamed(claim, name)
    if attribute is None or not attribute.is_array:
        return None
    return f"length({attribute.name}) > 0"


def _find_renamed(claim: Claim, name: str) -> Attribute | None:
    """Attribute of a name on the page, which is another one here if an input has it too."""
    return claim.find_attribute(f"{name}_attribute") or claim.find_attribute(name)


def _one_of(claim: Claim) -> Mark | None:
    """`Either src_shape input or src_shape attribute should be provided`"""
    given: list[str] = []
    for name, kind in ((claim["a"], claim["ka"]), (claim["b"], claim["kb"])):
        ways = [_given(claim, name, k) for k in ((kind,) if kind else ("input", "attribute"))]
        given += [w for w in ways if w is not None]
    given = list(dict.fromkeys(given))
    return claim.require(" || ".join(given)) if len(given) > 1 else None


def _exactly_one(claim: Claim) -> Mark | None:
    """`Exactly one of attribute axes and the second input tensor axes should be available`"""
    attribute = _given(claim, claim["a"], "attribute")
    tensor = _given(claim, claim["b"], "input")
    if attribute is None or tensor is None:
        return None
    return claim.require(f"({attribute}) != {tensor}")


def _vector(claim: Claim) -> Mark | None:
    """`sizes is a 1D tensor`; `They are both 1D tensor ... required if attribute x is set to True`,
    about the tensors of the sentences before."""
    names = split_names(claim["names"])
    if names == ["They"]:
        names = re.findall(r"(?:^|(?<=[.\s]))`?([a-z_]+)`? is\b", _before(claim))
    found = [t for t in map(claim.find_tensor, names) if t is not None]
    if not found or len(found) != len(names):
        return None
    for tensor in found:
        tensor.ranks = "1"
    text = claim.sentence.text
    needed = re.search(r"\brequired if (?:the )?attribute (\w+) is set to [Tt]rue\b", text)
    if needed is not None and claim.find_attribute(needed[1]) is not None:
        for tensor in found:
            claim.require(f"!{needed[1]} || present({tensor.name})")
    if "same span as" in text:
        source, axis = _channels(claim)
        if source is None:
            return None
        for tensor in found:
            size = f"{tensor.name}.Sizes[0] == {source}.Sizes[{axis}]"
            claim.require(f"!present({tensor.name}) || {size}")
    return Mark.LANGUAGE


def _needed(claim: Claim) -> Mark | None:
    """`mean and variance are required if the attribute keep_stats is set to True`"""
    names = claim.find_tensors(claim["names"])
    if names is None or claim.find_attribute(claim["attribute"]) is None:
        return None
    for name in names:
        claim.require(f"!{claim['attribute']} || present({name})")
    return Mark.LANGUAGE


def _alike(claim: Claim) -> Mark | None:
    names = claim.find_tensors(claim["names"])
    return None if names is None else claim.require_same(names, ("DimensionCount", "Sizes"))


def _unbroadcast(claim: Claim) -> Mark | None:
    """`All input shapes should match and no broadcasting is allowed if auto_broadcast is none`"""
    given = [t.name for t in claim.draft.tensors if not t.output and not t.optional]
    attribute = claim["attribute"]
    if len(given) < 2 or claim.find_attribute(attribute) is None:
        return None
    for name in given[1:]:
        same = f"{given[0]}.DimensionCount == {name}.DimensionCount"
        same = f"{same} && {given[0]}.Sizes == {name}.Sizes"
        claim.require(f'{attribute} != "none" || {same}')
    return Mark.LANGUAGE


def _before(claim: Claim) -> str:
    """Page's words on the lines before a sentence, without markup."""
    first = min(claim.sentence.lines)
    return " ".join(words(t) for t in claim.reader.ledger.page.text[max(0, first - 3) : first])


def _channels(claim: Claim) -> tuple[str | None, str]:
    """Input with channels, and their axis: the last one unless stated otherwise."""
    source = "src" if claim.find_tensor("src") is not None else None
    layout = claim.find_attribute("data_format")
    last = f"{source}.DimensionCount - 1"
    if layout is None or "NCX" not in (layout.values or ""):
        return source, last
    return source, f'data_format == "NCX" ? 1 : {last}'


def _but_space(claim: Claim) -> Mark | None:
    """`The shape of the dst matches src shape except spatial dimensions`"""
    names = [claim["a"], claim["b"]]
    layout = claim.find_attribute("data_format")
    if any(claim.find_tensor(n) is None for n in names) or layout is None:
        return None
    a, b = names
    axis = f'data_format == "NCX" ? 1 : {b}.DimensionCount - 1'
    claim.require_same(names, ("DimensionCount",))
    same = f"{a}.Sizes[0] == {b}.Sizes[0] && {a}.Sizes[{axis}] == {b}.Sizes[{axis}]"
    return claim.require(same)


def _space(claim: Claim) -> Mark | None:
    """`For spatial dimensions, they should match sizes from sizes or calculated from scales`"""
    sizes = _find_renamed(claim, claim["sizes"])
    scales, layout = claim.find_attribute(claim["scales"]), claim.find_attribute("data_format")
    source, result = claim.find_tensor("src"), claim.find_tensor("dst")
    if None in (sizes, scales, layout, source, result) or sizes is None or scales is None:
        return None
    first = 'data_format == "NCX" ? 2 : 1'
    end = "src.DimensionCount - (" + 'data_format == "NCX" ? 0 : 1)'
    space = f"range({first}, {end})"
    wanted = f"length({sizes.name}) > 0 ? {sizes.name} : floor(src.Sizes[{space}] * {scales.name})"
    condition = f"all(dst.Sizes[{space}] == ({wanted}))"
    given = claim.find_tensor(claim["sizes"])
    if given is not None and given.optional:
        condition = f"present({given.name}) || {condition}"
    return claim.require(condition)


def _marked(claim: Claim) -> Mark | None:
    """`The tensors marked with an asterisk are used only when the operation is configured to use
    gamma and beta`: the asterisks are in the paragraph before."""
    page = "\n".join(claim.reader.ledger.page.text)
    marked = re.findall(r"\\?(diff)?_?\\?(\w+)\([^()]*\)\s*\^\*", page)
    names = list(dict.fromkeys(f"diff_{n}" if d else n for d, n in marked))
    names = [n.replace("diff_diff", "diff_").replace("diffgamma", "diff_gamma") for n in names]
    names = [re.sub(r"^diff(?=[a-z])", "diff_", n) for n in names]
    used = [n for n in split_names(claim.sentence.text.rpartition(" use ")[2].replace("(c)", ""))
            if claim.find_tensor(n) is not None]  # fmt: skip
    outputs = [
        t for n in names if (t := claim.find_tensor(n)) is not None and t.output and t.optional
    ]
    if not used or not outputs:
        return None
    needed = " && ".join(f"present({n})" for n in used)
    needed = f"({needed})" if len(used) > 1 else needed
    for tensor in outputs:
        claim.require(f"!present({tensor.name}) || {needed}")
    return Mark.LANGUAGE


def _no_attributes(claim: Claim) -> Mark | None:
    return None if claim.draft.attributes else Mark.LANGUAGE


def _order(claim: Claim) -> Mark | None:
    """Order of arguments, which the order of the rows states."""
    return Mark.LANGUAGE if claim.draft.tensors else None


def _which(claim: Claim) -> Mark | None:
    """`If true, use dst of ReLU operation to calculate the gradient. Otherwise, use src`: about the
    input that has both names."""
    return Mark.LANGUAGE if claim.attribute is not None else None


_PROVIDED = r"(?: (?P<k{0}>input|attribute))?"

ONEDNN: Rules = make_rules(
    (r"\w+ (?:operation )?(?:computes|calculates) (?:the )?gradients? (?:on .+ )?(?:for|of) "
     r"(?P<name>[A-Z]\w*)(?: operat(?:ion|or))?$", _forward),
    (r"\w+ (?:operation )?performs the backward of (?P<name>[A-Z]\w*)(?: operation)?$",
     _forward),
    (r"\w+ (?:operation )?does not support any attributes?$", _no_attributes),
    (r"The inputs and outputs must be provided according to (?:the )?(?:below index order|"
     r"index order shown below|following index order)\b", _order),
    (r"\w+ (?:operation )?supports the following data type combinations?$", Mark.FURNITURE),
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
    (r"(?:Take|For per-channel [\w-]+, taking) .* as an example$", illustrate),
)  # fmt: skip
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

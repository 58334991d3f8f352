"""Rules for sentences of DirectML pages that state facts, with the form of each in the language."""

from __future__ import annotations

import re
from collections.abc import Sequence

from dmlc.language.definitions import level_number
from dmlc.language.format import join_names
from dmlc.language.walk import functions_called
from dmlc.pages.blocks import code_spans
from dmlc.pages.draft import Tensor
from dmlc.pages.formulas import parse_code
from dmlc.pages.known import find_function
from dmlc.pages.ledger import Mark
from dmlc.pages.ranges import find_default, of_each, read_bound, read_range
from dmlc.pages.sentences import Claim, Rules, Sentence, illustrate, make_rules, split_names
from dmlc.pages.structs import OPERATOR

_FACTS = {
    "datatype": "DataType", "data type": "DataType", "dimensioncount": "DimensionCount",
    "dimension count": "DimensionCount", "sizes": "Sizes", "size": "Sizes", "dimensions": "Sizes",
}  # fmt: skip
_FACT = "(?:DataType|[Dd]ata type|DimensionCount|[Dd]imension count|[Dd]imensions|[Ss]izes?)"
_SOME_FACTS = f"(?P<facts>{_FACT}(?:(?:,? and |, ){_FACT})*)"
_NAMES = r"(?P<names>[A-Za-z_]\w*(?:(?:,? and |, )[A-Za-z_]\w*)*)"
_LIST = r"\{([^{}]*)\}"


# Tensors that are alike ------------------------------------------------------------------------


def _same(claim: Claim) -> Mark | None:
    names = claim.find_tensors(claim["names"])
    return None if names is None or len(names) < 2 else _equate(claim, names)


def _equate(claim: Claim, names: Sequence[str]) -> Mark:
    """Equates the facts that the sentence names: the sizes, unless it names others."""
    facts = re.findall(_FACT, claim["facts"] or "Sizes")
    return claim.require_same(names, [_FACTS[fact.lower()] for fact in facts])


def _matches(claim: Claim) -> Mark | None:
    """`The Sizes of this tensor must match those of InputTensor.`"""
    tensor, other = claim.tensor, claim.find_tensor(claim["other"])
    if tensor is None or other is None or tensor is other:
        return None
    return _equate(claim, [other.name, tensor.name])


def _both(claim: Claim) -> Mark | None:
    """`The data type and size of the input and output tensors must be the same.`"""
    tensors = claim.draft.tensors
    if len(tensors) != 2 or sum(t.output for t in tensors) != 1:
        return None
    return _equate(claim, [t.name for t in tensors])


def _broadcasts(claim: Claim) -> Mark | None:
    """`Any dimension in A and B can be set to 1, and be automatically broadcast to match X.`"""
    names = claim.find_tensors(claim["names"] or claim.field or "")
    target = claim.find_tensor(claim["target"])
    if names is None or target is None or target.name in names:
        return None
    return claim.state(f"{join_names(names)} must be broadcastable to {target.name}.")


def _of_forward(claim: Claim) -> Mark | None:
    """Tensor with the sizes of one of the forward operator, which `forward` states."""
    found = OPERATOR.search(claim.sentence.raw)
    forward = claim.draft.forward
    return Mark.LANGUAGE if found is not None and found[1] == forward else None


# Numbers ---------------------------------------------------------------------------------------


def _range(claim: Claim) -> Mark | None:
    attribute = claim.attribute
    if attribute is None:
        return None
    condition = read_range(claim.draft, attribute, claim["low"], claim["high"], claim["end"])
    return None if condition is None else claim.require(condition)


def _bound(claim: Claim) -> Mark | None:
    attribute = claim.attribute
    if attribute is None:
        return None
    allowed = claim["must"] == "must be"
    condition = read_bound(claim.draft, attribute, claim["word"], claim["bound"], allowed)
    return None if condition is None else claim.require(condition)


_RELATION = re.compile(r"(?P<left>[^<>=]+?)\s*(?P<operator><=|>=|=|<|>)\s*(?P<right>[^<>=]+)")


def _each_dimension(claim: Claim) -> Mark | None:
    """`the output size is calculated as Y.Sizes[i] = X.Sizes[i] * Repeats[i]`"""
    spans = [
        m for s in code_spans(claim.sentence.raw) if (m := _RELATION.fullmatch(s)) and "[i]" in s
    ]
    if len(spans) != 1:
        return None
    found = spans[0]
    sides = [re.sub(r"\*?\b(\w+(?:\.Sizes)?)\*?\[i\]", r"\1", found[s]) for s in ("left", "right")]
    for name, fact in re.findall(r"([A-Za-z_]\w*)(\.\w+)?", " ".join(sides)):
        array = claim.find_attribute(name)
        tensor = claim.find_tensor(name) is not None and fact == ".Sizes"
        if not tensor and (array is None or not array.is_array or fact):
            return None
    operator = "==" if found["operator"] == "=" else found["operator"]
    return claim.require(f"all({sides[0]} {operator} {sides[1]})")


def _unequal(claim: Claim) -> Mark | None:
    attribute = claim.attribute
    return attribute and claim.require(of_each(attribute, f"!= {claim['value']}"))


def _type_of(claim: Claim) -> Mark | None:
    """`The data type of the Min member, which must match OutputTensor.DataType.`"""
    attribute, tensor = claim.attribute, claim.find_tensor(claim["other"])
    if attribute is None or attribute.type != "TYPE" or tensor is None:
        return None
    return claim.require(f"{attribute.name} == {tensor.name}.DataType")


def _default(claim: Claim) -> Mark | None:
    attribute = claim.attribute
    if attribute is None:
        return None
    default = find_default(attribute, claim["value"])
    if default is None:
        return None
    attribute.default = attribute.default or default
    return Mark.LANGUAGE


# Arrays and dimension counts -------------------------------------------------------------------


def _lengths(claim: Claim) -> Mark | None:
    """`This field determines the size of the Axes array.`: the type of Axes states it, or will."""
    names = split_names(re.sub(r"\barrays?\b", "", claim["names"]))
    count = claim.attribute
    arrays = [claim.find_attribute(name) or claim.find_tensor(name) for name in names]
    if count is None or not arrays or None in arrays:
        return None
    for array in arrays:
        if isinstance(array, Tensor):
            kind = "Array of outputs" if array.output else "Array of inputs"
            for row in claim.draft.rows(array.name):
                row.kind = kind
            claim.draft.count(count, array, claim.words, claim.sentence.lines)
        elif array is not None and array.type.endswith("[]"):
            array.type = f"{array.type[:-2]}[{count.name}]"
        elif array is not None and not array.type.endswith(f"[{count.name}]"):
            return None
    return Mark.LANGUAGE


def _count(claim: Claim) -> Mark | None:
    """`This value must equal the DimensionCount of InputTensor.`"""
    names, attribute = claim.find_tensors(claim["names"]), claim.attribute
    if claim["names"] == "input and output":
        names = [t.name for t in claim.draft.tensors if "Array" not in t.kind]
    if names is None or attribute is None:
        return None
    attribute.default = attribute.default or f"{names[0]}.DimensionCount"
    for name in names:
        claim.require(f"{attribute.name} == {name}.DimensionCount")
    return Mark.LANGUAGE


def _spatial_count(claim: Claim) -> Mark | None:
    """`This value must equal the spatial dimension count.`: without batch and channel."""
    attribute = claim.attribute
    tensor = next((t for t in claim.draft.tensors if _fits(t.ranks, {4, 5})), None)
    if attribute is None or tensor is None:
        return None
    value = f"{tensor.name}.DimensionCount - 2"
    attribute.default = attribute.default or value
    return claim.require(f"{attribute.name} == {value}")


def _by_rank(claim: Claim) -> Mark | None:
    """`It should be set to 2 when InputTensor is 4D, and 3 when it's a 5D tensor.`"""
    tensor, attribute = claim.find_tensor(claim["tensor"]), claim.attribute
    less = {int(claim["rank"]) - int(claim["value"]), int(claim["rank2"]) - int(claim["value2"])}
    if tensor is None or attribute is None or len(less) != 1 or min(less) < 0:
        return None
    value = f"{tensor.name}.DimensionCount - {less.pop()}".removesuffix(" - 0")
    attribute.default = attribute.default or value
    return claim.require(f"{attribute.name} == {value}")


def _named_entries(claim: Claim) -> Mark | None:
    """`{ Height, Width } when DimensionCount is set to 2`: that many entries, as the type says."""
    attribute = claim.attribute
    if attribute is None or not attribute.type.endswith(f"[{claim['count']}]"):
        return None
    lists = [s for s in code_spans(claim.sentence.raw) if re.fullmatch(_LIST, s.strip())]
    counts = [int(n) for n in re.findall(r"\bset to (\d+)", claim.sentence.text)]
    lengths = [s.count(",") + 1 for s in lists]
    return Mark.LANGUAGE if lengths and lengths == counts else None


# Dimensions ------------------------------------------------------------------------------------


def _dimensions(claim: Claim) -> Mark | None:
    """`A tensor of Sizes { N, C, H, W } for 4D, and { N, C, D, H, W } for 5D.` None if the table of
    tensors differs, or another tensor has a size of that name: pages use one name for different
    sizes."""
    tensor = claim.tensor
    lists = [m[1] for s in code_spans(claim.sentence.raw) if (m := re.fullmatch(_LIST, s.strip()))]
    shapes = [[part.strip() for part in found.split(",")] for found in lists]
    if tensor is None or not shapes or len(shapes) > 2:
        return None
    shapes.sort(key=len)
    merged = shapes[-1]
    if len(shapes) == 2:
        merged = [n if n in shapes[0] else f"[{n}]" for n in shapes[1]]
        if [n for n in merged if not n.startswith("[")] != shapes[0]:
            return None
    names = {n.strip("[]") for n in merged}
    named = [n for n in merged if not n.strip("[]").isdigit()]
    if not all(re.fullmatch(r"[A-Za-z_]\w{0,60}|[1-9]\d{0,8}", n) for n in names):
        return None
    if len(set(named)) < len(named) or not _fits(tensor.ranks, {len(s) for s in shapes}):
        return None
    text = f"{{ {', '.join(merged)} }}"
    if tensor.dimensions is not None:
        said = {re.sub(r"[\[\]]", "", t) for t in (tensor.dimensions, text)}
        return Mark.LANGUAGE if len(said) == 1 else None
    taken = {n for t in claim.draft.tensors for n in re.findall(r"\w+", t.dimensions or "")}
    if taken & {n for n in names if not n.isdigit()}:
        return None
    for row in claim.draft.rows(tensor.name):
        if _fits(row.ranks, {len(s) for s in shapes}):
            row.dimensions = text
    return Mark.LANGUAGE


def _listed_dimensions(claim: Claim) -> Mark | None:
    """`{ BatchCount, InputWidth } for 3D`, for a tensor whose table has these, some in brackets."""
    tensor = claim.tensor
    if tensor is None or tensor.dimensions is None:
        return None
    listed = [part.strip() for part in claim["list"].split(",")]
    known = [part.strip() for part in tensor.dimensions.strip("{ }").split(",")]
    found = [k for k in known if k.strip("[]") in listed]
    needed = all(k in found for k in known if not k.startswith("["))
    return Mark.LANGUAGE if [k.strip("[]") for k in found] == listed and needed else None


def _reduced(claim: Claim) -> Mark | None:
    """Sizes of an output with reduced axes."""
    source = claim.find_tensor(claim["input"] or "InputTensor")
    result = claim.find_tensor(claim.field if claim["input"] else "OutputTensor")
    axes = claim.find_attribute("Axes")
    if source is None or result is None or axes is None or source is result:
        return None
    size = f"(any(Axes == d) ? 1 : {source.name}.Sizes[d])"
    condition = f"all[d : {source.name}.DimensionCount] ({result.name}.Sizes[d] == {size})"
    return claim.require(condition)


def _scalar(claim: Claim) -> Mark | None:
    tensor = claim.tensor
    if tensor is None:
        return None
    claim.state(f"{tensor.name} must be a scalar.")
    return None if re.search(r"\btype\b", claim.sentence.text) else Mark.LANGUAGE


def _by_case(claim: Claim) -> Mark | None:
    """`{ M, K } if TransA is NONE, or { K, M } if it is TRANSPOSE`: dimensions that the table gives
    for one case are left to the formula."""
    tensor = claim.tensor
    lists = {m[1].replace(" ", "") for m in re.finditer(_LIST, claim.sentence.text)}
    if tensor is not None and tensor.dimensions is not None and len(lists) > 1:
        for row in claim.draft.rows(tensor.name):
            row.dimensions = None
        claim.draft.note(f"The table has dimensions of {tensor.name} that hold in one case only.")
    return None


def _fits(ranks: str | None, lengths: set[int]) -> bool:
    """Whether a tensor has exactly these ranks."""
    if ranks is None:
        return False
    low, _, high = ranks.partition(" to ")
    if not low.isdigit():
        return {int(r) for r in re.findall(r"\d+", ranks)} == lengths
    return set(range(int(low), int(high or low) + 1)) == lengths


# Optional tensors and feature levels -----------------------------------------------------------


def _optional(claim: Claim) -> Mark | None:
    tensor, attribute = claim.tensor, claim.attribute
    if tensor is not None and tensor.optional:
        return Mark.LANGUAGE
    return Mark.LANGUAGE if attribute is not None and attribute.default is not None else None


def _needed_with(claim: Claim) -> Mark | None:
    tensor, other = claim.tensor, claim.find_tensor(claim["other"])
    if tensor is None or other is None or not tensor.optional:
        return None
    condition = f"present({tensor.name})"
    if other.optional:
        condition = f"!present({other.name}) || {condition}"
    return claim.require(condition)


def _at_level(claim: Claim) -> Mark | None:
    """Sentence about some feature levels: about none of the operator's, or about all of them."""
    first, level = level_number(claim.draft.introduced), level_number(claim["level"])
    if first is None or level is None or level > first:
        return None
    claim.reader.idle = claim["how"].startswith("less")
    if claim.reader.idle:
        return Mark.LANGUAGE
    rest = claim.sentence.raw[claim.sentence.raw.index("then") + 4 :].strip(" ,")
    rest = rest[:1].upper() + rest[1:]
    return claim.reader.judge(Sentence(rest, claim.sentence.lines), claim.field)


def _introduced(claim: Claim) -> Mark | None:
    return Mark.LANGUAGE if claim.draft.introduced == claim["level"] else None


def _forward(claim: Claim) -> Mark | None:
    found = re.search(OPERATOR.pattern, claim.sentence.raw, re.IGNORECASE)
    if found is None or claim.draft.forward not in (None, found[1].upper()):
        return None
    claim.draft.forward = found[1].upper()
    return Mark.LANGUAGE


# Prose of known kinds --------------------------------------------------------------------------


def _typical(claim: Claim) -> Mark | None:
    alike = re.search(r"same sizes as", claim.sentence.text)
    found = _of_forward(claim) if alike else None
    return Mark.PROSE if found is None else found


def _of_bool(claim: Claim) -> Mark | None:
    """Use of a Boolean option."""
    attribute = claim.attribute
    return Mark.PROSE if attribute is not None and attribute.type == "BOOL" else None


def _further(claim: Claim) -> Mark | None:
    return Mark.ILLUSTRATION if claim.reader.illustrating else None


def _named_function(claim: Claim) -> Mark | None:
    """`Where exp(x) is the natural exponentiation function`: a function of the language."""
    called = [parse_code(part) for part in re.findall(r"\w+\([^()]*\)", claim.match[0])]
    names = [name for node in called if node is not None for name in functions_called(node)]
    return Mark.LANGUAGE if names and all(map(find_function, names)) else None


def _sums(claim: Claim) -> Mark | None:
    """Sum over the dimensions in which a tensor has size 1, which becomes `like:`."""
    names = claim.find_tensors(claim["names"])
    if names is None:
        return None
    claim.reader.like = names[0]
    return Mark.LANGUAGE


_THIS = "(?:This|The|Each|These) (?:value|field|parameter|axis)s?"

DIRECTML: Rules = make_rules(
    (f"(?:Both )?(?:the )?{_NAMES} (?:must |should )?have the same (?:tensor )?{_SOME_FACTS}$",
     _same),
    (rf"The {_SOME_FACTS} of (?:the )?{_NAMES} must be the same$", _same),
    (rf"The {_SOME_FACTS} of the input and output tensors must be the same$", _both),
    (rf"The {_SOME_FACTS} of this tensor must (?:exactly )?match (?:(?:those|that) of )?"
     rf"(?:the )?(?P<other>\w+?)(?:\.{_FACT})?$", _matches),
    (rf"(?:This tensor|Its|The tensor|This tensor's Sizes) (?:must|should) (?:have the same "
     rf"(?P<facts>{_FACT}(?:(?:,? and |, ){_FACT})*) as|match) (?:the )?(?P<other>\w+)$",
     _matches),
    (r"(?:This|The) tensor's (?P<facts>[Dd]imensions|[Ss]izes) (?:must )?match (?:those of )?"
     r"(?:the )?(?P<other>\w+)$", _matches),
    (r".*(?:calculated as|constraint) .*\[i\].*$", _each_dimension),
    (r"For each dimension i\b.*\[i\].*$", _each_dimension),
    (r"(?:Values|\w+) may not be (?P<value>\d+)$", _unequal),
    (rf"(?:The )?(?P<facts>{_FACT}) must match (?P<other>\w+)\.{_FACT}(?: \([^()]*\))?$",
     _matches),
    (r".*\bmust match (?P<other>\w+)\.DataType$", _type_of),
    (rf"[Aa]ny dimension(?: in {_NAMES})? can be set to 1,? and be automatically broadcast to "
     r"match (?P<target>\w+)(?:, but otherwise must equal .*)?$", _broadcasts),
    (rf"(?:Values|{_THIS}) must be (?:in|within) the range (?:of )?[\[({{](?P<low>[^,]+), *"
     r"(?P<high>[^\])}]+)(?P<end>[\])}])$", _range),
    (r".*, ranging (?:within |from )?[\[({](?P<low>[^,]+), *(?P<high>[^\])}]+)"
     r"(?P<end>[\])}])$", _range),
    (rf"(?:Values|{_THIS}) (?:must|should) be between (?P<low>[\w.+-]+) and "
     r"(?P<high>[\w.+-]+)(?P<end>)$", _range),
    (rf"(?:Values|{_THIS}) (?P<must>must be|cannot be|may not be|must not be) (?:a )?(?P<word>"
     r"(?:greater|larger) than or equal to|(?:greater|larger) than|at least|less than or equal "
     r"to|less than|at most|positive|non-negative)(?: (?:the )?(?P<bound>[\w.+-]+"
     r"(?: of (?:the )?\w+)?))?$", _bound),
    (r".*?\b(?:(?:typical|usual|recommended|The) default(?: value)?(?: for this \w+)? is|value "
     r"of|default value of|[Dd]efaults? (?:to|is)) "
     r"(?P<value>-?\w[\w.+-]*)(?: \([^()]*\))?(?: is recommended as default|, which is the "
     r"same behavior as \w+)?$", _default),
    (r"A value of (?P<value>-?\w[\w.+-]*) is (?:typical|recommended|usual)$", _default),
    (rf"{_THIS} (?:also )?determines the sizes? of the (?P<names>.+ arrays?)$", _lengths),
    (r"The number of elements in the (?P<names>.+ arrays?)$", _lengths),
    (rf"{_THIS} must (?:equal|match|be the same(?: value)? as) the (?:DimensionCount|dimension "
     rf"count) (?:provided in|of) (?:the )?{_NAMES}(?: tensors)?(?:, which (?:has to|must) be "
     r"\d)?$", _count),
    (rf"{_THIS} must (?:equal|match|be the same(?: value)? as) (?:the )?(?P<names>\w+)\."
     "DimensionCount$", _count),
    (rf"{_THIS} must equal the spatial dimension count$", _spatial_count),
    (r"The spatial dimension count is 2 if 4D tensors are provided, or 3 if 5D tensors are "
     "provided$", _spatial_count),
    (r"It should be set to (?P<value>\d+) when (?P<tensor>\w+) is (?P<rank>\d)D, and "
     r"(?P<value2>\d+) when it's a (?P<rank2>\d)D tensor$", _by_rank),
    (r"It should be set to (?P<value>\d+) when (?P<tensor>\w+)\.DimensionCount is "
     r"(?P<rank>\d), and (?P<value2>\d+) when \w+\.DimensionCount is (?P<rank2>\d)$", _by_rank),
    (r".*\} when (?:the )?(?P<count>\w+) is set to \d+\b", _named_entries),
    (r".*\{.*\} if .*\{.*\} if ", _by_case),
    (r"\{(?P<list>[^{}]*)\} for \dD(?:, and|,)?$", _listed_dimensions),
    (r"(?:An? .*\b(?:of|with|has) (?:Sizes|[Ss]izes|dimensions|shape)|(?:This|The) tensor'?s?"
     r".*\b(?:Sizes|dimensions|shape)|(?:The expected|Expected) dimensions of (?:the )?\w+ are"
     r"|The (?:input|output) tensor's dimensions are).*\{.*\}", _dimensions),
    (r"An? optional\b[^,;:0-9]*(?:, or nullptr)?$", _optional),
    (r"[Tt]his tensor can be null\b[^,;0-9]*$", _optional),
    (r"(?:The output tensor sizes must be the same as the input tensor sizes|Sizes must match "
     r"(?P<input>\w+)\.Sizes), except for (?:dimensions (?:included in|among) )?the "
     "(?:reduced )?[Aa]xes, "
     "which must be (?:size )?1$", _reduced),
    (r"This tensor must be a scalar\b", _scalar),
    (r"[Tt]his tensor is required if (?:the )?(?P<other>\w+) is (?:present|used)$",
     _needed_with),
    (r"If DML_FEATURE_LEVEL is (?P<how>less than|greater than or equal to) "
     r"(?P<level>DML_FEATURE_LEVEL_\d+_\d+), then ", _at_level),
    (r"This operator was introduced in (?P<level>DML_FEATURE_LEVEL_\d+_\d+)$", _introduced),
    (r"The corresponding forward-pass operator is ", _forward),
    (r"Computes backpropagation gradients for .*", _forward),
    (r"See [\w:]+$", Mark.FURNITURE),
    (r".*\bDirectML standalone redistributable\b", Mark.FURNITURE),
    (r"Also see DirectML version history$", Mark.FURNITURE),
    (r"For more info(?:rmation)?\b.*?,? see\b", Mark.FURNITURE),
    (r"A newer version of this operator, \w+, was introduced in \w+$", Mark.FURNITURE),
    (r"(?:This is |This value is )?[Tt]ypically\b", _typical),
    (r".*\bsame sizes as the (?:input|output) of ", _of_forward),
    (r"Where \w+\([^()]*\).*", _named_function),
    (rf".*\bcomputed using sums across the set of dimensions for which {_NAMES} sizes equal "
     "one$", _sums),
    (r"TBD$", Mark.PROSE),
    (r"This operator supports in-place execution\b", Mark.PROSE),
    (r"During binding, this tensor is permitted to alias\b", Mark.PROSE),
    (r"TRUE (?:if|to specify)\b|(?:Otherwise|otherwise), (?:it is )?FALSE$", _of_bool),
    (r".*\b(?:is|are) equivalent to DML_\w+", Mark.PROSE),
    (r"(?:You should|Subsequent executions should|Some data types might not be|To determine "
     r"whether a data type is|If in doubt)\b", Mark.PROSE),
    (r"(?:As an|For) example\b|Notice\b", illustrate),
    (r"The corresponding \w+ would\b", _further),
)  # fmt: skip
"""Rules in order; the first that accepts a sentence is used."""

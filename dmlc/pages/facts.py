"""Rules for sentences of DirectML pages that state facts, with the form of each in the language."""

from __future__ import annotations

import re

from dmlc.language.definitions import level_number
from dmlc.pages.blocks import code_spans, words
from dmlc.pages.draft import Clause, Tensor, join_names
from dmlc.pages.formulas import list_called, parse_code
from dmlc.pages.known import find_function
from dmlc.pages.ledger import Mark
from dmlc.pages.ranges import find_default, of_each, read_bound, read_range
from dmlc.pages.sentences import Rules, Sentence, SentenceReader, split_names
from dmlc.pages.structs import OPERATOR

_FACTS = {
    "datatype": "DataType", "data type": "DataType", "dimensioncount": "DimensionCount",
    "dimension count": "DimensionCount", "sizes": "Sizes", "size": "Sizes", "dimensions": "Sizes",
}  # fmt: skip
_FACT = "(?:DataType|[Dd]ata type|DimensionCount|[Dd]imension count|[Dd]imensions|[Ss]izes?)"
_SOME_FACTS = f"(?P<facts>{_FACT}(?:(?:,? and |, ){_FACT})*)"
_NAMES = r"(?P<names>[A-Za-z_]\w*(?:(?:,? and |, )[A-Za-z_]\w*)*)"
_LIST = r"\{([^{}]*)\}"


def _require(reader: SentenceReader, condition: str, sentence: Sentence) -> Mark:
    reader.draft.require(condition, words(sentence.raw), sentence.lines)
    return Mark.LANGUAGE


# Tensors that are alike ------------------------------------------------------------------------


def _same(
    reader: SentenceReader, match: re.Match[str], sentence: Sentence, _: str | None
) -> Mark | None:
    names = reader.tensors(match["names"])
    if names is None or len(names) < 2:
        return None
    facts = [_FACTS[f.lower()] for f in re.findall(_FACT, match["facts"])]
    reader.draft.require_same(names, facts, words(sentence.raw), sentence.lines)
    return Mark.LANGUAGE


def _matches(
    reader: SentenceReader, match: re.Match[str], sentence: Sentence, field: str | None
) -> Mark | None:
    """`The Sizes of this tensor must match those of InputTensor.`"""
    tensor, other = reader.tensor(field), reader.tensor(match["other"])
    if tensor is None or other is None or tensor is other:
        return None
    facts = [_FACTS[f.lower()] for f in re.findall(_FACT, match["facts"] or "Sizes")]
    names = [other.name, tensor.name]
    reader.draft.require_same(names, facts, words(sentence.raw), sentence.lines)
    return Mark.LANGUAGE


def _both(
    reader: SentenceReader, match: re.Match[str], sentence: Sentence, _: str | None
) -> Mark | None:
    """`The data type and size of the input and output tensors must be the same.`"""
    tensors = reader.draft.tensors
    if len(tensors) != 2 or sum(t.output for t in tensors) != 1:
        return None
    facts = [_FACTS[f.lower()] for f in re.findall(_FACT, match["facts"])]
    names = [t.name for t in tensors]
    reader.draft.require_same(names, facts, words(sentence.raw), sentence.lines)
    return Mark.LANGUAGE


def _broadcasts(
    reader: SentenceReader, match: re.Match[str], sentence: Sentence, field: str | None
) -> Mark | None:
    """`Any dimension in A and B can be set to 1, and be automatically broadcast to match X.`"""
    names = reader.tensors(match["names"]) if match["names"] else None
    if match["names"] is None and reader.tensor(field) is not None:
        names = [str(field)]
    target = reader.tensor(match["target"])
    if names is None or target is None or target.name in names:
        return None
    text = f"{join_names(names)} must be broadcastable to {target.name}."
    if all(c.text != text for c in reader.draft.constraints):
        reader.draft.constraints.append(Clause(text, words(sentence.raw), sentence.lines))
    return Mark.LANGUAGE


def _of_forward(
    reader: SentenceReader, _: re.Match[str], sentence: Sentence, field: str | None
) -> Mark | None:
    """Tensor with the sizes of one of the forward operator, which `forward` states."""
    found = OPERATOR.search(sentence.raw)
    forward = reader.draft.forward
    return Mark.LANGUAGE if found is not None and found[1] == forward else None


# Numbers ---------------------------------------------------------------------------------------


def _range(
    reader: SentenceReader, match: re.Match[str], sentence: Sentence, field: str | None
) -> Mark | None:
    attribute = reader.attribute(field)
    if attribute is None:
        return None
    condition = read_range(reader.draft, attribute, match["low"], match["high"], match["end"])
    return None if condition is None else _require(reader, condition, sentence)


def _bound(
    reader: SentenceReader, match: re.Match[str], sentence: Sentence, field: str | None
) -> Mark | None:
    attribute = reader.attribute(field)
    if attribute is None:
        return None
    allowed = match["must"] == "must be"
    condition = read_bound(reader.draft, attribute, match["word"], match["bound"], allowed)
    return None if condition is None else _require(reader, condition, sentence)


_RELATION = re.compile(r"(?P<left>[^<>=]+?)\s*(?P<operator><=|>=|=|<|>)\s*(?P<right>[^<>=]+)")


def _each_dimension(
    reader: SentenceReader, _: re.Match[str], sentence: Sentence, __: str | None
) -> Mark | None:
    """`the output size is calculated as Y.Sizes[i] = X.Sizes[i] * Repeats[i]`"""
    spans = [m for s in code_spans(sentence.raw) if (m := _RELATION.fullmatch(s)) and "[i]" in s]
    if len(spans) != 1:
        return None
    found = spans[0]
    sides = [re.sub(r"\*?\b(\w+(?:\.Sizes)?)\*?\[i\]", r"\1", found[s]) for s in ("left", "right")]
    for name, fact in re.findall(r"([A-Za-z_]\w*)(\.\w+)?", " ".join(sides)):
        array = reader.attribute(name)
        tensor = reader.tensor(name) is not None and fact == ".Sizes"
        if not tensor and (array is None or not array.is_array or fact):
            return None
    operator = "==" if found["operator"] == "=" else found["operator"]
    return _require(reader, f"all({sides[0]} {operator} {sides[1]})", sentence)


def _unequal(
    reader: SentenceReader, match: re.Match[str], sentence: Sentence, field: str | None
) -> Mark | None:
    attribute = reader.attribute(field)
    if attribute is None:
        return None
    return _require(reader, of_each(attribute, f"!= {match['value']}"), sentence)


def _type_of(
    reader: SentenceReader, match: re.Match[str], sentence: Sentence, field: str | None
) -> Mark | None:
    """`The data type of the Min member, which must match OutputTensor.DataType.`"""
    attribute, tensor = reader.attribute(field), reader.tensor(match["other"])
    if attribute is None or attribute.type != "TYPE" or tensor is None:
        return None
    return _require(reader, f"{attribute.name} == {tensor.name}.DataType", sentence)


def _default(
    reader: SentenceReader, match: re.Match[str], _: Sentence, field: str | None
) -> Mark | None:
    attribute = reader.attribute(field)
    if attribute is None:
        return None
    default = find_default(attribute, match["value"])
    if default is None:
        return None
    attribute.default = attribute.default or default
    return Mark.LANGUAGE


# Arrays and dimension counts -------------------------------------------------------------------


def _lengths(
    reader: SentenceReader, match: re.Match[str], sentence: Sentence, field: str | None
) -> Mark | None:
    """`This field determines the size of the Axes array.`: the type of Axes states it, or will."""
    names = split_names(re.sub(r"\barrays?\b", "", match["names"]))
    count = reader.attribute(field)
    arrays = [reader.attribute(name) or reader.tensor(name) for name in names]
    if count is None or not arrays or None in arrays:
        return None
    for array in arrays:
        if isinstance(array, Tensor):
            kind = "Array of outputs" if array.output else "Array of inputs"
            for each in (t for level in reader.draft.levels for t in level.tensors):
                each.kind = kind if each.name == array.name else each.kind
            reader.draft.count(count, array, words(sentence.raw), sentence.lines)
        elif array is not None and array.type.endswith("[]"):
            array.type = f"{array.type[:-2]}[{count.name}]"
        elif array is not None and not array.type.endswith(f"[{count.name}]"):
            return None
    return Mark.LANGUAGE


def _count(
    reader: SentenceReader, match: re.Match[str], sentence: Sentence, field: str | None
) -> Mark | None:
    """`This value must equal the DimensionCount of InputTensor.`"""
    names, attribute = reader.tensors(match["names"]), reader.attribute(field)
    if match["names"] == "input and output":
        names = [t.name for t in reader.draft.tensors if "Array" not in t.kind]
    if names is None or attribute is None:
        return None
    attribute.default = attribute.default or f"{names[0]}.DimensionCount"
    for name in names:
        _require(reader, f"{attribute.name} == {name}.DimensionCount", sentence)
    return Mark.LANGUAGE


def _spatial_count(
    reader: SentenceReader, _: re.Match[str], sentence: Sentence, field: str | None
) -> Mark | None:
    """`This value must equal the spatial dimension count.`: without batch and channel."""
    attribute = reader.attribute(field)
    tensor = next((t for t in reader.draft.tensors if _fits(t.ranks, {4, 5})), None)
    if attribute is None or tensor is None:
        return None
    value = f"{tensor.name}.DimensionCount - 2"
    attribute.default = attribute.default or value
    return _require(reader, f"{attribute.name} == {value}", sentence)


def _by_rank(
    reader: SentenceReader, match: re.Match[str], sentence: Sentence, field: str | None
) -> Mark | None:
    """`It should be set to 2 when InputTensor is 4D, and 3 when it's a 5D tensor.`"""
    tensor, attribute = reader.tensor(match["tensor"]), reader.attribute(field)
    less = {int(match["rank"]) - int(match["value"]), int(match["rank2"]) - int(match["value2"])}
    if tensor is None or attribute is None or len(less) != 1 or min(less) < 0:
        return None
    value = f"{tensor.name}.DimensionCount - {less.pop()}".removesuffix(" - 0")
    attribute.default = attribute.default or value
    return _require(reader, f"{attribute.name} == {value}", sentence)


def _named_entries(
    reader: SentenceReader, match: re.Match[str], sentence: Sentence, field: str | None
) -> Mark | None:
    """`{ Height, Width } when DimensionCount is set to 2`: that many entries, as the type says."""
    attribute = reader.attribute(field)
    if attribute is None or not attribute.type.endswith(f"[{match['count']}]"):
        return None
    lists = [s for s in code_spans(sentence.raw) if re.fullmatch(_LIST, s.strip())]
    counts = [int(n) for n in re.findall(r"\bset to (\d+)", sentence.text)]
    lengths = [s.count(",") + 1 for s in lists]
    return Mark.LANGUAGE if lengths and lengths == counts else None


# Dimensions ------------------------------------------------------------------------------------


def _dimensions(
    reader: SentenceReader, _: re.Match[str], sentence: Sentence, field: str | None
) -> Mark | None:
    """`A tensor of Sizes { N, C, H, W } for 4D, and { N, C, D, H, W } for 5D.` None if the table of
    tensors differs, or another tensor has a size of that name: pages use one name for different
    sizes."""
    tensor = reader.tensor(field)
    lists = [m[1] for s in code_spans(sentence.raw) if (m := re.fullmatch(_LIST, s.strip()))]
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
    taken = {n for t in reader.draft.tensors for n in re.findall(r"\w+", t.dimensions or "")}
    if taken & {n for n in names if not n.isdigit()}:
        return None
    for level in reader.draft.levels:
        for each in level.tensors:
            if each.name == tensor.name and _fits(each.ranks, {len(s) for s in shapes}):
                each.dimensions = text
    return Mark.LANGUAGE


def _listed_dimensions(
    reader: SentenceReader, match: re.Match[str], _: Sentence, field: str | None
) -> Mark | None:
    """`{ BatchCount, InputWidth } for 3D`, for a tensor whose table has these, some in brackets."""
    tensor = reader.tensor(field)
    if tensor is None or tensor.dimensions is None:
        return None
    listed = [part.strip() for part in match["list"].split(",")]
    known = [part.strip() for part in tensor.dimensions.strip("{ }").split(",")]
    found = [k for k in known if k.strip("[]") in listed]
    needed = all(k in found for k in known if not k.startswith("["))
    return Mark.LANGUAGE if [k.strip("[]") for k in found] == listed and needed else None


def _reduced(
    reader: SentenceReader, match: re.Match[str], sentence: Sentence, field: str | None
) -> Mark | None:
    """Sizes of an output with reduced axes."""
    source = reader.tensor(match["input"] or "InputTensor")
    result = reader.tensor(field if match["input"] else "OutputTensor")
    axes = reader.attribute("Axes")
    if source is None or result is None or axes is None or source is result:
        return None
    size = f"(any(Axes == d) ? 1 : {source.name}.Sizes[d])"
    condition = f"all[d : {source.name}.DimensionCount] ({result.name}.Sizes[d] == {size})"
    return _require(reader, condition, sentence)


def _scalar(
    reader: SentenceReader, _: re.Match[str], sentence: Sentence, field: str | None
) -> Mark | None:
    tensor = reader.tensor(field)
    if tensor is None:
        return None
    text = f"{tensor.name} must be a scalar."
    if all(c.text != text for c in reader.draft.constraints):
        reader.draft.constraints.append(Clause(text, words(sentence.raw), sentence.lines))
    return None if re.search(r"\btype\b", sentence.text) else Mark.LANGUAGE


def _by_case(
    reader: SentenceReader, _: re.Match[str], sentence: Sentence, field: str | None
) -> Mark | None:
    """`{ M, K } if TransA is NONE, or { K, M } if it is TRANSPOSE`: dimensions that the table gives
    for one case are left to the formula."""
    tensor = reader.tensor(field)
    lists = {m[1].replace(" ", "") for m in re.finditer(_LIST, sentence.text)}
    if tensor is not None and tensor.dimensions is not None and len(lists) > 1:
        for level in reader.draft.levels:
            for each in level.tensors:
                each.dimensions = None if each.name == tensor.name else each.dimensions
        reader.draft.note(f"The table has dimensions of {tensor.name} that hold in one case only.")
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


def _optional(
    reader: SentenceReader, _: re.Match[str], __: Sentence, field: str | None
) -> Mark | None:
    tensor, attribute = reader.tensor(field), reader.attribute(field)
    if tensor is not None and tensor.optional:
        return Mark.LANGUAGE
    return Mark.LANGUAGE if attribute is not None and attribute.default is not None else None


def _needed_with(
    reader: SentenceReader, match: re.Match[str], sentence: Sentence, field: str | None
):
    tensor, other = reader.tensor(field), reader.tensor(match["other"])
    if tensor is None or other is None or not tensor.optional:
        return None
    condition = f"present({tensor.name})"
    if other.optional:
        condition = f"!present({other.name}) || {condition}"
    return _require(reader, condition, sentence)


def _at_level(
    reader: SentenceReader, match: re.Match[str], sentence: Sentence, field: str | None
) -> Mark | None:
    """Sentence about some feature levels: about none of the operator's, or about all of them."""
    first, level = level_number(reader.draft.introduced), level_number(match["level"])
    if first is None or level is None or level > first:
        return None
    reader.idle = match["how"].startswith("less")
    if reader.idle:
        return Mark.LANGUAGE
    rest = sentence.raw[sentence.raw.index("then") + 4 :].strip(" ,")
    return reader.judge(Sentence(rest[:1].upper() + rest[1:], sentence.lines), field)


def _introduced(
    reader: SentenceReader, match: re.Match[str], _: Sentence, __: str | None
) -> Mark | None:
    return Mark.LANGUAGE if reader.draft.introduced == match["level"] else None


def _forward(
    reader: SentenceReader, _: re.Match[str], sentence: Sentence, __: str | None
) -> Mark | None:
    found = re.search(OPERATOR.pattern, sentence.raw, re.IGNORECASE)
    if found is None or reader.draft.forward not in (None, found[1].upper()):
        return None
    reader.draft.forward = found[1].upper()
    return Mark.LANGUAGE


# Prose of known kinds --------------------------------------------------------------------------


def _typical(
    reader: SentenceReader, match: re.Match[str], sentence: Sentence, field: str | None
) -> Mark | None:
    alike = re.search(r"same sizes as", sentence.text)
    found = _of_forward(reader, match, sentence, field) if alike else None
    return Mark.PROSE if found is None else found


def _of_bool(
    reader: SentenceReader, _: re.Match[str], __: Sentence, field: str | None
) -> Mark | None:
    """Use of a Boolean option."""
    attribute = reader.attribute(field)
    return Mark.PROSE if attribute is not None and attribute.type == "BOOL" else None


def _furniture(*_: object) -> Mark:
    return Mark.FURNITURE


def _prose(*_: object) -> Mark:
    return Mark.PROSE


def _illustration(reader: SentenceReader, *_: object) -> Mark:
    reader.illustrating = True
    return Mark.ILLUSTRATION


def _further(reader: SentenceReader, *_: object) -> Mark | None:
    return Mark.ILLUSTRATION if reader.illustrating else None


def _named_function(
    _: SentenceReader, match: re.Match[str], __: Sentence, ___: str | None
) -> Mark | None:
    """`Where exp(x) is the natural exponentiation function`: a function of the language."""
    called = [parse_code(part) for part in re.findall(r"\w+\([^()]*\)", match[0])]
    names = [name for node in called if node is not None for name in list_called(node)]
    return Mark.LANGUAGE if names and all(map(find_function, names)) else None


def _sums(reader: SentenceReader, match: re.Match[str], _: Sentence, __: str | None) -> Mark | None:
    """Sum over the dimensions in which a tensor has size 1, which becomes `like:`."""
    names = reader.tensors(match["names"])
    if names is None:
        return None
    reader.like = names[0]
    return Mark.LANGUAGE


_THIS = "(?:This|The|Each|These) (?:value|field|parameter|axis)s?"

DIRECTML: Rules = [
    (re.compile(pattern), handler)
    for pattern, handler in (
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
        (r"See [\w:]+$", _furniture),
        (r".*\bDirectML standalone redistributable\b", _furniture),
        (r"Also see DirectML version history$", _furniture),
        (r"For more info(?:rmation)?\b.*?,? see\b", _furniture),
        (r"A newer version of this operator, \w+, was introduced in \w+$", _furniture),
        (r"(?:This is |This value is )?[Tt]ypically\b", _typical),
        (r".*\bsame sizes as the (?:input|output) of ", _of_forward),
        (r"Where \w+\([^()]*\).*", _named_function),
        (rf".*\bcomputed using sums across the set of dimensions for which {_NAMES} sizes equal "
         "one$", _sums),
        (r"TBD$", _prose),
        (r"This operator supports in-place execution\b", _prose),
        (r"During binding, this tensor is permitted to alias\b", _prose),
        (r"TRUE (?:if|to specify)\b|(?:Otherwise|otherwise), (?:it is )?FALSE$", _of_bool),
        (r".*\b(?:is|are) equivalent to DML_\w+", _prose),
        (r"(?:You should|Subsequent executions should|Some data types might not be|To determine "
         r"whether a data type is|If in doubt)\b", _prose),
        (r"(?:As an|For) example\b|Notice\b", _illustration),
        (r"The corresponding \w+ would\b", _further),
    )
]  # fmt: skip
"""Rules in order; the first that accepts a sentence is used."""

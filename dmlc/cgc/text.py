"""Text form of CGC graphs: a module with one function, whose statements are operations of `cgc_op`.

`Program` is the text as data. `str` writes it, and `parse` reads every text that `str` gives.
`operators` has the meaning of operations."""

from __future__ import annotations

import dataclasses
import re
import struct
from collections.abc import Mapping, Sequence
from typing import ClassVar, TypeAlias

import numpy as np

from dmlc.ir.scan import Token, Tokens
from dmlc.scalars import Array, DataType
from dmlc.source import DmlcError, Source, Span, UnsupportedError, check_known

_TYPES: Mapping[str, DataType] = {
    **{t.name.lower(): t for t in DataType if t not in (DataType.BOOL, DataType.INDEX)},
    "bool8": DataType.BOOL,
}
_ALIASES: Mapping[str, DataType] = {"bool": DataType.BOOL}
_SPELLED = {dtype: name for name, dtype in _TYPES.items()}

ALIGNMENT = 8
"""Bytes that the contents of constants are aligned to: the first word of each says so."""


@dataclasses.dataclass(frozen=True, slots=True)
class TensorType:
    """Type of a tensor: element type and sizes."""

    dtype: DataType
    sizes: tuple[int, ...]

    def __str__(self) -> str:
        return f"!cgc.tensor<{''.join(f'{n}x' for n in self.sizes)}{_spell(self.dtype)}>"


Attribute: TypeAlias = "int | float | tuple[int, ...] | str"
"""The value of an attribute: a whole number, a float, whole numbers, or the member of an `enum`."""


@dataclasses.dataclass(frozen=True, slots=True)
class Resource:
    """Constant named in the text, with its contents elsewhere."""

    name: str
    type: TensorType

    def __str__(self) -> str:
        return f"#cgc.constant_resource<{self.name} : {self.type}>"


@dataclasses.dataclass(frozen=True, slots=True)
class Numbers:
    """Constant of integers in the text."""

    values: tuple[int, ...]
    type: TensorType

    def __str__(self) -> str:
        return f"#cgc.dense_integer_elements<{list(self.values)}> : {self.type}"


@dataclasses.dataclass(frozen=True, slots=True)
class Statement:
    """Use of an operation. An absent operand is None."""

    operation: str
    """Its name in `cgc_op`."""
    results: tuple[str, ...]
    operands: tuple[str | None, ...]
    types: tuple[TensorType | None, ...]
    """Those of the operands."""
    result_types: tuple[TensorType | None, ...]
    """None of a result that is left out."""
    attributes: Mapping[str, Attribute]
    value: Resource | Numbers | None = None
    """What a constant is; None of all others."""
    span: Span | None = dataclasses.field(default=None, compare=False)

    def __str__(self) -> str:
        results = ", ".join(f"%{name}" for name in self.results)
        if self.value is not None:
            return f"{results} = cgc_op.{self.operation}({self.value})"
        operands = ", ".join("%null" if name is None else f"%{name}" for name in self.operands)
        types = ", ".join("!cgc.null" if kind is None else str(kind) for kind in self.types)
        kinds = self.result_types
        given = ", ".join("!cgc.null" if kind is None else str(kind) for kind in kinds)
        given = f"({given})" if len(self.result_types) > 1 else given
        head, tail = f"{results} = cgc_op.{self.operation}({operands})", f"({types}) -> {given}"
        if not self.attributes:
            return f"{head} : {tail}"
        entries = [f"  {n} = {_spell_attribute(v)}" for n, v in self.attributes.items()]
        return "\n".join([f"{head} {{", ",\n".join(entries), f"}} : {tail}"])


@dataclasses.dataclass(frozen=True, slots=True)
class Program:
    """Function of CGC, and the contents of its constants by name."""

    name: str
    parameters: Mapping[str, TensorType]
    statements: tuple[Statement, ...]
    results: Mapping[str, TensorType]
    contents: Mapping[str, bytes]
    """Elements in memory, lowest byte first."""

    def __str__(self) -> str:
        given = ", ".join(f"%{name}: {kind}" for name, kind in self.parameters.items())
        names = ", ".join(f"%{name}" for name in self.results)
        types = ", ".join(map(str, self.results.values()))
        whole = f"({types})" if len(self.results) > 1 else types
        lines = [f"func.func @{self.name}({given}) -> {whole} {{"]
        body = [line for each in self.statements for line in str(each).split("\n")]
        if any(None in each.operands for each in self.statements):
            body.insert(0, "%null = cgc_op.null_ptr : !cgc.null")
        lines += [f"  {line}" for line in [*body, f"cgc.return {names} : {types}"]]
        lines = ["cgc.module {", *(f"  {line}" for line in [*lines, "}"]), "}"]
        if self.contents:
            head = struct.pack("<I", ALIGNMENT).hex()
            entries = [
                f'      {name}: "0x{(head + held.hex()).upper()}"'
                for name, held in self.contents.items()
            ]
            lines += ["", "{-#", "  dialect_resources: {", "    cgc: {", ",\n".join(entries)]
            lines += ["    }", "  }", "#-}"]
        return "\n".join(lines) + "\n"


def _spell(dtype: DataType) -> str:
    return f"!cgc.{_SPELLED[dtype]}"


def _spell_attribute(value: Attribute) -> str:
    match value:
        case tuple():
            kind = TensorType(DataType.INT64, (len(value),))
            return f"#cgc.dense_integer_elements<{list(value)}> : {kind}"
        case int():
            return f"#cgc.integer<{value} : {_spell(DataType.INT64)}>"
        case float():
            return f"#cgc.float<{value:.9e} : {_spell(DataType.FLOAT32)}>"
        case str():
            return f"#cgc_op.{value.rpartition('_')[0]}_enum_attr<{value}>"


def list_elements(held: bytes, kind: TensorType) -> Array:
    """Elements of a constant's contents."""
    stored = np.dtype(kind.dtype.dtype).newbyteorder("<")
    return np.frombuffer(held, stored).astype(kind.dtype.dtype).reshape(kind.sizes)


def parse(text: str, filename: str = "<text>") -> Program:
    """Graph in a text. Raises `DmlcError`, with the location of the error."""
    return _TextReader(Source(filename, text)).program()


class _TextReader(Tokens):
    """Parser of the text form. A type, an attribute's kind, and a name with its sigil are one
    token."""

    PATTERN: ClassVar[re.Pattern[str]] = re.compile(
        r"""\s+ | //[^\n]*
        | (?P<type>!cgc\.\w+(?:<[^<>]*>)?)
        | (?P<kind>\#\w+\.\w+)
        | (?P<value>%[\w$.-]+)
        | (?P<symbol>@[\w$.-]+)
        | (?P<number>-?(?:\d+\.\d*(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|\d+)(?![\w.]))
        | (?P<name>[A-Za-z_][\w.]*)
        | (?P<text>"(?:[^"\\\n]|\\.)*")
        | (?P<mark>->|\{-\#|\#-\}|[-(){}\[\]<>:,=])""",
        re.VERBOSE | re.ASCII,
    )

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self.nulls: set[str] = set()
        self.types: dict[str, TensorType] = {}

    def program(self) -> Program:
        self.expect("cgc.module")
        if self.token.kind == "symbol":
            self.next()
        self.expect("{", "func.func")
        name = self._expect("symbol", "the name of the function")
        self.expect("(")
        parameters = dict(self.list_until(")", self._parameter))
        self.types |= parameters
        self.expect("->")
        self._types()
        self.expect("{")
        statements: list[Statement] = []
        while self.token.text != "cgc.return":
            statement = self._statement()
            if statement is not None:
                statements.append(statement)
        self.next()
        names = [self._operand()]
        while self.accept(","):
            names.append(self._operand())
        self.expect(":")
        kinds = self._types(bare=True)
        self.expect("}", "}")
        contents = self._contents()
        self.expect_end()
        if None in names or len(kinds) != len(names) or len(set(names)) != len(names):
            raise DmlcError("a function returns tensors, each once, with a type of its own")
        results = {n: k for n, k in zip(names, kinds, strict=True) if n is not None and k}
        return Program(name, parameters, tuple(statements), results, contents)

    # Statements -------------------------------------------------------------------------------

    def _statement(self) -> Statement | None:
        start = self.token
        results = [self._expect("value", "a statement, or 'cgc.return'")]
        while self.accept(","):
            results.append(self._expect("value", "the name of a result"))
        self.expect("=")
        place = self.token
        operation = self.name("an operation of cgc_op")
        dialect, _, short = operation.rpartition(".")
        if dialect != "cgc_op":
            raise UnsupportedError(
                f"'{operation}' is no operation of the dialect cgc_op", self.span(place)
            )
        for name in results:
            if name in self.types or name in self.nulls:
                raise DmlcError(f"there are two values '%{name}'", self.span(start))
        if short == "null_ptr":
            if self.accept(":"):
                self.next()
            self.nulls.update(results)
            return None
        self.expect("(")
        if short == "constant":
            value = self._constant()
            self.expect(")")
            if self.accept(":"):
                self._types()
            self.types[results[0]] = value.type
            return Statement(short, tuple(results), (), (), (value.type,), {}, value,
                             self.span(place))  # fmt: skip
        operands = self.list_until(")", self._operand)
        attributes: dict[str, Attribute] = {}
        if self.accept("{"):
            attributes = dict(self.list_until("}", self._attribute))
        self.expect(":")
        types = self._types()
        self.expect("->")
        kinds = self._types()
        stated = [None if name is None else self.types[name] for name in operands]
        if stated != types or len(kinds) != len(results):
            raise DmlcError(
                f"the types of '{operation}' are not those of its operands and results",
                self.span(place),
            )
        self.types |= {n: kind for n, kind in zip(results, kinds, strict=True) if kind is not None}
        return Statement(short, tuple(results), tuple(operands), tuple(types), tuple(kinds),
                         attributes, None, self.span(place))  # fmt: skip

    def _parameter(self) -> tuple[str, TensorType]:
        name = self._expect("value", "a parameter")
        self.expect(":")
        kind = self._type()
        if kind is None:
            self.fail("the type of a tensor")
        return name, kind

    def _operand(self) -> str | None:
        token = self.token
        name = self._expect("value", "an operand")
        if name in self.nulls:
            return None
        check_known("value", self.types, name, span=self.span(token))
        return name

    def _constant(self) -> Resource | Numbers:
        kind = self._expect("kind", "what the constant is")
        if kind == "cgc.constant_resource":
            self.expect("<")
            name = self.name("the name of a constant")
            self.expect(":")
            made = self._type()
            self.expect(">")
            if made is None:
                self.fail("the type of a tensor")
            return Resource(name, made)
        if kind == "cgc.dense_integer_elements":
            values = self._numbers()
            self.expect(":")
            made = self._type()
            if made is None or len(made.sizes) != 1 or made.sizes[0] != len(values):
                self.fail(f"the type of {len(values)} numbers along one axis")
            return Numbers(values, made)
        raise UnsupportedError(f"constants of the kind '#{kind}' are not read")

    # Attributes -------------------------------------------------------------------------------

    def _attribute(self) -> tuple[str, Attribute]:
        name = self.name("the name of an attribute")
        self.expect("=")
        token = self.token
        kind = self._expect("kind", "the value of an attribute")
        value: Attribute
        if kind == "cgc.dense_integer_elements":
            value = self._numbers()
        elif kind in ("cgc.integer", "cgc.float"):
            self.expect("<")
            value = self.integer("a whole number") if kind == "cgc.integer" else self._float()
            self.expect(":")
            self.next()
            self.expect(">")
        elif kind.endswith("_enum_attr"):
            self.expect("<")
            value = self.name("the member of an enumeration")
            self.expect(">")
        else:
            raise UnsupportedError(f"attributes of the kind '#{kind}' are not read",
                                   self.span(token))  # fmt: skip
        if self.accept(":"):
            self.next()
        return name, value

    def _numbers(self) -> tuple[int, ...]:
        self.expect("<", "[")
        values = self.list_until("]", lambda: self.integer("a whole number"))
        self.expect(">")
        return tuple(values)

    def _float(self) -> float:
        if self.token.kind != "number":
            self.fail("a number")
        return float(self.next().text)

    # Types and contents -----------------------------------------------------------------------

    def _expect(self, kind: str, what: str) -> str:
        """Text of a token of the expected kind, without its mark."""
        if self.token.kind != kind:
            self.fail(what)
        return self.next().text[1:]

    def _types(self, bare: bool = False) -> list[TensorType | None]:
        """Types in parentheses; without these one type, or, if `bare`, several."""
        if self.accept("("):
            return self.list_until(")", self._type)
        found = [self._type()]
        while bare and self.accept(","):
            found.append(self._type())
        return found

    def _type(self) -> TensorType | None:
        """Type of a tensor; None for an absent operand."""
        token = self.token
        if token.kind != "type":
            self.fail("a type, such as !cgc.tensor<2x3x!cgc.float32>")
        self.next()
        if token.text == "!cgc.null":
            return None
        found = re.fullmatch(r"!cgc\.tensor<((?:\d+x)*)!cgc\.(\w+)>", token.text)
        if found is None:
            message = f"'{token.text}' is no tensor whose sizes are all known"
            raise UnsupportedError(message, self.span(token))
        return TensorType(self._dtype(found[2], token), tuple(map(int, found[1].split("x")[:-1])))

    def _dtype(self, name: str, token: Token) -> DataType:
        dtype = _TYPES.get(name) or _ALIASES.get(name)
        if dtype is None:
            message = f"elements of the type '!cgc.{name}' are not supported"
            raise UnsupportedError(message, self.span(token), [f"dmlc has {', '.join(_TYPES)}"])
        return dtype

    def _contents(self) -> dict[str, bytes]:
        """Contents of constants, which follow the module if there are any."""
        if not self.accept("{-#"):
            return {}
        self.expect("dialect_resources", ":", "{", "cgc", ":", "{")
        found = dict(self.list_until("}", self._content))
        self.expect("}", "#-}")
        return found

    def _content(self) -> tuple[str, bytes]:
        name = self.name("the name of a constant")
        self.expect(":")
        token = self.token
        text = self._expect("text", "the contents of a constant")[:-1]
        try:
            held = bytes.fromhex(text.removeprefix("0x"))
        except ValueError:
            held = b""
        if not text.startswith("0x") or len(held) < 4:
            self.fail("contents in hexadecimal, the alignment in front", token)
        return name, held[4:]


def spell_names(names: Sequence[str]) -> dict[str, str]:
    """Valid, unique names: letters, digits and `_`."""
    made: dict[str, str] = {}
    taken: set[str] = {"null"}
    for name in names:
        plain = re.sub(r"\W", "_", name, flags=re.ASCII) or "_"
        if plain[0].isdigit() and not plain.isdigit():
            plain = f"_{plain}"
        spelled, count = plain, 1
        while spelled in taken:
            count += 1
            spelled = f"{plain}_{count}"
        taken.add(spelled)
        made[name] = spelled
    return made

"""Names and formulas of a program in the language of a host."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence

from dmlc.codegen.names import Mangler, free_name, make_identifier
from dmlc.program import Program
from dmlc.sizes import Size, part_choice
from dmlc.source import InternalError


@dataclasses.dataclass(frozen=True, slots=True)
class Spelling:
    """Names and formulas in a host's language. Each text is a format of `str.format`, with a field
    for each operand."""

    is_reserved: Callable[[str], bool]
    """Whether a name of the program's cannot be spelled so."""
    member: str
    """An open size, by its name: `sizes.{}`."""
    number: str = "{}"
    """A number in a formula, which is a uint64 there."""
    choice: str = "({} ? {} : {})"
    """A condition, the value where it holds, and the value elsewhere."""
    list: str = "{{{}}}"
    """Several values of uint64, separated by commas, as an operand of `product_fits`."""
    product_fits: str = "product_fits({}, {})"
    """Whether the product of a list is at most a number: a function of the template."""
    round_up: str = "round_up({}, {})"
    """A number as a multiple of another one: a function of the template."""
    own_names: tuple[str, ...] = ()
    """The names that the template has beside the namespaces of kernels."""


class Names:
    """Names in host code of a program's tensors, buffers and sizes."""

    def __init__(self, program: Program, spelling: Spelling) -> None:
        self.spelling = spelling
        reserved = spelling.is_reserved
        self.space = free_name(make_identifier(program.name), reserved)
        """The program's namespace, in `dmlc`."""
        members = Mangler(reserved)
        self.symbols = {symbol: members.spell(symbol) for symbol in program.symbols}
        """The members of `Sizes`."""
        self._homes = program.scratch_homes()
        slots = Mangler(reserved)
        slots.take("Slot")
        self.slots = {
            t.name: slots.spell(t.name) for t in program.tensors if self.home(t.name) == t.name
        }
        """The buffers, by the tensors they are named after: the first of those that share one."""
        spaces = Mangler(reserved)
        for name in spelling.own_names:
            spaces.take(name)
        self.kernels = [spaces.make(kernel.name) for kernel in program.kernels]
        """The namespaces of kernels."""

    def home(self, tensor: str) -> str:
        """Tensor that gives its name to the buffer of this tensor."""
        return self._homes.get(tensor, tensor)

    def find_slot(self, tensor: str) -> int:
        """Number of a tensor's buffer among `slots`."""
        return list(self.slots).index(self.home(tensor))

    def spell_size(self, text: str | int | Size) -> str:
        """Formula or condition whose symbols are members of `sizes`."""
        rest, made = str(text), ""
        while "?" in rest:
            # A choice stands in parentheses of its own.
            before, _, behind = rest.partition("(")
            group = rest[len(before) : _find_end(behind) + len(before) + 1]
            condition, asked, _ = group[1:-1].partition(" ? ")
            is_choice = asked and condition.count("(") == condition.count(")")
            found = part_choice(group) if is_choice else None
            made += self._spell_words(before)
            if found is None:
                made += f"({self.spell_size(group[1:-1])})"
            else:
                made += self.spelling.choice.format(*map(self.spell_size, found))
            rest = rest[len(before) + len(group) :]
        return made + self._spell_words(rest)

    def _spell_words(self, text: str) -> str:
        return re.sub(r"[A-Za-z_]\w*|\d+", self._spell_word, text)

    def _spell_word(self, word: re.Match[str]) -> str:
        if word[0].isdecimal():
            return self.spelling.number.format(word[0])
        return self.spelling.member.format(self.symbols[word[0]])

    def spell_product_test(self, factors: Sequence[str | int], most: int) -> str:
        """Condition that a product of sizes is at most a number."""
        spelling = self.spelling
        listed = spelling.list.format(", ".join(map(self.spell_size, factors)))
        return spelling.product_fits.format(listed, spelling.number.format(most))


def _find_end(text: str) -> int:
    """Index after the parenthesis that closes the one open at the start of a text."""
    depth = 1
    for place, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if not depth:
            return place + 1
    raise InternalError(f"the parentheses of '{text}' do not match")

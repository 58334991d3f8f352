"""An operator of PyTorch's library `dmlc`, as its gradient and its rule for `vmap` see it.

`registration` makes such operators; the type here has what others may ask of one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeVar

import torch

from dmlc.binding import Operator
from dmlc.torch.subjects import Row, Shaped, Subject

if TYPE_CHECKING:
    from torch._ops import OpOverload

Results: TypeAlias = torch.Tensor | tuple[torch.Tensor, ...]

Fact: TypeAlias = Shaped | list[Shaped] | None
"""Type and sizes of a tensor, of those of an array, or of none."""
Facts: TypeAlias = Mapping[str, Fact]

GradientsT = TypeVar("GradientsT")
"""What is known of its gradients."""


class Registered(Protocol, Generic[GradientsT]):
    """An operator of PyTorch's library, and what it is of dmlc's."""

    subject: Subject
    name: str
    inputs: tuple[Row, ...]
    outputs: tuple[Row, ...]
    op: OpOverload
    kernel: Callable[..., Results]
    """Computes the results, without a gradient."""
    gradients: GradientsT

    def register(
        self, subject: Subject, name: str, partners: Sequence[Operator] = ()
    ) -> Registered[GradientsT]:
        """Registers another operator that this one needs."""
        ...

    def own_settings(self, settings: Mapping[str, Any]) -> dict[str, object]:
        """Settings that are attributes or symbols."""
        ...

    def infer(self, given: Facts, settings: Mapping[str, Any]) -> dict[str, Shaped]:
        """Types and sizes of the outputs, from those of the inputs. Raises `DmlcError`."""
        ...

    def is_elementwise(self, given: Facts, settings: Mapping[str, Any]) -> bool:
        """Whether the operator is element-wise for these inputs."""
        ...

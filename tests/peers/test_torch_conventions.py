"""The published gradients at 0 and at ties are PyTorch's."""

from __future__ import annotations

import pytest
import torch

from tests.conventions import CONVENTIONS, Convention


@pytest.mark.parametrize("case", CONVENTIONS, ids=lambda case: f"{case.torch}-{case.wrt}")
def test_pytorch_gives_the_published_gradient(case: Convention) -> None:
    given = {"x": torch.tensor(case.x).float(), "y": torch.tensor(case.y).float()}
    given[case.wrt].requires_grad_()
    eval(case.torch, {"torch": torch}, given).sum().backward()
    found = given[case.wrt].grad
    assert found is not None
    assert torch.allclose(found, torch.tensor(case.gradient).float(), rtol=1e-6, atol=0)

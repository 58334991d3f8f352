"""An operator of one's own: from a file to numbers, sources and a loop that only launches.

python examples/own_operator.py
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

import dmlc


def main() -> None:
    module = dmlc.load(Path(__file__).with_name("hard_swish_grad.dml"))
    operator = module.operators["activations.HARD_SWISH_GRAD"]

    src = np.linspace(-4, 4, 9, dtype=np.float32)
    arrays = {"src": src, "diff_dst": np.ones_like(src)}
    result = dmlc.run(operator, arrays)["diff_src"]
    expected = dmlc.run(operator, arrays, device="reference")["diff_src"]
    print("diff_src:", result)
    print("largest difference from the reference:", np.abs(result - expected).max())

    # The same on transposed images in half precision, into an array that is there already.
    images = np.random.default_rng(0).standard_normal((8, 3, 32, 32)).astype(np.float16)
    strided = images.transpose(0, 2, 3, 1)
    out = np.empty(strided.shape, np.float16)
    dmlc.run(operator, {"src": strided, "diff_dst": strided}, outputs={"diff_src": out})
    print("channels last:", out.shape, out.dtype)

    # For a loop: compile once, fix the arrays once, then only launch.
    program = dmlc.compile(operator.bind(), target="opencl")
    again = np.empty_like(result)
    call = dmlc.load_program(program).bind(arrays, outputs={"diff_src": again})
    for _ in range(100):
        call()
    print("the same after 100 launches:", np.array_equal(again, result))


if __name__ == "__main__":
    main()

"""MLIR: functions of the tensor IR as `linalg.generic` operations on tensors.

`export` writes the text, which needs no other package. IREE's compiler and runtime, which check and
run it, are an extra: `pip install 'dmlc[mlir]'`.
"""

from dmlc.mlir.export import export, export_files

__all__ = ["export", "export_files"]

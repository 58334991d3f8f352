"""ONNX to the tensor IR: the walk over a model, and a rule for each operator, by kind."""

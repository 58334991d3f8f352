"""Import of ONNX to the tensor IR: the traversal of a model, and a rule for each operator, by
kind."""

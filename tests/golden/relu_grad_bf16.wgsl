relu_grad_bf16.ir:1:28: error: target 'wgsl' cannot hold tensor 'InputTensor' of type BFLOAT16: WGSL has no bfloat16 [E0901]
    1 | func @ACTIVATION_RELU_GRAD(%InputTensor: bf16[n], %InputGradientTensor: bf16[n]) -> (%OutputGradientTensor) in place (%O
      |                            ^^^^^^^^^^^^^^^^^^^^^
relu_grad_bf16.ir:1:51: error: target 'wgsl' cannot hold tensor 'InputGradientTensor' of type BFLOAT16: WGSL has no bfloat16 [E0901]
    1 | func @ACTIVATION_RELU_GRAD(%InputTensor: bf16[n], %InputGradientTensor: bf16[n]) -> (%OutputGradientTensor) in place (%O
      |                                                   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
relu_grad_bf16.ir:2:3: error: target 'wgsl' cannot hold tensor 'OutputGradientTensor' of type BFLOAT16: WGSL has no bfloat16 [E0901]
    2 |   %OutputGradientTensor: bf16[i0 < n] = select(gt(%InputTensor[i0], 0.0), %InputGradientTensor[i0], 0.0)
      |   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  note: what can express it all: hlsl, opencl

cgc.module {
  func.func @mlp_forward(%x: !cgc.tensor<4x8x!cgc.float16>, %w1: !cgc.tensor<8x16x!cgc.float16>, %b1: !cgc.tensor<1x16x!cgc.float16>, %w2: !cgc.tensor<16x2x!cgc.float16>, %b2: !cgc.tensor<1x2x!cgc.float16>) -> !cgc.tensor<4x2x!cgc.float16> {
    %c_0_f16 = cgc_op.constant(#cgc.constant_resource<c_0_f16 : !cgc.tensor<1x!cgc.float16>>)
    %h_MatMul = cgc_op.matmul(%x, %w1) : (!cgc.tensor<4x8x!cgc.float16>, !cgc.tensor<8x16x!cgc.float16>) -> !cgc.tensor<4x16x!cgc.float16>
    %h = cgc_op.add(%h_MatMul, %b1) : (!cgc.tensor<4x16x!cgc.float16>, !cgc.tensor<1x16x!cgc.float16>) -> !cgc.tensor<4x16x!cgc.float16>
    %y_MatMul_src = cgc_op.max(%h, %c_0_f16) : (!cgc.tensor<4x16x!cgc.float16>, !cgc.tensor<1x!cgc.float16>) -> !cgc.tensor<4x16x!cgc.float16>
    %y_MatMul = cgc_op.matmul(%y_MatMul_src, %w2) : (!cgc.tensor<4x16x!cgc.float16>, !cgc.tensor<16x2x!cgc.float16>) -> !cgc.tensor<4x2x!cgc.float16>
    %y = cgc_op.add(%y_MatMul, %b2) : (!cgc.tensor<4x2x!cgc.float16>, !cgc.tensor<1x2x!cgc.float16>) -> !cgc.tensor<4x2x!cgc.float16>
    cgc.return %y : !cgc.tensor<4x2x!cgc.float16>
  }
}

{-#
  dialect_resources: {
    cgc: {
      c_0_f16: "0x080000000000"
    }
  }
#-}

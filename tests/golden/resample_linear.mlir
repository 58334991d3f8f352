// resample_linear
//   takes %X: FLOAT32[2, 3, 4, 3]
//   gives %Y: FLOAT32[2, 3, 8, 6]
func.func @resample_linear(%X: tensor<2x3x4x3xf32>) -> (tensor<2x3x8x6xf32>) {
  %Y_weights = arith.constant dense<"0x0000403F0000803E0000403F0000803E0000403F0000803E"> : tensor<6xf32>
  %Y_weights_2 = arith.constant dense<"0x0000803E0000403F0000803E0000403F0000803E0000403F"> : tensor<6xf32>
  %Y_weights_3 = arith.constant dense<"0x0000403F0000803E0000403F0000803E0000403F0000803E0000403F0000803E"> : tensor<8xf32>
  %Y_weights_4 = arith.constant dense<"0x0000803E0000403F0000803E0000403F0000803E0000403F0000803E0000403F"> : tensor<8xf32>
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c0 = arith.constant 0 : index
  %c3 = arith.constant 3 : index

  // %Y: f32[i0 < 2, i1 < 3, i2 < 8, i3 < 6] = {
  //   v0 = sub(div(add(i2, 1), 2), 1)
  //   v1 = min(max(v0, 0), 3)
  //   v2 = sub(div(add(i3, 1), 2), 1)
  //   v3 = min(max(v2, 0), 2)
  //   v4 = %Y_weights_2[i3]
  //   v5 = min(max(add(v2, 1), 0), 2)
  //   v6 = %Y_weights[i3]
  //   v7 = min(max(add(v0, 1), 0), 3)
  //   add(mul(add(mul(%X[i0, i1, v1, v3], v4), mul(%X[i0, i1, v1, v5], v6)), %Y_weights_4[i2]), mul(add(mul(%X[i0, i1, v7, v3], v4), mul(%X[i0, i1, v7, v5], v6)), %Y_weights_3[i2]))
  // }
  %Y.empty = tensor.empty() : tensor<2x3x8x6xf32>
  %Y = linalg.generic {
    indexing_maps = [
      affine_map<(d0, d1, d2, d3) -> (d3)>,
      affine_map<(d0, d1, d2, d3) -> (d3)>,
      affine_map<(d0, d1, d2, d3) -> (d2)>,
      affine_map<(d0, d1, d2, d3) -> (d2)>,
      affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
    ],
    iterator_types = ["parallel", "parallel", "parallel", "parallel"]
  } ins(%Y_weights_2, %Y_weights, %Y_weights_4, %Y_weights_3 : tensor<6xf32>, tensor<6xf32>, tensor<8xf32>, tensor<8xf32>) outs(%Y.empty : tensor<2x3x8x6xf32>) {
  ^bb0(%Y_weights_2.in: f32, %Y_weights.in: f32, %Y_weights_4.in: f32, %Y_weights_3.in: f32, %out: f32):
    %i0 = linalg.index 0 : index
    %i1 = linalg.index 1 : index
    %i2 = linalg.index 2 : index
    %i3 = linalg.index 3 : index
    %0 = arith.addi %i2, %c1 : index
    %1 = arith.divsi %0, %c2 : index
    %2 = arith.subi %1, %c1 : index
    %3 = arith.maxsi %2, %c0 : index
    %4 = arith.minsi %3, %c3 : index
    %5 = arith.addi %i3, %c1 : index
    %6 = arith.divsi %5, %c2 : index
    %7 = arith.subi %6, %c1 : index
    %8 = arith.maxsi %7, %c0 : index
    %9 = arith.minsi %8, %c2 : index
    %10 = tensor.extract %X[%i0, %i1, %4, %9] : tensor<2x3x4x3xf32>
    %11 = arith.mulf %10, %Y_weights_2.in : f32
    %12 = arith.addi %7, %c1 : index
    %13 = arith.maxsi %12, %c0 : index
    %14 = arith.minsi %13, %c2 : index
    %15 = tensor.extract %X[%i0, %i1, %4, %14] : tensor<2x3x4x3xf32>
    %16 = arith.mulf %15, %Y_weights.in : f32
    %17 = arith.addf %11, %16 : f32
    %18 = arith.mulf %17, %Y_weights_4.in : f32
    %19 = arith.addi %2, %c1 : index
    %20 = arith.maxsi %19, %c0 : index
    %21 = arith.minsi %20, %c3 : index
    %22 = tensor.extract %X[%i0, %i1, %21, %9] : tensor<2x3x4x3xf32>
    %23 = arith.mulf %22, %Y_weights_2.in : f32
    %24 = tensor.extract %X[%i0, %i1, %21, %14] : tensor<2x3x4x3xf32>
    %25 = arith.mulf %24, %Y_weights.in : f32
    %26 = arith.addf %23, %25 : f32
    %27 = arith.mulf %26, %Y_weights_3.in : f32
    %28 = arith.addf %18, %27 : f32
    linalg.yield %28 : f32
  } -> tensor<2x3x8x6xf32>

  return %Y : tensor<2x3x8x6xf32>
}

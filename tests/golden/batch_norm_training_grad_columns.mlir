// batch_norm_training_grad
//   takes %x: FLOAT32[50, 300]
//   takes %dy: FLOAT32[50, 300]
//   takes %mean: FLOAT32[1, 300]
//   takes %variance: FLOAT32[1, 300]
//   takes %scale: FLOAT32[1, 300]
//   gives %dx: FLOAT32[50, 300]
//   gives %dscale: FLOAT32[1, 300]
//   gives %dbias: FLOAT32[1, 300]
func.func @batch_norm_training_grad(%x: tensor<50x300xf32>, %dy: tensor<50x300xf32>, %mean: tensor<1x300xf32>, %variance: tensor<1x300xf32>, %scale: tensor<1x300xf32>) -> (tensor<50x300xf32>, tensor<1x300xf32>, tensor<1x300xf32>) {
  %f32_0.0 = arith.constant 0.0 : f32
  %f32_1.0 = arith.constant 1.0 : f32
  %f32_0.001 = arith.constant 0.001 : f32
  %f32_50.0 = arith.constant 50.0 : f32

  // %dy_sum: f32[i0 < 1, i1 < 300] = sum[r0 < 50] %dy[r0, i1]
  %dy_sum.empty = tensor.empty() : tensor<1x300xf32>
  %dy_sum.init = linalg.fill ins(%f32_0.0 : f32) outs(%dy_sum.empty : tensor<1x300xf32>) -> tensor<1x300xf32>
  %dy_sum = linalg.generic {
    indexing_maps = [
      affine_map<(d0, d1, d2) -> (d2, d1)>,
      affine_map<(d0, d1, d2) -> (d0, d1)>
    ],
    iterator_types = ["parallel", "parallel", "reduction"]
  } ins(%dy : tensor<50x300xf32>) outs(%dy_sum.init : tensor<1x300xf32>) {
  ^bb0(%dy.in: f32, %acc: f32):
    %0 = arith.addf %acc, %dy.in : f32
    linalg.yield %0 : f32
  } -> tensor<1x300xf32>

  // %dy_centered_sum: f32[i0 < 1, i1 < 300] = sum[r0 < 50] mul(%dy[r0, i1], sub(%x[r0, i1], %mean[0, i1]))
  %dy_centered_sum.empty = tensor.empty() : tensor<1x300xf32>
  %dy_centered_sum.init = linalg.fill ins(%f32_0.0 : f32) outs(%dy_centered_sum.empty : tensor<1x300xf32>) -> tensor<1x300xf32>
  %mean.slice = tensor.extract_slice %mean[0, 0] [1, 300] [1, 1] : tensor<1x300xf32> to tensor<300xf32>
  %dy_centered_sum = linalg.generic {
    indexing_maps = [
      affine_map<(d0, d1, d2) -> (d2, d1)>,
      affine_map<(d0, d1, d2) -> (d2, d1)>,
      affine_map<(d0, d1, d2) -> (d1)>,
      affine_map<(d0, d1, d2) -> (d0, d1)>
    ],
    iterator_types = ["parallel", "parallel", "reduction"]
  } ins(%dy, %x, %mean.slice : tensor<50x300xf32>, tensor<50x300xf32>, tensor<300xf32>) outs(%dy_centered_sum.init : tensor<1x300xf32>) {
  ^bb0(%dy.in: f32, %x.in: f32, %mean.in: f32, %acc: f32):
    %0 = arith.subf %x.in, %mean.in : f32
    %1 = arith.mulf %dy.in, %0 : f32
    %2 = arith.addf %acc, %1 : f32
    linalg.yield %2 : f32
  } -> tensor<1x300xf32>

  // %inv_std: f32[i0 < 1, i1 < 300] = div(1.0, sqrt(add(%variance[0, i1], 0.001)))
  %inv_std.empty = tensor.empty() : tensor<1x300xf32>
  %variance.slice = tensor.extract_slice %variance[0, 0] [1, 300] [1, 1] : tensor<1x300xf32> to tensor<300xf32>
  %inv_std = linalg.generic {
    indexing_maps = [
      affine_map<(d0, d1) -> (d1)>,
      affine_map<(d0, d1) -> (d0, d1)>
    ],
    iterator_types = ["parallel", "parallel"]
  } ins(%variance.slice : tensor<300xf32>) outs(%inv_std.empty : tensor<1x300xf32>) {
  ^bb0(%variance.in: f32, %out: f32):
    %0 = arith.addf %variance.in, %f32_0.001 : f32
    %1 = math.sqrt %0 : f32
    %2 = arith.divf %f32_1.0, %1 : f32
    linalg.yield %2 : f32
  } -> tensor<1x300xf32>

  // %dbias: f32[i0 < 1, i1 < 300] = %dy_sum[0, i1]
  %dbias.empty = tensor.empty() : tensor<1x300xf32>
  %dy_sum.slice = tensor.extract_slice %dy_sum[0, 0] [1, 300] [1, 1] : tensor<1x300xf32> to tensor<300xf32>
  %dbias = linalg.generic {
    indexing_maps = [
      affine_map<(d0, d1) -> (d1)>,
      affine_map<(d0, d1) -> (d0, d1)>
    ],
    iterator_types = ["parallel", "parallel"]
  } ins(%dy_sum.slice : tensor<300xf32>) outs(%dbias.empty : tensor<1x300xf32>) {
  ^bb0(%dy_sum.in: f32, %out: f32):
    linalg.yield %dy_sum.in : f32
  } -> tensor<1x300xf32>

  // %dscale: f32[i0 < 1, i1 < 300] = mul(%dy_centered_sum[0, i1], %inv_std[0, i1])
  %dscale.empty = tensor.empty() : tensor<1x300xf32>
  %dy_centered_sum.slice = tensor.extract_slice %dy_centered_sum[0, 0] [1, 300] [1, 1] : tensor<1x300xf32> to tensor<300xf32>
  %inv_std.slice = tensor.extract_slice %inv_std[0, 0] [1, 300] [1, 1] : tensor<1x300xf32> to tensor<300xf32>
  %dscale = linalg.generic {
    indexing_maps = [
      affine_map<(d0, d1) -> (d1)>,
      affine_map<(d0, d1) -> (d1)>,
      affine_map<(d0, d1) -> (d0, d1)>
    ],
    iterator_types = ["parallel", "parallel"]
  } ins(%dy_centered_sum.slice, %inv_std.slice : tensor<300xf32>, tensor<300xf32>) outs(%dscale.empty : tensor<1x300xf32>) {
  ^bb0(%dy_centered_sum.in: f32, %inv_std.in: f32, %out: f32):
    %0 = arith.mulf %dy_centered_sum.in, %inv_std.in : f32
    linalg.yield %0 : f32
  } -> tensor<1x300xf32>

  // %dx: f32[i0 < 50, i1 < 300] = mul(mul(%scale[0, i1], %inv_std[0, i1]), sub(sub(%dy[i0, i1], div(%dy_sum[0, i1], 50.0)), div(mul(sub(%x[i0, i1], %mean[0, i1]), div(%dy_centered_sum[0, i1], 50.0)), add(%variance[0, i1], 0.001))))
  %dx.empty = tensor.empty() : tensor<50x300xf32>
  %scale.slice = tensor.extract_slice %scale[0, 0] [1, 300] [1, 1] : tensor<1x300xf32> to tensor<300xf32>
  %dx = linalg.generic {
    indexing_maps = [
      affine_map<(d0, d1) -> (d1)>,
      affine_map<(d0, d1) -> (d1)>,
      affine_map<(d0, d1) -> (d0, d1)>,
      affine_map<(d0, d1) -> (d1)>,
      affine_map<(d0, d1) -> (d0, d1)>,
      affine_map<(d0, d1) -> (d1)>,
      affine_map<(d0, d1) -> (d1)>,
      affine_map<(d0, d1) -> (d1)>,
      affine_map<(d0, d1) -> (d0, d1)>
    ],
    iterator_types = ["parallel", "parallel"]
  } ins(%scale.slice, %inv_std.slice, %dy, %dy_sum.slice, %x, %mean.slice, %dy_centered_sum.slice, %variance.slice : tensor<300xf32>, tensor<300xf32>, tensor<50x300xf32>, tensor<300xf32>, tensor<50x300xf32>, tensor<300xf32>, tensor<300xf32>, tensor<300xf32>) outs(%dx.empty : tensor<50x300xf32>) {
  ^bb0(%scale.in: f32, %inv_std.in: f32, %dy.in: f32, %dy_sum.in: f32, %x.in: f32, %mean.in: f32, %dy_centered_sum.in: f32, %variance.in: f32, %out: f32):
    %0 = arith.mulf %scale.in, %inv_std.in : f32
    %1 = arith.divf %dy_sum.in, %f32_50.0 : f32
    %2 = arith.subf %dy.in, %1 : f32
    %3 = arith.subf %x.in, %mean.in : f32
    %4 = arith.divf %dy_centered_sum.in, %f32_50.0 : f32
    %5 = arith.mulf %3, %4 : f32
    %6 = arith.addf %variance.in, %f32_0.001 : f32
    %7 = arith.divf %5, %6 : f32
    %8 = arith.subf %2, %7 : f32
    %9 = arith.mulf %0, %8 : f32
    linalg.yield %9 : f32
  } -> tensor<50x300xf32>

  return %dx, %dscale, %dbias : tensor<50x300xf32>, tensor<1x300xf32>, tensor<1x300xf32>
}

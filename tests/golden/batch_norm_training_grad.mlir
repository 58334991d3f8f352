// batch_norm_training_grad
//   takes %x: FLOAT32[32, 64, 14, 14]
//   takes %dy: FLOAT32[32, 64, 14, 14]
//   takes %mean: FLOAT32[1, 64, 1, 1]
//   takes %variance: FLOAT32[1, 64, 1, 1]
//   takes %scale: FLOAT32[1, 64, 1, 1]
//   gives %dx: FLOAT32[32, 64, 14, 14]
//   gives %dscale: FLOAT32[1, 64, 1, 1]
//   gives %dbias: FLOAT32[1, 64, 1, 1]
func.func @batch_norm_training_grad(%x: tensor<32x64x14x14xf32>, %dy: tensor<32x64x14x14xf32>, %mean: tensor<1x64x1x1xf32>, %variance: tensor<1x64x1x1xf32>, %scale: tensor<1x64x1x1xf32>) -> (tensor<32x64x14x14xf32>, tensor<1x64x1x1xf32>, tensor<1x64x1x1xf32>) {
  %f32_0.0 = arith.constant 0.0 : f32
  %f32_1.0 = arith.constant 1.0 : f32
  %f32_0.001 = arith.constant 0.001 : f32
  %f32_6272.0 = arith.constant 6272.0 : f32

  // %dy_sum: f32[i0 < 1, i1 < 64, i2 < 1, i3 < 1] = sum[r0 < 32, r2 < 14, r3 < 14] %dy[r0, i1, r2, r3]
  %dy_sum.empty = tensor.empty() : tensor<1x64x1x1xf32>
  %dy_sum.init = linalg.fill ins(%f32_0.0 : f32) outs(%dy_sum.empty : tensor<1x64x1x1xf32>) -> tensor<1x64x1x1xf32>
  %dy_sum = linalg.generic {
    indexing_maps = [
      affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d4, d1, d5, d6)>,
      affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d0, d1, d2, d3)>
    ],
    iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction", "reduction", "reduction"]
  } ins(%dy : tensor<32x64x14x14xf32>) outs(%dy_sum.init : tensor<1x64x1x1xf32>) {
  ^bb0(%dy.in: f32, %acc: f32):
    %0 = arith.addf %acc, %dy.in : f32
    linalg.yield %0 : f32
  } -> tensor<1x64x1x1xf32>

  // %dy_centered_sum: f32[i0 < 1, i1 < 64, i2 < 1, i3 < 1] = sum[r0 < 32, r2 < 14, r3 < 14] mul(%dy[r0, i1, r2, r3], sub(%x[r0, i1, r2, r3], %mean[0, i1, 0, 0]))
  %dy_centered_sum.empty = tensor.empty() : tensor<1x64x1x1xf32>
  %dy_centered_sum.init = linalg.fill ins(%f32_0.0 : f32) outs(%dy_centered_sum.empty : tensor<1x64x1x1xf32>) -> tensor<1x64x1x1xf32>
  %mean.slice = tensor.extract_slice %mean[0, 0, 0, 0] [1, 64, 1, 1] [1, 1, 1, 1] : tensor<1x64x1x1xf32> to tensor<64xf32>
  %dy_centered_sum = linalg.generic {
    indexing_maps = [
      affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d4, d1, d5, d6)>,
      affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d4, d1, d5, d6)>,
      affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d1)>,
      affine_map<(d0, d1, d2, d3, d4, d5, d6) -> (d0, d1, d2, d3)>
    ],
    iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction", "reduction", "reduction"]
  } ins(%dy, %x, %mean.slice : tensor<32x64x14x14xf32>, tensor<32x64x14x14xf32>, tensor<64xf32>) outs(%dy_centered_sum.init : tensor<1x64x1x1xf32>) {
  ^bb0(%dy.in: f32, %x.in: f32, %mean.in: f32, %acc: f32):
    %0 = arith.subf %x.in, %mean.in : f32
    %1 = arith.mulf %dy.in, %0 : f32
    %2 = arith.addf %acc, %1 : f32
    linalg.yield %2 : f32
  } -> tensor<1x64x1x1xf32>

  // %inv_std: f32[i0 < 1, i1 < 64, i2 < 1, i3 < 1] = div(1.0, sqrt(add(%variance[0, i1, 0, 0], 0.001)))
  %inv_std.empty = tensor.empty() : tensor<1x64x1x1xf32>
  %variance.slice = tensor.extract_slice %variance[0, 0, 0, 0] [1, 64, 1, 1] [1, 1, 1, 1] : tensor<1x64x1x1xf32> to tensor<64xf32>
  %inv_std = linalg.generic {
    indexing_maps = [
      affine_map<(d0, d1, d2, d3) -> (d1)>,
      affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
    ],
    iterator_types = ["parallel", "parallel", "parallel", "parallel"]
  } ins(%variance.slice : tensor<64xf32>) outs(%inv_std.empty : tensor<1x64x1x1xf32>) {
  ^bb0(%variance.in: f32, %out: f32):
    %0 = arith.addf %variance.in, %f32_0.001 : f32
    %1 = math.sqrt %0 : f32
    %2 = arith.divf %f32_1.0, %1 : f32
    linalg.yield %2 : f32
  } -> tensor<1x64x1x1xf32>

  // %dbias: f32[i0 < 1, i1 < 64, i2 < 1, i3 < 1] = %dy_sum[0, i1, 0, 0]
  %dbias.empty = tensor.empty() : tensor<1x64x1x1xf32>
  %dy_sum.slice = tensor.extract_slice %dy_sum[0, 0, 0, 0] [1, 64, 1, 1] [1, 1, 1, 1] : tensor<1x64x1x1xf32> to tensor<64xf32>
  %dbias = linalg.generic {
    indexing_maps = [
      affine_map<(d0, d1, d2, d3) -> (d1)>,
      affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
    ],
    iterator_types = ["parallel", "parallel", "parallel", "parallel"]
  } ins(%dy_sum.slice : tensor<64xf32>) outs(%dbias.empty : tensor<1x64x1x1xf32>) {
  ^bb0(%dy_sum.in: f32, %out: f32):
    linalg.yield %dy_sum.in : f32
  } -> tensor<1x64x1x1xf32>

  // %dscale: f32[i0 < 1, i1 < 64, i2 < 1, i3 < 1] = mul(%dy_centered_sum[0, i1, 0, 0], %inv_std[0, i1, 0, 0])
  %dscale.empty = tensor.empty() : tensor<1x64x1x1xf32>
  %dy_centered_sum.slice = tensor.extract_slice %dy_centered_sum[0, 0, 0, 0] [1, 64, 1, 1] [1, 1, 1, 1] : tensor<1x64x1x1xf32> to tensor<64xf32>
  %inv_std.slice = tensor.extract_slice %inv_std[0, 0, 0, 0] [1, 64, 1, 1] [1, 1, 1, 1] : tensor<1x64x1x1xf32> to tensor<64xf32>
  %dscale = linalg.generic {
    indexing_maps = [
      affine_map<(d0, d1, d2, d3) -> (d1)>,
      affine_map<(d0, d1, d2, d3) -> (d1)>,
      affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
    ],
    iterator_types = ["parallel", "parallel", "parallel", "parallel"]
  } ins(%dy_centered_sum.slice, %inv_std.slice : tensor<64xf32>, tensor<64xf32>) outs(%dscale.empty : tensor<1x64x1x1xf32>) {
  ^bb0(%dy_centered_sum.in: f32, %inv_std.in: f32, %out: f32):
    %0 = arith.mulf %dy_centered_sum.in, %inv_std.in : f32
    linalg.yield %0 : f32
  } -> tensor<1x64x1x1xf32>

  // %dx: f32[i0 < 32, i1 < 64, i2 < 14, i3 < 14] = mul(mul(%scale[0, i1, 0, 0], %inv_std[0, i1, 0, 0]), sub(sub(%dy[i0, i1, i2, i3], div(%dy_sum[0, i1, 0, 0], 6272.0)), div(mul(sub(%x[i0, i1, i2, i3], %mean[0, i1, 0, 0]), div(%dy_centered_sum[0, i1, 0, 0], 6272.0)), add(%variance[0, i1, 0, 0], 0.001))))
  %dx.empty = tensor.empty() : tensor<32x64x14x14xf32>
  %scale.slice = tensor.extract_slice %scale[0, 0, 0, 0] [1, 64, 1, 1] [1, 1, 1, 1] : tensor<1x64x1x1xf32> to tensor<64xf32>
  %dx = linalg.generic {
    indexing_maps = [
      affine_map<(d0, d1, d2, d3) -> (d1)>,
      affine_map<(d0, d1, d2, d3) -> (d1)>,
      affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>,
      affine_map<(d0, d1, d2, d3) -> (d1)>,
      affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>,
      affine_map<(d0, d1, d2, d3) -> (d1)>,
      affine_map<(d0, d1, d2, d3) -> (d1)>,
      affine_map<(d0, d1, d2, d3) -> (d1)>,
      affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
    ],
    iterator_types = ["parallel", "parallel", "parallel", "parallel"]
  } ins(%scale.slice, %inv_std.slice, %dy, %dy_sum.slice, %x, %mean.slice, %dy_centered_sum.slice, %variance.slice : tensor<64xf32>, tensor<64xf32>, tensor<32x64x14x14xf32>, tensor<64xf32>, tensor<32x64x14x14xf32>, tensor<64xf32>, tensor<64xf32>, tensor<64xf32>) outs(%dx.empty : tensor<32x64x14x14xf32>) {
  ^bb0(%scale.in: f32, %inv_std.in: f32, %dy.in: f32, %dy_sum.in: f32, %x.in: f32, %mean.in: f32, %dy_centered_sum.in: f32, %variance.in: f32, %out: f32):
    %0 = arith.mulf %scale.in, %inv_std.in : f32
    %1 = arith.divf %dy_sum.in, %f32_6272.0 : f32
    %2 = arith.subf %dy.in, %1 : f32
    %3 = arith.subf %x.in, %mean.in : f32
    %4 = arith.divf %dy_centered_sum.in, %f32_6272.0 : f32
    %5 = arith.mulf %3, %4 : f32
    %6 = arith.addf %variance.in, %f32_0.001 : f32
    %7 = arith.divf %5, %6 : f32
    %8 = arith.subf %2, %7 : f32
    %9 = arith.mulf %0, %8 : f32
    linalg.yield %9 : f32
  } -> tensor<32x64x14x14xf32>

  return %dx, %dscale, %dbias : tensor<32x64x14x14xf32>, tensor<1x64x1x1xf32>, tensor<1x64x1x1xf32>
}

// layer_norm_grad
//   takes %x: FLOAT32[512, 256]
//   takes %dy: FLOAT32[512, 256]
//   takes %scale: FLOAT32[256]
//   gives %dx: FLOAT32[512, 256]
//   gives %dscale: FLOAT32[256]
//   gives %dbias: FLOAT32[256]
func.func @layer_norm_grad(%x: tensor<512x256xf32>, %dy: tensor<512x256xf32>, %scale: tensor<256xf32>) -> (tensor<512x256xf32>, tensor<256xf32>, tensor<256xf32>) {
  %f32_0.0 = arith.constant 0.0 : f32
  %f32_256.0 = arith.constant 256.0 : f32

  // %sum: f32[i0 < 512] = sum[r1 < 256] mul(%dy[i0, r1], %scale[r1])
  %sum.empty = tensor.empty() : tensor<512xf32>
  %sum.init = linalg.fill ins(%f32_0.0 : f32) outs(%sum.empty : tensor<512xf32>) -> tensor<512xf32>
  %sum = linalg.generic {
    indexing_maps = [
      affine_map<(d0, d1) -> (d0, d1)>,
      affine_map<(d0, d1) -> (d1)>,
      affine_map<(d0, d1) -> (d0)>
    ],
    iterator_types = ["parallel", "reduction"]
  } ins(%dy, %scale : tensor<512x256xf32>, tensor<256xf32>) outs(%sum.init : tensor<512xf32>) {
  ^bb0(%dy.in: f32, %scale.in: f32, %acc: f32):
    %0 = arith.mulf %dy.in, %scale.in : f32
    %1 = arith.addf %acc, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<512xf32>

  // %moment: f32[i0 < 512] = sum[r1 < 256] mul(mul(%dy[i0, r1], %scale[r1]), %x[i0, r1])
  %moment.empty = tensor.empty() : tensor<512xf32>
  %moment.init = linalg.fill ins(%f32_0.0 : f32) outs(%moment.empty : tensor<512xf32>) -> tensor<512xf32>
  %moment = linalg.generic {
    indexing_maps = [
      affine_map<(d0, d1) -> (d0, d1)>,
      affine_map<(d0, d1) -> (d1)>,
      affine_map<(d0, d1) -> (d0, d1)>,
      affine_map<(d0, d1) -> (d0)>
    ],
    iterator_types = ["parallel", "reduction"]
  } ins(%dy, %scale, %x : tensor<512x256xf32>, tensor<256xf32>, tensor<512x256xf32>) outs(%moment.init : tensor<512xf32>) {
  ^bb0(%dy.in: f32, %scale.in: f32, %x.in: f32, %acc: f32):
    %0 = arith.mulf %dy.in, %scale.in : f32
    %1 = arith.mulf %0, %x.in : f32
    %2 = arith.addf %acc, %1 : f32
    linalg.yield %2 : f32
  } -> tensor<512xf32>

  // %dx: f32[i0 < 512, i1 < 256] = sub(mul(%dy[i0, i1], %scale[i1]), add(div(%sum[i0], 256.0), mul(%x[i0, i1], div(%moment[i0], 256.0))))
  %dx.empty = tensor.empty() : tensor<512x256xf32>
  %dx = linalg.generic {
    indexing_maps = [
      affine_map<(d0, d1) -> (d0, d1)>,
      affine_map<(d0, d1) -> (d1)>,
      affine_map<(d0, d1) -> (d0)>,
      affine_map<(d0, d1) -> (d0, d1)>,
      affine_map<(d0, d1) -> (d0)>,
      affine_map<(d0, d1) -> (d0, d1)>
    ],
    iterator_types = ["parallel", "parallel"]
  } ins(%dy, %scale, %sum, %x, %moment : tensor<512x256xf32>, tensor<256xf32>, tensor<512xf32>, tensor<512x256xf32>, tensor<512xf32>) outs(%dx.empty : tensor<512x256xf32>) {
  ^bb0(%dy.in: f32, %scale.in: f32, %sum.in: f32, %x.in: f32, %moment.in: f32, %out: f32):
    %0 = arith.mulf %dy.in, %scale.in : f32
    %1 = arith.divf %sum.in, %f32_256.0 : f32
    %2 = arith.divf %moment.in, %f32_256.0 : f32
    %3 = arith.mulf %x.in, %2 : f32
    %4 = arith.addf %1, %3 : f32
    %5 = arith.subf %0, %4 : f32
    linalg.yield %5 : f32
  } -> tensor<512x256xf32>

  // %dscale: f32[i0 < 256] = sum[r0 < 512] mul(%dy[r0, i0], %x[r0, i0])
  %dscale.empty = tensor.empty() : tensor<256xf32>
  %dscale.init = linalg.fill ins(%f32_0.0 : f32) outs(%dscale.empty : tensor<256xf32>) -> tensor<256xf32>
  %dscale = linalg.generic {
    indexing_maps = [
      affine_map<(d0, d1) -> (d1, d0)>,
      affine_map<(d0, d1) -> (d1, d0)>,
      affine_map<(d0, d1) -> (d0)>
    ],
    iterator_types = ["parallel", "reduction"]
  } ins(%dy, %x : tensor<512x256xf32>, tensor<512x256xf32>) outs(%dscale.init : tensor<256xf32>) {
  ^bb0(%dy.in: f32, %x.in: f32, %acc: f32):
    %0 = arith.mulf %dy.in, %x.in : f32
    %1 = arith.addf %acc, %0 : f32
    linalg.yield %1 : f32
  } -> tensor<256xf32>

  // %dbias: f32[i0 < 256] = sum[r0 < 512] %dy[r0, i0]
  %dbias.empty = tensor.empty() : tensor<256xf32>
  %dbias.init = linalg.fill ins(%f32_0.0 : f32) outs(%dbias.empty : tensor<256xf32>) -> tensor<256xf32>
  %dbias = linalg.generic {
    indexing_maps = [
      affine_map<(d0, d1) -> (d1, d0)>,
      affine_map<(d0, d1) -> (d0)>
    ],
    iterator_types = ["parallel", "reduction"]
  } ins(%dy : tensor<512x256xf32>) outs(%dbias.init : tensor<256xf32>) {
  ^bb0(%dy.in: f32, %acc: f32):
    %0 = arith.addf %acc, %dy.in : f32
    linalg.yield %0 : f32
  } -> tensor<256xf32>

  return %dx, %dscale, %dbias : tensor<512x256xf32>, tensor<256xf32>, tensor<256xf32>
}

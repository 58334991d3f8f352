// kernel
//   takes %float4: FLOAT32[n]
//   takes %point: FLOAT32[n]
//   takes %i: FLOAT32[n]
//   gives %out: FLOAT32[n]
//   gives %vload16: FLOAT32[n]
//   gives %main: FLOAT32[n]
func.func @kernel(%float4: tensor<?xf32>, %point: tensor<?xf32>, %i: tensor<?xf32>) -> (tensor<?xf32>, tensor<?xf32>, tensor<?xf32>) {
  %c0 = arith.constant 0 : index
  %f32_0.0 = arith.constant 0.0 : f32
  %f32_-1.0 = arith.constant -1.0 : f32
  %f32_1.0 = arith.constant 1.0 : f32
  %n = tensor.dim %float4, %c0 : tensor<?xf32>

  // %out: f32[i0 < n] = max(%float4[i0], %point[i0])
  %out.empty = tensor.empty(%n) : tensor<?xf32>
  %out = linalg.generic {
    indexing_maps = [
      affine_map<(d0) -> (d0)>,
      affine_map<(d0) -> (d0)>,
      affine_map<(d0) -> (d0)>
    ],
    iterator_types = ["parallel"]
  } ins(%float4, %point : tensor<?xf32>, tensor<?xf32>) outs(%out.empty : tensor<?xf32>) {
  ^bb0(%float4.in: f32, %point.in: f32, %out_: f32):
    %0 = arith.cmpf ogt, %point.in, %float4.in : f32
    %1 = arith.cmpf uno, %point.in, %point.in : f32
    %2 = arith.ori %0, %1 : i1
    %3 = arith.select %2, %point.in, %float4.in : f32
    linalg.yield %3 : f32
  } -> tensor<?xf32>

  // %vload16: f32[i0 < n] = sub(%point[i0], %i[i0])
  %vload16.empty = tensor.empty(%n) : tensor<?xf32>
  %vload16 = linalg.generic {
    indexing_maps = [
      affine_map<(d0) -> (d0)>,
      affine_map<(d0) -> (d0)>,
      affine_map<(d0) -> (d0)>
    ],
    iterator_types = ["parallel"]
  } ins(%point, %i : tensor<?xf32>, tensor<?xf32>) outs(%vload16.empty : tensor<?xf32>) {
  ^bb0(%point.in: f32, %i.in: f32, %out_: f32):
    %0 = arith.subf %point.in, %i.in : f32
    linalg.yield %0 : f32
  } -> tensor<?xf32>

  // %main: f32[i0 < n] = sign(%i[i0])
  %main.empty = tensor.empty(%n) : tensor<?xf32>
  %main = linalg.generic {
    indexing_maps = [
      affine_map<(d0) -> (d0)>,
      affine_map<(d0) -> (d0)>
    ],
    iterator_types = ["parallel"]
  } ins(%i : tensor<?xf32>) outs(%main.empty : tensor<?xf32>) {
  ^bb0(%i.in: f32, %out_: f32):
    %0 = arith.cmpf ogt, %i.in, %f32_0.0 : f32
    %1 = arith.cmpf olt, %i.in, %f32_0.0 : f32
    %2 = arith.select %1, %f32_-1.0, %i.in : f32
    %3 = arith.select %0, %f32_1.0, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<?xf32>

  return %out, %vload16, %main : tensor<?xf32>, tensor<?xf32>, tensor<?xf32>
}

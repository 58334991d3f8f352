// segments
//   takes %Starts: INT32[6]
//   takes %X: FLOAT32[12, 20]
//   gives %Y: FLOAT32[5, 20]
func.func @segments(%Starts: tensor<6xi32>, %X: tensor<12x20xf32>) -> (tensor<5x20xf32>) {
  %f32_0.0 = arith.constant 0.0 : f32

  // %Y: f32[i0 < 5, i1 < 20] = sum[r0 < 12 where and(ge(r0, cast(%Starts[i0], index)), lt(r0, cast(%Starts[add(i0, 1)], index)))] %X[r0, i1]
  %Y.empty = tensor.empty() : tensor<5x20xf32>
  %Y.init = linalg.fill ins(%f32_0.0 : f32) outs(%Y.empty : tensor<5x20xf32>) -> tensor<5x20xf32>
  %Starts.slice = tensor.extract_slice %Starts[0] [5] [1] : tensor<6xi32> to tensor<5xi32>
  %Starts.slice_2 = tensor.extract_slice %Starts[1] [5] [1] : tensor<6xi32> to tensor<5xi32>
  %Y = linalg.generic {
    indexing_maps = [
      affine_map<(d0, d1, d2) -> (d0)>,
      affine_map<(d0, d1, d2) -> (d0)>,
      affine_map<(d0, d1, d2) -> (d2, d1)>,
      affine_map<(d0, d1, d2) -> (d0, d1)>
    ],
    iterator_types = ["parallel", "parallel", "reduction"]
  } ins(%Starts.slice, %Starts.slice_2, %X : tensor<5xi32>, tensor<5xi32>, tensor<12x20xf32>) outs(%Y.init : tensor<5x20xf32>) {
  ^bb0(%Starts.in: i32, %Starts.in_2: i32, %X.in: f32, %acc: f32):
    %r0 = linalg.index 2 : index
    %0 = arith.index_cast %Starts.in : i32 to index
    %1 = arith.cmpi sge, %r0, %0 : index
    %2 = arith.index_cast %Starts.in_2 : i32 to index
    %3 = arith.cmpi slt, %r0, %2 : index
    %4 = arith.andi %1, %3 : i1
    %5 = arith.addf %acc, %X.in : f32
    %6 = arith.select %4, %5, %acc : f32
    linalg.yield %6 : f32
  } -> tensor<5x20xf32>

  return %Y : tensor<5x20xf32>
}

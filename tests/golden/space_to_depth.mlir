// space_to_depth
//   takes %Input: FLOAT32[2, 3, 4, 6]
//   gives %Output: FLOAT32[2, 12, 2, 3]
func.func @space_to_depth(%Input: tensor<2x3x4x6xf32>) -> (tensor<2x12x2x3xf32>) {
  %c3 = arith.constant 3 : index
  %c2 = arith.constant 2 : index

  // %Output: f32[i0 < 2, i1 < 12, i2 < 2, i3 < 3] = {
  //   v0 = div(i1, 3)
  //   %Input[i0, mod(i1, 3), add(mul(i2, 2), div(v0, 2)), add(mul(i3, 2), mod(v0, 2))]
  // }
  %Output.empty = tensor.empty() : tensor<2x12x2x3xf32>
  %Output = linalg.generic {
    indexing_maps = [
      affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
    ],
    iterator_types = ["parallel", "parallel", "parallel", "parallel"]
  } outs(%Output.empty : tensor<2x12x2x3xf32>) {
  ^bb0(%out: f32):
    %i0 = linalg.index 0 : index
    %i1 = linalg.index 1 : index
    %i2 = linalg.index 2 : index
    %i3 = linalg.index 3 : index
    %0 = arith.remsi %i1, %c3 : index
    %1 = arith.muli %i2, %c2 : index
    %2 = arith.divsi %i1, %c3 : index
    %3 = arith.divsi %2, %c2 : index
    %4 = arith.addi %1, %3 : index
    %5 = arith.muli %i3, %c2 : index
    %6 = arith.remsi %2, %c2 : index
    %7 = arith.addi %5, %6 : index
    %8 = tensor.extract %Input[%i0, %0, %4, %7] : tensor<2x3x4x6xf32>
    linalg.yield %8 : f32
  } -> tensor<2x12x2x3xf32>

  return %Output : tensor<2x12x2x3xf32>
}

// gather
//   takes %Input: FLOAT32[6, 5]
//   takes %Indices: INT32[4, 3]
//   gives %Output: FLOAT32[4, 3, 5]
func.func @gather(%Input: tensor<6x5xf32>, %Indices: tensor<4x3xi32>) -> (tensor<4x3x5xf32>) {
  %i32_0 = arith.constant 0 : i32
  %i32_6 = arith.constant 6 : i32
  %c0 = arith.constant 0 : index
  %c5 = arith.constant 5 : index

  // %index: s32[i0 < 4, i1 < 3] = {
  //   v0 = %Indices[i0, i1]
  //   select(lt(v0, 0:s32), add(v0, 6:s32), v0)
  // }
  %index.empty = tensor.empty() : tensor<4x3xi32>
  %index = linalg.generic {
    indexing_maps = [
      affine_map<(d0, d1) -> (d0, d1)>,
      affine_map<(d0, d1) -> (d0, d1)>
    ],
    iterator_types = ["parallel", "parallel"]
  } ins(%Indices : tensor<4x3xi32>) outs(%index.empty : tensor<4x3xi32>) {
  ^bb0(%Indices.in: i32, %out: i32):
    %0 = arith.cmpi slt, %Indices.in, %i32_0 : i32
    %1 = arith.addi %Indices.in, %i32_6 : i32
    %2 = arith.select %0, %1, %Indices.in : i32
    linalg.yield %2 : i32
  } -> tensor<4x3xi32>

  // %Output: f32[i0 < 4, i1 < 3, i2 < 5] = %Input[min(max(cast(%index[i0, i1], index), 0), 5), i2]
  %Output.empty = tensor.empty() : tensor<4x3x5xf32>
  %Output = linalg.generic {
    indexing_maps = [
      affine_map<(d0, d1, d2) -> (d0, d1)>,
      affine_map<(d0, d1, d2) -> (d0, d1, d2)>
    ],
    iterator_types = ["parallel", "parallel", "parallel"]
  } ins(%index : tensor<4x3xi32>) outs(%Output.empty : tensor<4x3x5xf32>) {
  ^bb0(%index.in: i32, %out: f32):
    %i2 = linalg.index 2 : index
    %0 = arith.index_cast %index.in : i32 to index
    %1 = arith.maxsi %0, %c0 : index
    %2 = arith.minsi %1, %c5 : index
    %3 = tensor.extract %Input[%2, %i2] : tensor<6x5xf32>
    linalg.yield %3 : f32
  } -> tensor<4x3x5xf32>

  return %Output : tensor<4x3x5xf32>
}

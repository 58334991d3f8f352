// select_bytes
//   takes %mask: BOOL[n]
//   takes %a: INT8[n]
//   takes %b: INT8[n]
//   gives %chosen: INT8[n]
//   gives %equal: BOOL[n]
func.func @select_bytes(%mask: tensor<?xi1>, %a: tensor<?xi8>, %b: tensor<?xi8>) -> (tensor<?xi8>, tensor<?xi1>) {
  %c0 = arith.constant 0 : index
  %i8_0 = arith.constant 0 : i8
  %true = arith.constant true
  %n = tensor.dim %mask, %c0 : tensor<?xi1>

  // %chosen: s8[i0 < n] = {
  //   v0 = %a[i0]
  //   select(%mask[i0], add(v0, %b[i0]), neg(v0))
  // }
  %chosen.empty = tensor.empty(%n) : tensor<?xi8>
  %chosen = linalg.generic {
    indexing_maps = [
      affine_map<(d0) -> (d0)>,
      affine_map<(d0) -> (d0)>,
      affine_map<(d0) -> (d0)>,
      affine_map<(d0) -> (d0)>
    ],
    iterator_types = ["parallel"]
  } ins(%mask, %a, %b : tensor<?xi1>, tensor<?xi8>, tensor<?xi8>) outs(%chosen.empty : tensor<?xi8>) {
  ^bb0(%mask.in: i1, %a.in: i8, %b.in: i8, %out: i8):
    %0 = arith.addi %a.in, %b.in : i8
    %1 = arith.subi %i8_0, %a.in : i8
    %2 = arith.select %mask.in, %0, %1 : i8
    linalg.yield %2 : i8
  } -> tensor<?xi8>

  // %equal: boolean[i0 < n] = or(not(%mask[i0]), eq(%a[i0], %b[i0]))
  %equal.empty = tensor.empty(%n) : tensor<?xi1>
  %equal = linalg.generic {
    indexing_maps = [
      affine_map<(d0) -> (d0)>,
      affine_map<(d0) -> (d0)>,
      affine_map<(d0) -> (d0)>,
      affine_map<(d0) -> (d0)>
    ],
    iterator_types = ["parallel"]
  } ins(%mask, %a, %b : tensor<?xi1>, tensor<?xi8>, tensor<?xi8>) outs(%equal.empty : tensor<?xi1>) {
  ^bb0(%mask.in: i1, %a.in: i8, %b.in: i8, %out: i1):
    %0 = arith.xori %mask.in, %true : i1
    %1 = arith.cmpi eq, %a.in, %b.in : i8
    %2 = arith.ori %0, %1 : i1
    linalg.yield %2 : i1
  } -> tensor<?xi1>

  return %chosen, %equal : tensor<?xi8>, tensor<?xi1>
}

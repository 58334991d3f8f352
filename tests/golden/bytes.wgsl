bytes.ir:1:20: error: target 'wgsl' cannot hold tensor 'mask' of type BOOL: WGSL buffers have no elements of 8 bits [E0901]
    1 | func @select_bytes(%mask: boolean[n], %a: s8[n], %b: s8[n]) -> (%chosen, %equal) {
      |                    ^^^^^^^^^^^^^^^^^
bytes.ir:1:39: error: target 'wgsl' cannot hold tensor 'a' of type INT8: WGSL has no 8-bit integers [E0901]
    1 | func @select_bytes(%mask: boolean[n], %a: s8[n], %b: s8[n]) -> (%chosen, %equal) {
      |                                       ^^^^^^^^^
bytes.ir:1:50: error: target 'wgsl' cannot hold tensor 'b' of type INT8: WGSL has no 8-bit integers [E0901]
    1 | func @select_bytes(%mask: boolean[n], %a: s8[n], %b: s8[n]) -> (%chosen, %equal) {
      |                                                  ^^^^^^^^^
bytes.ir:2:3: error: target 'wgsl' cannot hold tensor 'chosen' of type INT8: WGSL has no 8-bit integers [E0901]
    2 |   %chosen: s8[i0 < n] = select(%mask[i0], add(%a[i0], %b[i0]), neg(%a[i0]))
      |   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
bytes.ir:3:3: error: target 'wgsl' cannot hold tensor 'equal' of type BOOL: WGSL buffers have no elements of 8 bits [E0901]
    3 |   %equal: boolean[i0 < n] = or(not(%mask[i0]), eq(%a[i0], %b[i0]))
      |   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
bytes.ir:2:3: error: target 'wgsl' cannot compute 'add' of INT8: WGSL has no 8-bit integers [E0901]
    2 |   %chosen: s8[i0 < n] = select(%mask[i0], add(%a[i0], %b[i0]), neg(%a[i0]))
      |   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
bytes.ir:2:3: error: target 'wgsl' cannot compute 'neg' of INT8: WGSL has no 8-bit integers [E0901]
    2 |   %chosen: s8[i0 < n] = select(%mask[i0], add(%a[i0], %b[i0]), neg(%a[i0]))
      |   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
bytes.ir:3:3: error: target 'wgsl' cannot compute 'eq' of INT8: WGSL has no 8-bit integers [E0901]
    3 |   %equal: boolean[i0 < n] = or(not(%mask[i0]), eq(%a[i0], %b[i0]))
      |   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  note: what can express it all: hlsl, opencl

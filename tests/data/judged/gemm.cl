// A product of two matrices, a tile of 8 x 8 elements for each group.
// dmlc: --bindings "A=ATensor, B=BTensor, C=OutputTensor, M=A.sizes[0], N=B.sizes[1], K=A.sizes[1]"
// dmlc: --groups "ceil(N / 8), ceil(M / 8)"
// dmlc: --where "ATensor.rank == 2 and TransA == NONE and TransB == NONE and Alpha == 1 and FusedActivation == 'NONE'"
__kernel __attribute__((reqd_work_group_size(8, 8, 1)))
void gemm(__global const float *A, __global const float *B, __global float *C, uint M, uint N,
          uint K)
{
    __local float a[8][8], b[8][8];
    uint x = get_local_id(0), y = get_local_id(1);
    uint column = get_global_id(0), row = get_global_id(1);
    float sum = 0.0f;
    for (uint k = 0; k < K; k += 8) {
        a[y][x] = row < M && k + x < K ? A[row * K + k + x] : 0.0f;
        b[y][x] = k + y < K && column < N ? B[(k + y) * N + column] : 0.0f;
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint j = 0; j < 8; ++j)
            if (k + j < K)
                sum += a[y][j] * b[j][x];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (row < M && column < N)
        C[row * N + column] = sum;
}

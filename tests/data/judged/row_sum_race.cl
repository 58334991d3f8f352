// Wrong: no barrier stands between the steps of the tree.
// dmlc: --groups "X.sizes[0]"
__kernel __attribute__((reqd_work_group_size(64, 1, 1)))
void row_sum(__global const float *X, __global float *Y, uint X_size1)
{
    __local float parts[64];
    uint row = get_group_id(0), lane = get_local_id(0);
    float sum = 0.0f;
    for (uint j = lane; j < X_size1; j += 64)
        sum += X[row * X_size1 + j];
    parts[lane] = sum;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint step = 32; step > 0; step /= 2)
        if (lane < step)
            parts[lane] += parts[lane + step];
    if (lane == 0)
        Y[row] = parts[0];
}

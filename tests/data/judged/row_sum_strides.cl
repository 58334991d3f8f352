// Wrong: the rows of X are taken to be packed, whatever its strides are.
__kernel __attribute__((reqd_work_group_size(32, 1, 1)))
void row_sum(__global const float *X, __global float *Y, uint X_size0, uint X_size1,
             uint X_stride0, uint X_stride1, uint Y_stride0)
{
    uint i = get_global_id(0);
    if (i >= X_size0)
        return;
    float sum = 0.0f;
    for (uint j = 0; j < X_size1; ++j)
        sum += X[i * X_size1 + j];
    Y[i * Y_stride0] = sum;
}

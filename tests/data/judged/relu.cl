// Rectified linear unit, one work item for each element.
// dmlc: --group-size 64
__kernel void relu(__global const float *input, __global float *output, uint output_size)
{
    uint i = get_global_id(0);
    if (i >= output_size)
        return;
    float x = input[i];
    output[i] = x < 0.0f ? 0.0f : x;
}

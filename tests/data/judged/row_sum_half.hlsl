// Wrong: the sum is kept in 16 bits.
// dmlc: --groups "ceil(X.sizes[0] / 64)"
StructuredBuffer<float16_t> X : register(t0);
RWStructuredBuffer<float16_t> Y : register(u0);
cbuffer Sizes : register(b0) { uint2 X_sizes; };

[numthreads(64, 1, 1)]
void main(uint3 id : SV_DispatchThreadID)
{
    if (id.x >= X_sizes.x)
        return;
    float16_t sum = (float16_t)0;
    for (uint j = 0; j < X_sizes.y; ++j)
        sum += X[id.x * X_sizes.y + j];
    Y[id.x] = sum;
}

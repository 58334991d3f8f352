// Wrong: of NaN and 0, max gives 0.
StructuredBuffer<float> InputTensor : register(t0);
RWStructuredBuffer<float> OutputTensor : register(u0);
cbuffer Sizes : register(b0) { uint OutputTensor_size; };

[numthreads(64, 1, 1)]
void main(uint3 id : SV_DispatchThreadID)
{
    if (id.x < OutputTensor_size)
        OutputTensor[id.x] = max(InputTensor[id.x], 0.0);
}

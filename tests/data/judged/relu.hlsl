// Rectified linear unit, one thread for each element.
StructuredBuffer<float> InputTensor : register(t0);
RWStructuredBuffer<float> OutputTensor : register(u0);
cbuffer Sizes : register(b0) { uint OutputTensor_size; };

[numthreads(64, 1, 1)]
void main(uint3 id : SV_DispatchThreadID)
{
    if (id.x >= OutputTensor_size)
        return;
    float x = InputTensor[id.x];
    OutputTensor[id.x] = x < 0.0 ? 0.0 : x;
}

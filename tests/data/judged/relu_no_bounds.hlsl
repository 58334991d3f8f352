// Wrong: the last group stores behind the output where its size is no multiple of 64.
StructuredBuffer<float> InputTensor : register(t0);
RWStructuredBuffer<float> OutputTensor : register(u0);

[numthreads(64, 1, 1)]
void main(uint3 id : SV_DispatchThreadID)
{
    float x = InputTensor[id.x];
    OutputTensor[id.x] = x < 0.0 ? 0.0 : x;
}

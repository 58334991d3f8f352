/* As much of libvkd3d and Vulkan as `templates/vkd3d.c` uses, without a GPU. Names and signatures are
 * those of vkd3d 2.1. It is stricter than that: a buffer that is used in another state than it is
 * in, or a list that is used while it is closed, removes the device.
 *
 * A shader is text behind the first four bytes. `sum` stores in the first word of each buffer that it
 * writes the sum of the first words of all buffers that it reads, its constant, and its groups.
 */
#pragma once

#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define VKD3D_API_VERSION_1_2 2
#define VKD3D_INFINITE (~0u)
#define FAILED(status) ((status) < 0)
#define SUCCEEDED(status) ((status) >= 0)
#define E_NOTIMPL ((HRESULT)0x80004001)
#define E_FAIL ((HRESULT)0x80004005)
#define E_OUTOFMEMORY ((HRESULT)0x8007000e)
#define E_INVALIDARG ((HRESULT)0x80070057)
#define DEVICE_REMOVED ((HRESULT)0x887a0005)

typedef int32_t HRESULT;
typedef uint32_t UINT;
typedef uint64_t UINT64;
typedef size_t SIZE_T;
typedef void* HANDLE;
typedef struct { int kind; } GUID;
typedef void (*PFN_vkd3d_log)(const char*, va_list);

/* Vulkan ------------------------------------------------------------------------------------- */

typedef void* VkPhysicalDevice;
enum { VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_DRIVER_PROPERTIES };
enum { VK_MEMORY_HEAP_DEVICE_LOCAL_BIT = 1 };
typedef struct { int sType; void* pNext; char driverName[256]; char driverInfo[256]; } VkPhysicalDeviceDriverProperties;
typedef struct { uint32_t vendorID; uint32_t deviceType; char deviceName[256]; } VkPhysicalDeviceProperties;
typedef struct { int sType; void* pNext; VkPhysicalDeviceProperties properties; } VkPhysicalDeviceProperties2;
typedef struct { uint64_t size; uint32_t flags; } VkMemoryHeap;
typedef struct { uint32_t memoryHeapCount; VkMemoryHeap memoryHeaps[16]; } VkPhysicalDeviceMemoryProperties;

static void vkGetPhysicalDeviceProperties2(VkPhysicalDevice device, VkPhysicalDeviceProperties2* found)
{
    VkPhysicalDeviceDriverProperties* driver = found->pNext;
    (void)device;
    strcpy(driver->driverName, "no driver");
    strcpy(driver->driverInfo, "1.0");
    strcpy(found->properties.deviceName, "Paper GPU");
    found->properties.vendorID = 0x1234;
    found->properties.deviceType = 2;
}

static void vkGetPhysicalDeviceMemoryProperties(VkPhysicalDevice device, VkPhysicalDeviceMemoryProperties* found)
{
    (void)device;
    *found = (VkPhysicalDeviceMemoryProperties){2, {{1 << 20, 1}, {1 << 21, 0}}};
}

/* Direct3D's structures ---------------------------------------------------------------------- */

typedef enum { D3D12_HEAP_TYPE_DEFAULT = 1, D3D12_HEAP_TYPE_UPLOAD, D3D12_HEAP_TYPE_READBACK } D3D12_HEAP_TYPE;
typedef enum {
    D3D12_RESOURCE_STATE_COMMON = 0, D3D12_RESOURCE_STATE_VERTEX_AND_CONSTANT_BUFFER = 1,
    D3D12_RESOURCE_STATE_UNORDERED_ACCESS = 8, D3D12_RESOURCE_STATE_NON_PIXEL_SHADER_RESOURCE = 0x40,
    D3D12_RESOURCE_STATE_COPY_DEST = 0x400, D3D12_RESOURCE_STATE_COPY_SOURCE = 0x800,
    D3D12_RESOURCE_STATE_GENERIC_READ = 0xac3
} D3D12_RESOURCE_STATES;
typedef enum { D3D12_DESCRIPTOR_RANGE_TYPE_SRV, D3D12_DESCRIPTOR_RANGE_TYPE_UAV, D3D12_DESCRIPTOR_RANGE_TYPE_CBV } D3D12_DESCRIPTOR_RANGE_TYPE;
enum {
    D3D_FEATURE_LEVEL_11_0 = 0xb000, D3D_ROOT_SIGNATURE_VERSION_1 = 1, D3D12_COMMAND_LIST_TYPE_DIRECT = 0,
    D3D12_FENCE_FLAG_NONE = 0, D3D12_RESOURCE_DIMENSION_BUFFER = 1, D3D12_TEXTURE_LAYOUT_ROW_MAJOR = 1,
    D3D12_RESOURCE_FLAG_NONE = 0, D3D12_RESOURCE_FLAG_ALLOW_UNORDERED_ACCESS = 4, D3D12_HEAP_FLAG_NONE = 0,
    D3D12_RESOURCE_BARRIER_TYPE_TRANSITION = 0, D3D12_SRV_DIMENSION_BUFFER = 1, D3D12_UAV_DIMENSION_BUFFER = 1,
    D3D12_DEFAULT_SHADER_4_COMPONENT_MAPPING = 0x1688, D3D12_ROOT_PARAMETER_TYPE_DESCRIPTOR_TABLE = 0,
    D3D12_DESCRIPTOR_HEAP_TYPE_CBV_SRV_UAV = 0, D3D12_DESCRIPTOR_HEAP_FLAG_SHADER_VISIBLE = 1,
    D3D12_FEATURE_D3D12_OPTIONS = 0, D3D12_FEATURE_SHADER_MODEL = 7, D3D12_FEATURE_D3D12_OPTIONS1 = 8,
    D3D12_FEATURE_D3D12_OPTIONS4 = 23
};
#define D3D12_RESOURCE_BARRIER_ALL_SUBRESOURCES 0xffffffffu
#define D3D12_DESCRIPTOR_RANGE_OFFSET_APPEND 0xffffffffu
typedef int D3D12_COMMAND_LIST_TYPE;

typedef struct { unsigned HighestShaderModel; } D3D12_FEATURE_DATA_SHADER_MODEL;
typedef struct { int DoublePrecisionFloatShaderOps; } D3D12_FEATURE_DATA_D3D12_OPTIONS;
typedef struct { int Int64ShaderOps; } D3D12_FEATURE_DATA_D3D12_OPTIONS1;
typedef struct { int Native16BitShaderOpsSupported; } D3D12_FEATURE_DATA_D3D12_OPTIONS4;
typedef struct { int Type; } D3D12_COMMAND_QUEUE_DESC;
typedef struct { D3D12_HEAP_TYPE Type; } D3D12_HEAP_PROPERTIES;
typedef struct {
    int Dimension; UINT64 Width; UINT Height, DepthOrArraySize, MipLevels; struct { UINT Count; } SampleDesc;
    int Layout; int Flags;
} D3D12_RESOURCE_DESC;
typedef struct ID3D12Device ID3D12Device;
typedef struct ID3D12Resource {
    ID3D12Device* device; D3D12_HEAP_TYPE heap; int state; int flags; UINT64 bytes; uint32_t* memory;
} ID3D12Resource;
typedef struct {
    int Type;
    struct { ID3D12Resource* pResource; UINT Subresource; D3D12_RESOURCE_STATES StateBefore, StateAfter; } Transition;
} D3D12_RESOURCE_BARRIER;
typedef struct { UINT64 BufferLocation; UINT SizeInBytes; } D3D12_CONSTANT_BUFFER_VIEW_DESC;
typedef struct {
    int ViewDimension; UINT Shader4ComponentMapping; struct { UINT NumElements, StructureByteStride; } Buffer;
} D3D12_SHADER_RESOURCE_VIEW_DESC;
typedef struct { int ViewDimension; struct { UINT NumElements, StructureByteStride; } Buffer; } D3D12_UNORDERED_ACCESS_VIEW_DESC;
typedef struct { size_t ptr; } D3D12_CPU_DESCRIPTOR_HANDLE;
typedef struct { size_t ptr; } D3D12_GPU_DESCRIPTOR_HANDLE;
typedef struct { D3D12_DESCRIPTOR_RANGE_TYPE RangeType; UINT NumDescriptors, OffsetInDescriptorsFromTableStart; } D3D12_DESCRIPTOR_RANGE;
typedef struct {
    int ParameterType; struct { UINT NumDescriptorRanges; const D3D12_DESCRIPTOR_RANGE* pDescriptorRanges; } DescriptorTable;
} D3D12_ROOT_PARAMETER;
typedef struct { UINT NumParameters; const D3D12_ROOT_PARAMETER* pParameters; } D3D12_ROOT_SIGNATURE_DESC;
typedef struct { const void* pShaderBytecode; SIZE_T BytecodeLength; } D3D12_SHADER_BYTECODE;

/* Direct3D's objects ------------------------------------------------------------------------- */

typedef struct { D3D12_DESCRIPTOR_RANGE_TYPE type; ID3D12Resource* resource; } Descriptor;
struct ID3D12Device { HRESULT removed; };
typedef struct { ID3D12Device* device; } ID3D12CommandQueue;
typedef struct { int resets; } ID3D12CommandAllocator;
typedef struct { UINT64 value; } ID3D12Fence;
typedef struct { UINT counts[3]; } ID3D12RootSignature;
typedef struct { int unused; } ID3D12PipelineState;
typedef struct { UINT count; Descriptor descriptors[]; } ID3D12DescriptorHeap;
typedef ID3D12RootSignature ID3DBlob;
typedef struct {
    ID3D12Device* device; int is_open; ID3D12DescriptorHeap* heap; ID3D12RootSignature* signature;
    ID3D12PipelineState* pipeline; Descriptor* table;
} ID3D12GraphicsCommandList;
typedef ID3D12GraphicsCommandList ID3D12CommandList;
typedef struct { ID3D12RootSignature* pRootSignature; D3D12_SHADER_BYTECODE CS; } D3D12_COMPUTE_PIPELINE_STATE_DESC;
typedef struct { int Type; UINT NumDescriptors; int Flags; } D3D12_DESCRIPTOR_HEAP_DESC;

static const GUID IID_ID3D12Device, IID_ID3D12CommandQueue, IID_ID3D12CommandAllocator, IID_ID3D12GraphicsCommandList,
    IID_ID3D12Fence, IID_ID3D12Resource, IID_ID3D12RootSignature, IID_ID3D12PipelineState, IID_ID3D12DescriptorHeap;
static PFN_vkd3d_log log_to;

static void vkd3d_set_log_callback(PFN_vkd3d_log callback) { log_to = callback; }
static void write_log(const char* format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    log_to(format, arguments);
    va_end(arguments);
}
static HRESULT made(void* object, void** place) { *place = object; return object ? 0 : E_OUTOFMEMORY; }
static HANDLE vkd3d_create_event(void) { return calloc(1, 1); }
static unsigned vkd3d_wait_event(HANDLE event, unsigned most) { (void)most; return *(char*)event ? 0 : abort(), 0; }
static VkPhysicalDevice vkd3d_get_vk_physical_device(ID3D12Device* device) { return device; }

static HRESULT D3D12CreateDevice(void* adapter, int level, const GUID* kind, void** place)
{
    (void)adapter, (void)level, (void)kind;
    return getenv("FAKE_VKD3D_FAILS") ? E_FAIL : made(calloc(1, sizeof(ID3D12Device)), place);
}
static HRESULT ID3D12Device_CheckFeatureSupport(ID3D12Device* device, int feature, void* data, UINT bytes)
{
    const char* model = getenv("FAKE_VKD3D_MODEL");
    const unsigned highest = model ? strtoul(model, NULL, 16) : 0x60;
    (void)device, (void)bytes;
    switch (feature) {
    case D3D12_FEATURE_SHADER_MODEL: {
        D3D12_FEATURE_DATA_SHADER_MODEL* const asked = data;
        if (asked->HighestShaderModel > 0x66) return E_INVALIDARG;
        if (asked->HighestShaderModel > highest) asked->HighestShaderModel = highest;
        return 0;
    }
    case D3D12_FEATURE_D3D12_OPTIONS: ((D3D12_FEATURE_DATA_D3D12_OPTIONS*)data)->DoublePrecisionFloatShaderOps = 1; return 0;
    case D3D12_FEATURE_D3D12_OPTIONS1: ((D3D12_FEATURE_DATA_D3D12_OPTIONS1*)data)->Int64ShaderOps = 1; return 0;
    default: return E_INVALIDARG;
    }
}
static HRESULT ID3D12Device_GetDeviceRemovedReason(ID3D12Device* device) { return device->removed; }
static HRESULT ID3D12Device_CreateCommandQueue(ID3D12Device* device, const D3D12_COMMAND_QUEUE_DESC* about, const GUID* kind, void** place)
{
    ID3D12CommandQueue* const queue = calloc(1, sizeof *queue);
    (void)about, (void)kind;
    queue->device = device;
    return made(queue, place);
}
static HRESULT ID3D12Device_CreateCommandAllocator(ID3D12Device* device, int type, const GUID* kind, void** place)
{
    (void)device, (void)type, (void)kind;
    return made(calloc(1, sizeof(ID3D12CommandAllocator)), place);
}
static HRESULT ID3D12Device_CreateCommandList(ID3D12Device* device, UINT mask, int type, ID3D12CommandAllocator* allocator,
    ID3D12PipelineState* pipeline, const GUID* kind, void** place)
{
    ID3D12GraphicsCommandList* const list = calloc(1, sizeof *list);
    (void)mask, (void)type, (void)allocator, (void)pipeline, (void)kind;
    list->device = device;
    list->is_open = 1;
    return made(list, place);
}
static HRESULT ID3D12Device_CreateFence(ID3D12Device* device, UINT64 value, int flags, const GUID* kind, void** place)
{
    (void)device, (void)value, (void)flags, (void)kind;
    return made(calloc(1, sizeof(ID3D12Fence)), place);
}
static HRESULT ID3D12CommandAllocator_Reset(ID3D12CommandAllocator* allocator) { ++allocator->resets; return 0; }
static HRESULT ID3D12GraphicsCommandList_Close(ID3D12GraphicsCommandList* list)
{
    if (!list->is_open) return E_FAIL;
    list->is_open = 0;
    return 0;
}
static HRESULT ID3D12GraphicsCommandList_Reset(ID3D12GraphicsCommandList* list, ID3D12CommandAllocator* allocator, ID3D12PipelineState* pipeline)
{
    (void)allocator, (void)pipeline;
    if (list->is_open) return E_FAIL;
    *list = (ID3D12GraphicsCommandList){.device = list->device, .is_open = 1};
    return 0;
}
static void ID3D12CommandQueue_ExecuteCommandLists(ID3D12CommandQueue* queue, UINT count, ID3D12CommandList* const* lists)
{
    if (count != 1 || lists[0]->is_open) queue->device->removed = DEVICE_REMOVED;
}
static HRESULT ID3D12CommandQueue_Signal(ID3D12CommandQueue* queue, ID3D12Fence* fence, UINT64 value) { (void)queue; fence->value = value; return 0; }
static HRESULT ID3D12Fence_SetEventOnCompletion(ID3D12Fence* fence, UINT64 value, HANDLE event) { *(char*)event = fence->value >= value; return 0; }

static HRESULT ID3D12Device_CreateCommittedResource(ID3D12Device* device, const D3D12_HEAP_PROPERTIES* heap, int flags,
    const D3D12_RESOURCE_DESC* about, D3D12_RESOURCE_STATES state, const void* clear, const GUID* kind, void** place)
{
    (void)flags, (void)clear, (void)kind;
    if (about->Width >= 1ull << 40) return E_OUTOFMEMORY;
    ID3D12Resource* const resource = calloc(1, sizeof *resource);
    *resource = (ID3D12Resource){device, heap->Type, state, about->Flags, about->Width, malloc(about->Width)};
    memset(resource->memory, 0xcd, about->Width);
    return made(resource, place);
}
static void ID3D12Resource_Release(ID3D12Resource* resource) { free(resource->memory); free(resource); }
static UINT64 ID3D12Resource_GetGPUVirtualAddress(ID3D12Resource* resource) { return (size_t)resource; }
static HRESULT ID3D12Resource_Map(ID3D12Resource* resource, UINT part, const void* range, void** place)
{
    (void)part, (void)range;
    *place = resource->memory;
    return resource->heap == D3D12_HEAP_TYPE_DEFAULT ? E_INVALIDARG : 0;
}
static void ID3D12Resource_Unmap(ID3D12Resource* resource, UINT part, const void* range) { (void)resource, (void)part, (void)range; }
static void expect(ID3D12Resource* resource, int state)
{
    if ((resource->state & state) != state) resource->device->removed = DEVICE_REMOVED;
}
static void ID3D12GraphicsCommandList_ResourceBarrier(ID3D12GraphicsCommandList* list, UINT count, const D3D12_RESOURCE_BARRIER* barriers)
{
    ID3D12Resource* const resource = barriers->Transition.pResource;
    if (!list->is_open || count != 1 || resource->state != (int)barriers->Transition.StateBefore) list->device->removed = DEVICE_REMOVED;
    resource->state = barriers->Transition.StateAfter;
}
static void ID3D12GraphicsCommandList_CopyBufferRegion(ID3D12GraphicsCommandList* list, ID3D12Resource* target, UINT64 to,
    ID3D12Resource* source, UINT64 from, UINT64 bytes)
{
    (void)list;
    expect(source, D3D12_RESOURCE_STATE_COPY_SOURCE);
    expect(target, D3D12_RESOURCE_STATE_COPY_DEST);
    memcpy((char*)target->memory + to, (char*)source->memory + from, bytes);
}

static HRESULT D3D12SerializeRootSignature(const D3D12_ROOT_SIGNATURE_DESC* about, int version, ID3DBlob** blob, ID3DBlob** error)
{
    (void)version, (void)error;
    *blob = calloc(1, sizeof **blob);
    for (UINT i = 0; about->NumParameters && i < about->pParameters->DescriptorTable.NumDescriptorRanges; ++i) {
        const D3D12_DESCRIPTOR_RANGE* range = &about->pParameters->DescriptorTable.pDescriptorRanges[i];
        (*blob)->counts[range->RangeType] = range->NumDescriptors;
    }
    return 0;
}
static void* ID3D10Blob_GetBufferPointer(ID3DBlob* blob) { return blob; }
static SIZE_T ID3D10Blob_GetBufferSize(ID3DBlob* blob) { return sizeof *blob; }
static void ID3D10Blob_Release(ID3DBlob* blob) { free(blob); }
static HRESULT ID3D12Device_CreateRootSignature(ID3D12Device* device, UINT mask, const void* blob, SIZE_T bytes, const GUID* kind, void** place)
{
    (void)device, (void)mask, (void)kind;
    return made(memcpy(malloc(bytes), blob, bytes), place);
}
static void ID3D12RootSignature_Release(ID3D12RootSignature* signature) { free(signature); }
static int is_text(const void* code, SIZE_T bytes, const char* text)
{
    return bytes == 4 + strlen(text) && !memcmp((const char*)code + 4, text, strlen(text));
}
static HRESULT ID3D12Device_CreateComputePipelineState(ID3D12Device* device, const D3D12_COMPUTE_PIPELINE_STATE_DESC* about, const GUID* kind, void** place)
{
    (void)device, (void)kind;
    if (is_text(about->CS.pShaderBytecode, about->CS.BytecodeLength, "branches")) {
        write_log("%s:err:vsir_write_mask_64_from_32 Invalid 32 bit writemask.\n", "vkd3d");
        return E_FAIL;
    }
    if (!is_text(about->CS.pShaderBytecode, about->CS.BytecodeLength, "sum")) return E_NOTIMPL;
    return made(calloc(1, sizeof(ID3D12PipelineState)), place);
}
static void ID3D12PipelineState_Release(ID3D12PipelineState* pipeline) { free(pipeline); }
static HRESULT ID3D12Device_CreateDescriptorHeap(ID3D12Device* device, const D3D12_DESCRIPTOR_HEAP_DESC* about, const GUID* kind, void** place)
{
    ID3D12DescriptorHeap* const heap = calloc(1, sizeof *heap + about->NumDescriptors * sizeof(Descriptor));
    (void)device, (void)kind;
    heap->count = about->NumDescriptors;
    return made(heap, place);
}
static UINT ID3D12Device_GetDescriptorHandleIncrementSize(ID3D12Device* device, int type) { (void)device, (void)type; return sizeof(Descriptor); }
static D3D12_CPU_DESCRIPTOR_HANDLE ID3D12DescriptorHeap_GetCPUDescriptorHandleForHeapStart(ID3D12DescriptorHeap* heap)
{
    return (D3D12_CPU_DESCRIPTOR_HANDLE){(size_t)heap->descriptors};
}
static D3D12_GPU_DESCRIPTOR_HANDLE ID3D12DescriptorHeap_GetGPUDescriptorHandleForHeapStart(ID3D12DescriptorHeap* heap)
{
    return (D3D12_GPU_DESCRIPTOR_HANDLE){(size_t)heap->descriptors};
}
static void view(D3D12_CPU_DESCRIPTOR_HANDLE place, D3D12_DESCRIPTOR_RANGE_TYPE type, ID3D12Resource* resource, UINT64 bytes)
{
    if (bytes > resource->bytes) resource->device->removed = DEVICE_REMOVED;
    *(Descriptor*)place.ptr = (Descriptor){type, resource};
}
static void ID3D12Device_CreateConstantBufferView(ID3D12Device* device, const D3D12_CONSTANT_BUFFER_VIEW_DESC* about, D3D12_CPU_DESCRIPTOR_HANDLE place)
{
    (void)device;
    view(place, D3D12_DESCRIPTOR_RANGE_TYPE_CBV, (ID3D12Resource*)(size_t)about->BufferLocation, about->SizeInBytes);
}
static void ID3D12Device_CreateShaderResourceView(ID3D12Device* device, ID3D12Resource* resource, const D3D12_SHADER_RESOURCE_VIEW_DESC* about, D3D12_CPU_DESCRIPTOR_HANDLE place)
{
    (void)device;
    view(place, D3D12_DESCRIPTOR_RANGE_TYPE_SRV, resource, (UINT64)about->Buffer.NumElements * about->Buffer.StructureByteStride);
}
static void ID3D12Device_CreateUnorderedAccessView(ID3D12Device* device, ID3D12Resource* resource, ID3D12Resource* counter,
    const D3D12_UNORDERED_ACCESS_VIEW_DESC* about, D3D12_CPU_DESCRIPTOR_HANDLE place)
{
    (void)device, (void)counter;
    view(place, D3D12_DESCRIPTOR_RANGE_TYPE_UAV, resource, (UINT64)about->Buffer.NumElements * about->Buffer.StructureByteStride);
}
static void ID3D12GraphicsCommandList_SetDescriptorHeaps(ID3D12GraphicsCommandList* list, UINT count, ID3D12DescriptorHeap* const* heaps) { (void)count; list->heap = heaps[0]; }
static void ID3D12GraphicsCommandList_SetComputeRootSignature(ID3D12GraphicsCommandList* list, ID3D12RootSignature* signature) { list->signature = signature; }
static void ID3D12GraphicsCommandList_SetPipelineState(ID3D12GraphicsCommandList* list, ID3D12PipelineState* pipeline) { list->pipeline = pipeline; }
static void ID3D12GraphicsCommandList_SetComputeRootDescriptorTable(ID3D12GraphicsCommandList* list, UINT parameter, D3D12_GPU_DESCRIPTOR_HANDLE place) { (void)parameter; list->table = (Descriptor*)place.ptr; }
static void ID3D12GraphicsCommandList_Dispatch(ID3D12GraphicsCommandList* list, UINT x, UINT y, UINT z)
{
    static const D3D12_DESCRIPTOR_RANGE_TYPE order[] = {D3D12_DESCRIPTOR_RANGE_TYPE_CBV, D3D12_DESCRIPTOR_RANGE_TYPE_SRV, D3D12_DESCRIPTOR_RANGE_TYPE_UAV};
    static const int states[] = {D3D12_RESOURCE_STATE_NON_PIXEL_SHADER_RESOURCE, D3D12_RESOURCE_STATE_UNORDERED_ACCESS, D3D12_RESOURCE_STATE_VERTEX_AND_CONSTANT_BUFFER};
    uint32_t sum = x + y + z;
    Descriptor* place = list->table;
    if (!list->is_open || !list->pipeline) list->device->removed = DEVICE_REMOVED;
    for (int kind = 0; kind < 3; ++kind) {
        for (UINT i = 0; i < list->signature->counts[order[kind]]; ++i, ++place) {
            if (place->type != order[kind]) list->device->removed = DEVICE_REMOVED;
            expect(place->resource, states[place->type]);
            if (kind < 2) sum += place->resource->memory[0];
            else place->resource->memory[0] = sum;
        }
    }
}

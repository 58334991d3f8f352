/* Direct3D 12 on Linux, as dmlc.runtime.d3d12.vkd3d calls it: a device of libvkd3d, its buffers,
 * and compute pipelines with their buffers. Python cannot call the methods of Direct3D's objects by
 * itself: they are called as on Windows (ms_abi). dmlc builds this at first use. A function that
 * fails gives NULL or -1, and `dmlc_message` says why, to its thread.
 *
 * Each copy and each dispatch is a command list of its own, which is waited for. A buffer of the
 * default heap is in the state COMMON before and after it. One thread uses a device at a time.
 */

#define COBJMACROS
#define WIDL_C_INLINE_WRAPPERS
#define INITGUID
#define VKD3D_UTILS_API_VERSION VKD3D_API_VERSION_1_2

#include <vkd3d_utils.h>
#include <vkd3d_shader.h>

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_VIEWS 256 /* of a pipeline; a root signature has room for 31 buffers */
#define EXPORT __attribute__((visibility("default")))

/* What failed, and what libvkd3d has logged since the last call began, as far as there is room. */
static _Thread_local char message[1024];
static _Thread_local char logged[512];

static void keep_log(const char* format, va_list arguments)
{
    const size_t used = strlen(logged);
    vsnprintf(logged + used, sizeof logged - used, format, arguments);
}

static int fail(const char* what, HRESULT status)
{
    snprintf(message, sizeof message, "%s gave 0x%08x%s%s", what, (unsigned)status,
        logged[0] ? ": " : "", logged);
    return -1;
}

#define TRY(what, call)                                                                            \
    do {                                                                                           \
        const HRESULT status_ = (call);                                                            \
        if (FAILED(status_)) {                                                                     \
            return fail(what, status_);                                                            \
        }                                                                                          \
    } while (0)

/* As the structure of the same fields in Python. */
struct facts {
    char name[256];
    char driver[1024];
    uint64_t memory_bytes;
    uint64_t shared_bytes;
    uint32_t vendor_id;
    uint32_t kind; /* VkPhysicalDeviceType */
    uint32_t shader_model; /* 0x60 for 6.0 */
    uint32_t int16;
    uint32_t int64;
    uint32_t float64;
};

struct host {
    ID3D12Device* device;
    ID3D12CommandQueue* queue;
    ID3D12CommandAllocator* allocator;
    ID3D12GraphicsCommandList* list;
    ID3D12DescriptorHeap* descriptors; /* of the pipeline that runs: libvkd3d takes much for each */
    ID3D12Fence* fence;
    HANDLE event;
    UINT64 executed;
};

struct buffer {
    struct host* host;
    ID3D12Resource* resource;
    int heap;
    uint64_t bytes;
    uint32_t stride;
};

struct compute {
    struct host* host;
    ID3D12RootSignature* signature;
    ID3D12PipelineState* pipeline;
    int counts[3]; /* of constants, of what is read, and of what is written */
    struct buffer* buffers[];
};

static const D3D12_HEAP_TYPE heaps[] = {
    D3D12_HEAP_TYPE_DEFAULT, D3D12_HEAP_TYPE_UPLOAD, D3D12_HEAP_TYPE_READBACK};
static const D3D12_RESOURCE_STATES heap_states[] = {D3D12_RESOURCE_STATE_COMMON,
    D3D12_RESOURCE_STATE_GENERIC_READ, D3D12_RESOURCE_STATE_COPY_DEST};
static const D3D12_RESOURCE_STATES view_states[] = {
    D3D12_RESOURCE_STATE_VERTEX_AND_CONSTANT_BUFFER,
    D3D12_RESOURCE_STATE_NON_PIXEL_SHADER_RESOURCE, D3D12_RESOURCE_STATE_UNORDERED_ACCESS};
static const D3D12_DESCRIPTOR_RANGE_TYPE view_types[] = {D3D12_DESCRIPTOR_RANGE_TYPE_CBV,
    D3D12_DESCRIPTOR_RANGE_TYPE_SRV, D3D12_DESCRIPTOR_RANGE_TYPE_UAV};

EXPORT const char* dmlc_message(void)
{
    return message;
}

/* The device --------------------------------------------------------------------------------- */

static void describe_vulkan(ID3D12Device* device, struct facts* facts)
{
    const VkPhysicalDevice adapter = vkd3d_get_vk_physical_device(device);
    VkPhysicalDeviceDriverProperties driver = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_DRIVER_PROPERTIES};
    VkPhysicalDeviceProperties2 properties = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, .pNext = &driver};
    vkGetPhysicalDeviceProperties2(adapter, &properties);
    snprintf(facts->name, sizeof facts->name, "%s", properties.properties.deviceName);
    snprintf(facts->driver, sizeof facts->driver, "%s on %s %s",
        vkd3d_shader_get_version(NULL, NULL), driver.driverName, driver.driverInfo);
    facts->vendor_id = properties.properties.vendorID;
    facts->kind = properties.properties.deviceType;
    VkPhysicalDeviceMemoryProperties memory;
    vkGetPhysicalDeviceMemoryProperties(adapter, &memory);
    for (uint32_t i = 0; i < memory.memoryHeapCount; ++i) {
        const VkMemoryHeap* heap = &memory.memoryHeaps[i];
        const int is_local = (heap->flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT) != 0;
        *(is_local ? &facts->memory_bytes : &facts->shared_bytes) += heap->size;
    }
}

static void describe_features(ID3D12Device* device, struct facts* facts)
{
    /* A version that the runtime does not know is an error: the highest that it knows is looked for
     * downwards. */
    for (unsigned version = 0x68; version >= 0x51 && !facts->shader_model; --version) {
        D3D12_FEATURE_DATA_SHADER_MODEL model = {.HighestShaderModel = version};
        if (SUCCEEDED(ID3D12Device_CheckFeatureSupport(
                device, D3D12_FEATURE_SHADER_MODEL, &model, sizeof model))) {
            facts->shader_model = model.HighestShaderModel;
        }
    }
    D3D12_FEATURE_DATA_D3D12_OPTIONS doubles = {0};
    if (SUCCEEDED(ID3D12Device_CheckFeatureSupport(
            device, D3D12_FEATURE_D3D12_OPTIONS, &doubles, sizeof doubles))) {
        facts->float64 = doubles.DoublePrecisionFloatShaderOps != 0;
    }
    D3D12_FEATURE_DATA_D3D12_OPTIONS1 longs = {0};
    if (SUCCEEDED(ID3D12Device_CheckFeatureSupport(
            device, D3D12_FEATURE_D3D12_OPTIONS1, &longs, sizeof longs))) {
        facts->int64 = longs.Int64ShaderOps != 0;
    }
    D3D12_FEATURE_DATA_D3D12_OPTIONS4 shorts = {0};
    if (SUCCEEDED(ID3D12Device_CheckFeatureSupport(
            device, D3D12_FEATURE_D3D12_OPTIONS4, &shorts, sizeof shorts))) {
        facts->int16 = shorts.Native16BitShaderOpsSupported != 0;
    }
}

static int open_host(struct host* host, struct facts* facts)
{
    TRY("D3D12CreateDevice", D3D12CreateDevice(
        NULL, D3D_FEATURE_LEVEL_11_0, &IID_ID3D12Device, (void**)&host->device));
    describe_vulkan(host->device, facts);
    describe_features(host->device, facts);
    const D3D12_COMMAND_LIST_TYPE type = D3D12_COMMAND_LIST_TYPE_DIRECT;
    const D3D12_COMMAND_QUEUE_DESC queue = {.Type = type};
    TRY("CreateCommandQueue", ID3D12Device_CreateCommandQueue(
        host->device, &queue, &IID_ID3D12CommandQueue, (void**)&host->queue));
    TRY("CreateCommandAllocator", ID3D12Device_CreateCommandAllocator(
        host->device, type, &IID_ID3D12CommandAllocator, (void**)&host->allocator));
    TRY("CreateCommandList",
        ID3D12Device_CreateCommandList(host->device, 0, type, host->allocator, NULL,
            &IID_ID3D12GraphicsCommandList, (void**)&host->list));
    TRY("Close", ID3D12GraphicsCommandList_Close(host->list));
    const D3D12_DESCRIPTOR_HEAP_DESC descriptors = {.Type = D3D12_DESCRIPTOR_HEAP_TYPE_CBV_SRV_UAV,
        .NumDescriptors = MOST_VIEWS,
        .Flags = D3D12_DESCRIPTOR_HEAP_FLAG_SHADER_VISIBLE};
    TRY("CreateDescriptorHeap", ID3D12Device_CreateDescriptorHeap(host->device, &descriptors,
        &IID_ID3D12DescriptorHeap, (void**)&host->descriptors));
    TRY("CreateFence", ID3D12Device_CreateFence(
        host->device, 0, D3D12_FENCE_FLAG_NONE, &IID_ID3D12Fence, (void**)&host->fence));
    host->event = vkd3d_create_event();
    return 0;
}

/* The device that libvkd3d chooses. It lives as long as the process. */
EXPORT struct host* dmlc_open(struct facts* facts)
{
    vkd3d_set_log_callback(keep_log);
    vkd3d_shader_set_log_callback(keep_log);
    logged[0] = 0;
    memset(facts, 0, sizeof *facts);
    struct host* host = calloc(1, sizeof *host);
    if (!host || open_host(host, facts)) {
        free(host);
        return NULL;
    }
    return host;
}

static int begin(struct host* host)
{
    logged[0] = 0;
    TRY("Reset", ID3D12CommandAllocator_Reset(host->allocator));
    TRY("Reset", ID3D12GraphicsCommandList_Reset(host->list, host->allocator, NULL));
    return 0;
}

static int finish(struct host* host)
{
    TRY("Close", ID3D12GraphicsCommandList_Close(host->list));
    ID3D12CommandList* const list = (ID3D12CommandList*)host->list;
    ID3D12CommandQueue_ExecuteCommandLists(host->queue, 1, &list);
    TRY("Signal", ID3D12CommandQueue_Signal(host->queue, host->fence, ++host->executed));
    TRY("SetEventOnCompletion",
        ID3D12Fence_SetEventOnCompletion(host->fence, host->executed, host->event));
    vkd3d_wait_event(host->event, VKD3D_INFINITE);
    TRY("GetDeviceRemovedReason", ID3D12Device_GetDeviceRemovedReason(host->device));
    return 0;
}

/* Buffers ------------------------------------------------------------------------------------ */

/* Of at least so many bytes: whole multiples of 256. `heap` is a number of `heaps`. */
EXPORT struct buffer* dmlc_make_buffer(
    struct host* host, int heap, uint64_t bytes, uint32_t stride)
{
    logged[0] = 0;
    struct buffer* buffer = calloc(1, sizeof *buffer);
    if (!buffer) {
        fail("dmlc_make_buffer", E_OUTOFMEMORY);
        return NULL;
    }
    *buffer = (struct buffer){host, NULL, heap, (bytes + 255) / 256 * 256, stride};
    const D3D12_HEAP_PROPERTIES properties = {.Type = heaps[heap]};
    const D3D12_RESOURCE_DESC description = {
        .Dimension = D3D12_RESOURCE_DIMENSION_BUFFER,
        .Width = buffer->bytes,
        .Height = 1,
        .DepthOrArraySize = 1,
        .MipLevels = 1,
        .SampleDesc = {.Count = 1},
        .Layout = D3D12_TEXTURE_LAYOUT_ROW_MAJOR,
        .Flags = heap ? D3D12_RESOURCE_FLAG_NONE : D3D12_RESOURCE_FLAG_ALLOW_UNORDERED_ACCESS,
    };
    const HRESULT status = ID3D12Device_CreateCommittedResource(host->device, &properties,
        D3D12_HEAP_FLAG_NONE, &description, heap_states[heap], NULL, &IID_ID3D12Resource,
        (void**)&buffer->resource);
    if (FAILED(status)) {
        fail("CreateCommittedResource", status);
        free(buffer);
        return NULL;
    }
    return buffer;
}

EXPORT void dmlc_free_buffer(struct buffer* buffer)
{
    ID3D12Resource_Release(buffer->resource);
    free(buffer);
}

EXPORT uint64_t dmlc_buffer_bytes(const struct buffer* buffer)
{
    return buffer->bytes;
}

EXPORT int dmlc_upload(struct buffer* buffer, const void* values, uint64_t bytes)
{
    void* mapped;
    TRY("Map", ID3D12Resource_Map(buffer->resource, 0, NULL, &mapped));
    memcpy(mapped, values, bytes);
    ID3D12Resource_Unmap(buffer->resource, 0, NULL);
    return 0;
}

EXPORT int dmlc_readback(struct buffer* buffer, void* values, uint64_t bytes)
{
    void* mapped;
    TRY("Map", ID3D12Resource_Map(buffer->resource, 0, NULL, &mapped));
    memcpy(values, mapped, bytes);
    ID3D12Resource_Unmap(buffer->resource, 0, NULL);
    return 0;
}

static void change(struct buffer* buffer, D3D12_RESOURCE_STATES from, D3D12_RESOURCE_STATES to)
{
    if (heaps[buffer->heap] != D3D12_HEAP_TYPE_DEFAULT) {
        return; /* It is in one state for life. */
    }
    D3D12_RESOURCE_BARRIER barrier = {.Type = D3D12_RESOURCE_BARRIER_TYPE_TRANSITION};
    barrier.Transition.pResource = buffer->resource;
    barrier.Transition.Subresource = D3D12_RESOURCE_BARRIER_ALL_SUBRESOURCES;
    barrier.Transition.StateBefore = from;
    barrier.Transition.StateAfter = to;
    ID3D12GraphicsCommandList_ResourceBarrier(buffer->host->list, 1, &barrier);
}

EXPORT int dmlc_copy(struct buffer* source, struct buffer* target)
{
    if (begin(source->host)) {
        return -1;
    }
    change(source, D3D12_RESOURCE_STATE_COMMON, D3D12_RESOURCE_STATE_COPY_SOURCE);
    change(target, D3D12_RESOURCE_STATE_COMMON, D3D12_RESOURCE_STATE_COPY_DEST);
    ID3D12GraphicsCommandList_CopyBufferRegion(
        source->host->list, target->resource, 0, source->resource, 0, source->bytes);
    change(source, D3D12_RESOURCE_STATE_COPY_SOURCE, D3D12_RESOURCE_STATE_COMMON);
    change(target, D3D12_RESOURCE_STATE_COPY_DEST, D3D12_RESOURCE_STATE_COMMON);
    return finish(source->host);
}

/* Pipelines ---------------------------------------------------------------------------------- */

static int find_kind(const struct compute* compute, int number)
{
    return (number >= compute->counts[0]) + (number >= compute->counts[0] + compute->counts[1]);
}

static int count_views(const struct compute* compute)
{
    return compute->counts[0] + compute->counts[1] + compute->counts[2];
}

static void make_view(struct compute* compute, int number, D3D12_CPU_DESCRIPTOR_HANDLE place)
{
    ID3D12Device* const device = compute->host->device;
    const struct buffer* buffer = compute->buffers[number];
    switch (find_kind(compute, number)) {
    case 0: {
        const D3D12_CONSTANT_BUFFER_VIEW_DESC view = {
            ID3D12Resource_GetGPUVirtualAddress(buffer->resource), (UINT)buffer->bytes};
        ID3D12Device_CreateConstantBufferView(device, &view, place);
        break;
    }
    case 1: {
        D3D12_SHADER_RESOURCE_VIEW_DESC view = {.ViewDimension = D3D12_SRV_DIMENSION_BUFFER};
        view.Shader4ComponentMapping = D3D12_DEFAULT_SHADER_4_COMPONENT_MAPPING;
        view.Buffer.NumElements = (UINT)(buffer->bytes / buffer->stride);
        view.Buffer.StructureByteStride = buffer->stride;
        ID3D12Device_CreateShaderResourceView(device, buffer->resource, &view, place);
        break;
    }
    default: {
        D3D12_UNORDERED_ACCESS_VIEW_DESC view = {.ViewDimension = D3D12_UAV_DIMENSION_BUFFER};
        view.Buffer.NumElements = (UINT)(buffer->bytes / buffer->stride);
        view.Buffer.StructureByteStride = buffer->stride;
        ID3D12Device_CreateUnorderedAccessView(device, buffer->resource, NULL, &view, place);
        break;
    }
    }
}

static void make_views(struct compute* compute)
{
    D3D12_CPU_DESCRIPTOR_HANDLE place =
        ID3D12DescriptorHeap_GetCPUDescriptorHandleForHeapStart(compute->host->descriptors);
    const UINT step = ID3D12Device_GetDescriptorHandleIncrementSize(
        compute->host->device, D3D12_DESCRIPTOR_HEAP_TYPE_CBV_SRV_UAV);
    for (int number = 0; number < count_views(compute); ++number, place.ptr += step) {
        make_view(compute, number, place);
    }
}

/* Logs what the translator has to say of a shader, where it has not done so by itself. */
static void log_translation(const void* code, uint64_t bytes)
{
    const struct vkd3d_shader_compile_info info = {
        .type = VKD3D_SHADER_STRUCTURE_TYPE_COMPILE_INFO,
        .source = {code, bytes},
        .source_type = VKD3D_SHADER_SOURCE_DXBC_DXIL,
        .target_type = VKD3D_SHADER_TARGET_NONE,
        .log_level = VKD3D_SHADER_LOG_ERROR,
    };
    char* said = NULL;
    vkd3d_shader_scan(&info, &said);
    if (said) {
        const size_t used = strlen(logged);
        snprintf(logged + used, sizeof logged - used, "%s", said);
        vkd3d_shader_free_messages(said);
    }
}

static int make_pipeline(struct compute* compute, const void* code, uint64_t bytes)
{
    ID3D12Device* const device = compute->host->device;
    D3D12_DESCRIPTOR_RANGE ranges[3];
    UINT count = 0;
    for (int kind = 0; kind < 3; ++kind) {
        if (compute->counts[kind]) {
            ranges[count++] = (D3D12_DESCRIPTOR_RANGE){.RangeType = view_types[kind],
                .NumDescriptors = compute->counts[kind],
                .OffsetInDescriptorsFromTableStart = D3D12_DESCRIPTOR_RANGE_OFFSET_APPEND};
        }
    }
    D3D12_ROOT_PARAMETER table = {.ParameterType = D3D12_ROOT_PARAMETER_TYPE_DESCRIPTOR_TABLE};
    table.DescriptorTable.NumDescriptorRanges = count;
    table.DescriptorTable.pDescriptorRanges = ranges;
    const D3D12_ROOT_SIGNATURE_DESC signature = {
        .NumParameters = count ? 1 : 0, .pParameters = &table};
    ID3DBlob* blob = NULL;
    TRY("D3D12SerializeRootSignature",
        D3D12SerializeRootSignature(&signature, D3D_ROOT_SIGNATURE_VERSION_1, &blob, NULL));
    const HRESULT made = ID3D12Device_CreateRootSignature(device, 0,
        ID3D10Blob_GetBufferPointer(blob), ID3D10Blob_GetBufferSize(blob), &IID_ID3D12RootSignature,
        (void**)&compute->signature);
    ID3D10Blob_Release(blob);
    TRY("CreateRootSignature", made);
    const D3D12_COMPUTE_PIPELINE_STATE_DESC pipeline = {
        .pRootSignature = compute->signature, .CS = {code, bytes}};
    const HRESULT built = ID3D12Device_CreateComputePipelineState(
        device, &pipeline, &IID_ID3D12PipelineState, (void**)&compute->pipeline);
    if (FAILED(built)) {
        log_translation(code, bytes);
    }
    TRY("CreateComputePipelineState", built);
    return 0;
}

EXPORT void dmlc_free_compute(struct compute* compute)
{
    if (compute->pipeline) {
        ID3D12PipelineState_Release(compute->pipeline);
    }
    if (compute->signature) {
        ID3D12RootSignature_Release(compute->signature);
    }
    free(compute);
}

/* A pipeline of a DXIL container, with its buffers: constants, what is read, what is written, each
 * in the order of their registers. The buffers are the caller's, and live longer. */
EXPORT struct compute* dmlc_make_compute(struct host* host, const void* code, uint64_t bytes,
    int constants, int read, int written, struct buffer* const* buffers)
{
    logged[0] = 0;
    const size_t views = sizeof *buffers * (size_t)(constants + read + written);
    struct compute* compute = calloc(1, sizeof *compute + views);
    if (!compute || constants + read + written > MOST_VIEWS) {
        fail("dmlc_make_compute", E_INVALIDARG);
        free(compute);
        return NULL;
    }
    compute->host = host;
    compute->counts[0] = constants;
    compute->counts[1] = read;
    compute->counts[2] = written;
    memcpy(compute->buffers, buffers, views);
    if (make_pipeline(compute, code, bytes)) {
        dmlc_free_compute(compute);
        return NULL;
    }
    return compute;
}

static void change_all(struct compute* compute, int is_before)
{
    for (int number = 0; number < count_views(compute); ++number) {
        struct buffer* const buffer = compute->buffers[number];
        int is_first = 1;
        for (int other = 0; other < number; ++other) {
            is_first &= compute->buffers[other] != buffer;
        }
        const D3D12_RESOURCE_STATES state = view_states[find_kind(compute, number)];
        const D3D12_RESOURCE_STATES common = D3D12_RESOURCE_STATE_COMMON;
        if (is_first) {
            change(buffer, is_before ? common : state, is_before ? state : common);
        }
    }
}

EXPORT int dmlc_dispatch(struct compute* compute, unsigned x, unsigned y, unsigned z)
{
    ID3D12GraphicsCommandList* const list = compute->host->list;
    if (begin(compute->host)) {
        return -1;
    }
    make_views(compute);
    change_all(compute, 1);
    ID3D12GraphicsCommandList_SetDescriptorHeaps(list, 1, &compute->host->descriptors);
    ID3D12GraphicsCommandList_SetComputeRootSignature(list, compute->signature);
    ID3D12GraphicsCommandList_SetPipelineState(list, compute->pipeline);
    if (count_views(compute)) {
        ID3D12GraphicsCommandList_SetComputeRootDescriptorTable(list, 0,
            ID3D12DescriptorHeap_GetGPUDescriptorHandleForHeapStart(compute->host->descriptors));
    }
    ID3D12GraphicsCommandList_Dispatch(list, x, y, z);
    change_all(compute, 0);
    return finish(compute->host);
}

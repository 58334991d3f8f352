// A Direct3D 12 that records what a host does, and ends the program at the first mistake.
//
// It knows what the runtime and its debug layer know: which root arguments a dispatch takes, in which
// state each buffer is, and whether a barrier names the state that the buffer is in. Each barrier and
// each dispatch is told as a line on standard output. Copies are made in host memory. A dispatch is
// computed by whoever holds the other ends of the pipes that DMLC_MOCK_RUNNER names; without it,
// nothing is computed.

#pragma once

#include "stubs.hpp"
#include "uuids.hpp"

#include <unistd.h>

#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace mock {

[[noreturn]] inline void fail(const char* format, ...)
{
    std::va_list arguments;
    va_start(arguments, format);
    std::fputs("mock: ", stderr);
    std::vfprintf(stderr, format, arguments);
    std::fputs("\n", stderr);
    va_end(arguments);
    std::exit(1);
}

// A class of the stubs with a count of references.
template <class Stub>
struct Counted : Stub
{
    ULONG references = 1;

    virtual ~Counted() = default;
    HRESULT QueryInterface(REFIID, void**) override { fail("QueryInterface is not expected"); }
    ULONG AddRef() override { return ++references; }
    ULONG Release() override
    {
        const ULONG left = --references;
        if (left == 0) {
            delete this;
        }
        return left;
    }
};

// Gives an object as the interface that is asked for, which has to be this one.
template <class Interface>
HRESULT give(Interface* made, REFIID asked, void** where)
{
    if (std::memcmp(&asked, &identity<Interface>, sizeof asked) != 0) {
        fail("another interface is asked for than the one that is made");
    }
    *where = made;
    return S_OK;
}

// Buffers ----------------------------------------------------------------------------------------

struct Resource : Counted<StubID3D12Resource>
{
    static inline std::vector<Resource*> all;

    std::size_t number = all.size();
    std::vector<unsigned char> memory;
    D3D12_HEAP_TYPE heap;
    bool unordered;
    D3D12_RESOURCE_STATES state;

    Resource(std::size_t bytes, D3D12_HEAP_TYPE heap_type, bool allows_unordered,
        D3D12_RESOURCE_STATES first)
        : memory(bytes, 0xcd), heap(heap_type), unordered(allows_unordered), state(first)
    {
        all.push_back(this);
    }
    ~Resource() override { all[number] = nullptr; }

    D3D12_GPU_VIRTUAL_ADDRESS GetGPUVirtualAddress() override
    {
        return (static_cast<D3D12_GPU_VIRTUAL_ADDRESS>(number) + 1) << 40;
    }
    HRESULT Map(UINT, const D3D12_RANGE*, void** data) override
    {
        if (heap == D3D12_HEAP_TYPE_DEFAULT) {
            fail("a buffer of the default heap is mapped");
        }
        *data = memory.data();
        return S_OK;
    }
    void Unmap(UINT, const D3D12_RANGE*) override {}

    // Goes into a state if it is in it, or in COMMON.
    void use(D3D12_RESOURCE_STATES wanted, const char* what)
    {
        if (state == D3D12_RESOURCE_STATE_COMMON) {
            state = wanted;
        }
        if ((state & wanted) != wanted) {
            fail("buffer %zu is %s in state 0x%x", number, what, static_cast<unsigned>(state));
        }
    }

    static Resource& find(D3D12_GPU_VIRTUAL_ADDRESS address)
    {
        const std::size_t place = static_cast<std::size_t>(address >> 40) - 1;
        if (place >= all.size() || all[place] == nullptr) {
            fail("a root argument is no address of a buffer");
        }
        return *all[place];
    }
};

// Pipelines --------------------------------------------------------------------------------------

struct Parameter
{
    D3D12_ROOT_PARAMETER_TYPE type;
    UINT shader_register;
    UINT count;
};

struct Blob : Counted<StubID3D10Blob>
{
    std::vector<Parameter> parameters;

    LPVOID GetBufferPointer() override { return parameters.data(); }
    SIZE_T GetBufferSize() override { return parameters.size() * sizeof(Parameter); }
};

struct RootSignature : Counted<StubID3D12RootSignature>
{
    std::vector<Parameter> parameters;
};

struct PipelineState : Counted<StubID3D12PipelineState>
{
    const RootSignature* root_signature = nullptr;
    std::string shader;
};

// Recording --------------------------------------------------------------------------------------

// A view of a launch, by its register: `t0`, `u1`.
struct View
{
    std::string place;
    Resource* resource;
    std::size_t offset;
};

struct Launch
{
    std::string shader;
    UINT groups[3];
    std::vector<std::uint32_t> constants;
    std::vector<View> views;
};

// Has a launch computed at the other ends of two pipes.
inline void compute(const Launch& launch)
{
    static int ends[2] = {-1, -1};
    if (ends[0] < 0) {
        const char* named = std::getenv("DMLC_MOCK_RUNNER");
        if (named == nullptr || std::sscanf(named, "%d,%d", &ends[0], &ends[1]) != 2) {
            return;
        }
    }
    const auto move = [](auto step, int end, auto* data, std::size_t bytes) {
        for (std::size_t done = 0; done < bytes;) {
            const auto moved = step(end, data + done, bytes - done);
            if (moved <= 0) {
                fail("the runner is gone");
            }
            done += static_cast<std::size_t>(moved);
        }
    };
    std::string head = std::to_string(launch.shader.size());
    for (const UINT groups : launch.groups) {
        head += " " + std::to_string(groups);
    }
    head += " " + std::to_string(launch.constants.size()) + " " + std::to_string(launch.views.size());
    for (const View& view : launch.views) {
        head += " " + view.place + " " + std::to_string(view.resource->memory.size() - view.offset);
    }
    head += "\n";
    move(::write, ends[1], head.data(), head.size());
    move(::write, ends[1], launch.shader.data(), launch.shader.size());
    move(::write, ends[1], reinterpret_cast<const char*>(launch.constants.data()),
        4 * launch.constants.size());
    for (const View& view : launch.views) {
        move(::write, ends[1], view.resource->memory.data() + view.offset,
            view.resource->memory.size() - view.offset);
    }
    for (const View& view : launch.views) {
        if (view.place[0] == 'u') {
            move(::read, ends[0], view.resource->memory.data() + view.offset,
                view.resource->memory.size() - view.offset);
        }
    }
}

struct CommandList : Counted<StubID3D12GraphicsCommandList>
{
    std::vector<std::function<void()>> commands;
    const RootSignature* root_signature = nullptr;
    const PipelineState* pipeline = nullptr;
    std::map<UINT, std::vector<std::uint32_t>> constants;
    std::map<UINT, D3D12_GPU_VIRTUAL_ADDRESS> views;

    HRESULT Close() override { return S_OK; }
    HRESULT Reset(ID3D12CommandAllocator*, ID3D12PipelineState*) override
    {
        commands.clear();
        root_signature = nullptr;
        pipeline = nullptr;
        return S_OK;
    }
    void CopyBufferRegion(ID3D12Resource* to, UINT64 at, ID3D12Resource* from, UINT64 begin,
        UINT64 bytes) override
    {
        Resource& target = *static_cast<Resource*>(to);
        Resource& source = *static_cast<Resource*>(from);
        target.use(D3D12_RESOURCE_STATE_COPY_DEST, "copied into");
        source.use(D3D12_RESOURCE_STATE_COPY_SOURCE, "copied from");
        if (at + bytes > target.memory.size() || begin + bytes > source.memory.size()) {
            fail("a copy leaves its buffer");
        }
        commands.emplace_back([&target, &source, at, begin, bytes] {
            std::memcpy(target.memory.data() + at, source.memory.data() + begin, bytes);
        });
    }
    void SetComputeRootSignature(ID3D12RootSignature* signature) override
    {
        root_signature = static_cast<RootSignature*>(signature);
        constants.clear();
        views.clear();
    }
    void SetPipelineState(ID3D12PipelineState* state) override
    {
        pipeline = static_cast<PipelineState*>(state);
    }
    const Parameter& take(UINT number, D3D12_ROOT_PARAMETER_TYPE type) const
    {
        if (root_signature == nullptr || number >= root_signature->parameters.size()
            || root_signature->parameters[number].type != type) {
            fail("root argument %u is not of the root signature", number);
        }
        return root_signature->parameters[number];
    }
    void SetComputeRoot32BitConstants(UINT number, UINT count, const void* data, UINT at) override
    {
        const Parameter& parameter = take(number, D3D12_ROOT_PARAMETER_TYPE_32BIT_CONSTANTS);
        if (at != 0 || count != parameter.count) {
            fail("root argument %u has %u constants, not %u", number, count, parameter.count);
        }
        const auto* words = static_cast<const std::uint32_t*>(data);
        constants[number].assign(words, words + count);
    }
    void SetComputeRootShaderResourceView(UINT number, D3D12_GPU_VIRTUAL_ADDRESS address) override
    {
        take(number, D3D12_ROOT_PARAMETER_TYPE_SRV);
        views[number] = address;
    }
    void SetComputeRootUnorderedAccessView(UINT number, D3D12_GPU_VIRTUAL_ADDRESS address) override
    {
        take(number, D3D12_ROOT_PARAMETER_TYPE_UAV);
        views[number] = address;
    }
    void ResourceBarrier(UINT count, const D3D12_RESOURCE_BARRIER* barriers) override
    {
        for (const D3D12_RESOURCE_BARRIER* each = barriers; each != barriers + count; ++each) {
            if (each->Type == D3D12_RESOURCE_BARRIER_TYPE_UAV) {
                std::printf("barrier %zu\n", static_cast<Resource*>(each->UAV.pResource)->number);
                continue;
            }
            if (each->Type != D3D12_RESOURCE_BARRIER_TYPE_TRANSITION) {
                fail("a barrier of an unexpected type");
            }
            Resource& resource = *static_cast<Resource*>(each->Transition.pResource);
            if (resource.state != each->Transition.StateBefore) {
                fail("buffer %zu is in state 0x%x, and a barrier says 0x%x", resource.number,
                    static_cast<unsigned>(resource.state),
                    static_cast<unsigned>(each->Transition.StateBefore));
            }
            resource.state = each->Transition.StateAfter;
            std::printf("barrier %zu\n", resource.number);
        }
    }
    void Dispatch(UINT x, UINT y, UINT z) override
    {
        if (pipeline == nullptr || root_signature != pipeline->root_signature) {
            fail("the root signature is not the pipeline's");
        }
        Launch launch = {pipeline->shader, {x, y, z}, {}, {}};
        for (UINT number = 0; number < root_signature->parameters.size(); ++number) {
            const Parameter& parameter = root_signature->parameters[number];
            if (parameter.type == D3D12_ROOT_PARAMETER_TYPE_32BIT_CONSTANTS) {
                launch.constants = constants.at(number);
                continue;
            }
            const bool stored = parameter.type == D3D12_ROOT_PARAMETER_TYPE_UAV;
            const D3D12_GPU_VIRTUAL_ADDRESS address = views.at(number);
            Resource& resource = Resource::find(address);
            if (stored && !resource.unordered) {
                fail("buffer %zu allows no unordered access", resource.number);
            }
            resource.use(stored ? D3D12_RESOURCE_STATE_UNORDERED_ACCESS
                                : D3D12_RESOURCE_STATE_NON_PIXEL_SHADER_RESOURCE,
                stored ? "stored" : "read");
            const std::size_t offset = address - resource.GetGPUVirtualAddress();
            const std::string place = (stored ? "u" : "t") + std::to_string(parameter.shader_register);
            launch.views.push_back({place, &resource, offset});
        }
        std::printf("dispatch %s %u %u %u", launch.shader.size() < 100 ? launch.shader.c_str() : "-",
            x, y, z);
        for (const std::uint32_t word : launch.constants) {
            std::printf(" %u", word);
        }
        for (const View& view : launch.views) {
            std::printf(" %s=%zu+%zu", view.place.c_str(), view.resource->number, view.offset);
        }
        std::printf("\n");
        commands.emplace_back([launch] { compute(launch); });
    }
};

// The device -------------------------------------------------------------------------------------

struct Fence : Counted<StubID3D12Fence>
{
    UINT64 value = 0;

    UINT64 GetCompletedValue() override { return value; }
    HRESULT SetEventOnCompletion(UINT64 awaited, HANDLE event) override
    {
        if (event != nullptr || value < awaited) {
            fail("a fence is waited for that nothing signals");
        }
        return S_OK;
    }
};

struct Queue : Counted<StubID3D12CommandQueue>
{
    void ExecuteCommandLists(UINT count, ID3D12CommandList* const* lists) override
    {
        for (UINT number = 0; number < count; ++number) {
            for (const auto& command : static_cast<CommandList*>(lists[number])->commands) {
                command();
            }
        }
        for (Resource* resource : Resource::all) {
            if (resource != nullptr && resource->heap == D3D12_HEAP_TYPE_DEFAULT) {
                resource->state = D3D12_RESOURCE_STATE_COMMON; // as buffers decay
            }
        }
    }
    HRESULT Signal(ID3D12Fence* fence, UINT64 value) override
    {
        static_cast<Fence*>(fence)->value = value;
        return S_OK;
    }
};

struct Device : Counted<StubID3D12Device>
{
    HRESULT CheckFeatureSupport(D3D12_FEATURE feature, void* data, UINT bytes) override
    {
        if (feature != D3D12_FEATURE_SHADER_MODEL) {
            std::memset(data, 0xff, bytes); // It has everything.
        }
        return S_OK;
    }
    HRESULT GetDeviceRemovedReason() override { return S_OK; }
    HRESULT CreateRootSignature(UINT, const void* data, SIZE_T bytes, REFIID asked, void** made) override
    {
        auto* signature = new RootSignature;
        const auto* parameters = static_cast<const Parameter*>(data);
        signature->parameters.assign(parameters, parameters + bytes / sizeof(Parameter));
        return give(static_cast<ID3D12RootSignature*>(signature), asked, made);
    }
    HRESULT CreateComputePipelineState(const D3D12_COMPUTE_PIPELINE_STATE_DESC* description, REFIID asked,
        void** made) override
    {
        auto* state = new PipelineState;
        state->root_signature = static_cast<RootSignature*>(description->pRootSignature);
        state->shader.assign(static_cast<const char*>(description->CS.pShaderBytecode),
            description->CS.BytecodeLength);
        return give(static_cast<ID3D12PipelineState*>(state), asked, made);
    }
    HRESULT CreateCommandQueue(const D3D12_COMMAND_QUEUE_DESC*, REFIID asked, void** made) override
    {
        return give(static_cast<ID3D12CommandQueue*>(new Queue), asked, made);
    }
    HRESULT CreateCommandAllocator(D3D12_COMMAND_LIST_TYPE, REFIID asked, void** made) override;
    HRESULT CreateCommandList(UINT, D3D12_COMMAND_LIST_TYPE, ID3D12CommandAllocator*,
        ID3D12PipelineState*, REFIID asked, void** made) override
    {
        return give(static_cast<ID3D12GraphicsCommandList*>(new CommandList), asked, made);
    }
    HRESULT CreateFence(UINT64, D3D12_FENCE_FLAGS, REFIID asked, void** made) override
    {
        return give(static_cast<ID3D12Fence*>(new Fence), asked, made);
    }
    HRESULT CreateCommittedResource(const D3D12_HEAP_PROPERTIES* heap, D3D12_HEAP_FLAGS,
        const D3D12_RESOURCE_DESC* description, D3D12_RESOURCE_STATES state,
        const D3D12_CLEAR_VALUE*, REFIID asked, void** made) override
    {
        if (description->Dimension != D3D12_RESOURCE_DIMENSION_BUFFER || description->Width == 0) {
            fail("this is no buffer");
        }
        const bool unordered = description->Flags & D3D12_RESOURCE_FLAG_ALLOW_UNORDERED_ACCESS;
        auto* resource = new Resource(description->Width, heap->Type, unordered, state);
        return give(static_cast<ID3D12Resource*>(resource), asked, made);
    }
};

struct Allocator : Counted<StubID3D12CommandAllocator>
{
    HRESULT Reset() override { return S_OK; }
};

inline HRESULT Device::CreateCommandAllocator(D3D12_COMMAND_LIST_TYPE, REFIID asked, void** made)
{
    return give(static_cast<ID3D12CommandAllocator*>(new Allocator), asked, made);
}

} // namespace mock

void unexpected(const char* function) { mock::fail("%s is not expected", function); }

extern "C" HRESULT D3D12CreateDevice(IUnknown*, D3D_FEATURE_LEVEL, REFIID asked, void** made)
{
    return mock::give(static_cast<ID3D12Device*>(new mock::Device), asked, made);
}

extern "C" HRESULT D3D12SerializeRootSignature(const D3D12_ROOT_SIGNATURE_DESC* description,
    D3D_ROOT_SIGNATURE_VERSION, ID3DBlob** blob, ID3DBlob**)
{
    auto* made = new mock::Blob;
    for (UINT number = 0; number < description->NumParameters; ++number) {
        const D3D12_ROOT_PARAMETER& each = description->pParameters[number];
        const bool constants = each.ParameterType == D3D12_ROOT_PARAMETER_TYPE_32BIT_CONSTANTS;
        made->parameters.push_back({each.ParameterType,
            constants ? each.Constants.ShaderRegister : each.Descriptor.ShaderRegister,
            constants ? each.Constants.Num32BitValues : 0});
    }
    *blob = made;
    return S_OK;
}

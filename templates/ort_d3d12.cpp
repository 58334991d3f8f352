// The device of a plug-in for ONNX Runtime by Direct3D 12: the first adapter; on Windows
// DMLC_D3D12_DEVICE names another one by a part of its name. On Linux there is the one that vkd3d
// chooses.

#include "dmlc_d3d12.hpp"

#ifdef _WIN32
#include <dxgi1_4.h>
#endif

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>

namespace {

using namespace dmlc_plugin;

void check(HRESULT status, const std::string& doing)
{
    if (FAILED(status)) {
        char code[16];
        std::snprintf(code, sizeof code, "0x%08x", static_cast<unsigned>(status));
        throw std::runtime_error(doing + " failed with the Direct3D 12 error " + code);
    }
}

struct Release
{
    void operator()(IUnknown* object) const { object->Release(); }
};

template <class Interface>
using Owned = std::unique_ptr<Interface, Release>;

// What a function of Direct3D 12 makes, by its last two parameters.
template <class Interface, class Make>
Owned<Interface> make(const std::string& doing, const Make& call)
{
    Interface* made = nullptr;
    check(call(&made), doing);
    return Owned<Interface>(made);
}

#ifdef _WIN32

using Adapter = Owned<IDXGIAdapter1>;

std::string read_name(IDXGIAdapter1* adapter)
{
    DXGI_ADAPTER_DESC1 description = {};
    check(adapter->GetDesc1(&description), "IDXGIAdapter1::GetDesc1");
    char name[4 * sizeof description.Description / sizeof *description.Description] = {};
    WideCharToMultiByte(CP_UTF8, 0, description.Description, -1, name, sizeof name - 1, nullptr,
        nullptr);
    return name;
}

// The adapter that the environment names; null for the first.
Adapter choose_adapter()
{
    const char* wanted = std::getenv("DMLC_D3D12_DEVICE");
    if (wanted == nullptr || *wanted == '\0') {
        return nullptr;
    }
    const auto factory = make<IDXGIFactory1>("CreateDXGIFactory1",
        [](IDXGIFactory1** made) { return CreateDXGIFactory1(IID_PPV_ARGS(made)); });
    std::string names;
    IDXGIAdapter1* found = nullptr;
    for (UINT number = 0; SUCCEEDED(factory->EnumAdapters1(number, &found)); ++number) {
        Adapter adapter(found);
        const std::string name = read_name(adapter.get());
        if (name.find(wanted) != std::string::npos) {
            return adapter;
        }
        names += (names.empty() ? "'" : ", '") + name + "'";
    }
    throw std::runtime_error("DMLC_D3D12_DEVICE is '" + std::string(wanted)
        + "', and no adapter has that in its name: there are " + names);
}

#else

using Adapter = Owned<IUnknown>;

Adapter choose_adapter() { return nullptr; }

#endif

// The device of all operators. It lives as long as the process.
struct Device
{
    Owned<ID3D12Device> device;
    Owned<ID3D12CommandQueue> queue;

    Device()
    {
        const Adapter adapter = choose_adapter();
        ID3D12Device* found = nullptr;
        const HRESULT status = D3D12CreateDevice(adapter.get(), D3D_FEATURE_LEVEL_11_0,
            IID_PPV_ARGS(&found));
        if (FAILED(status)) {
            throw std::runtime_error("there is no Direct3D 12 device on this machine: install a "
                                     "driver for it");
        }
        device.reset(found);
        D3D12_COMMAND_QUEUE_DESC description = {};
        description.Type = D3D12_COMMAND_LIST_TYPE_COMPUTE;
        queue = make<ID3D12CommandQueue>("CreateCommandQueue", [&](ID3D12CommandQueue** made) {
            return device->CreateCommandQueue(&description, IID_PPV_ARGS(made));
        });
    }

    Owned<ID3D12Resource> make_buffer(const Tensor& tensor, D3D12_HEAP_TYPE type,
        D3D12_RESOURCE_STATES state)
    {
        D3D12_HEAP_PROPERTIES heap = {};
        heap.Type = type;
        D3D12_RESOURCE_DESC description = {};
        description.Dimension = D3D12_RESOURCE_DIMENSION_BUFFER;
        description.Width = tensor.bytes < 4 ? 4 : tensor.bytes;
        description.Height = 1;
        description.DepthOrArraySize = 1;
        description.MipLevels = 1;
        description.SampleDesc.Count = 1;
        description.Layout = D3D12_TEXTURE_LAYOUT_ROW_MAJOR;
        if (type == D3D12_HEAP_TYPE_DEFAULT) {
            description.Flags = D3D12_RESOURCE_FLAG_ALLOW_UNORDERED_ACCESS;
        }
        const std::string doing = std::string("making a buffer of ")
            + std::to_string(tensor.bytes) + " bytes for " + tensor.name;
        return make<ID3D12Resource>(doing, [&](ID3D12Resource** made) {
            return device->CreateCommittedResource(&heap, D3D12_HEAP_FLAG_NONE, &description, state,
                nullptr, IID_PPV_ARGS(made));
        });
    }
};

Device& open_device()
{
    static Device& device = *new Device;
    return device;
}

// A buffer, and the memory that the host writes or reads in its place.
struct Buffer
{
    Owned<ID3D12Resource> own;
    Owned<ID3D12Resource> staged; // null for scratch
    void* mapped = nullptr;
};

// A copy for the host that is made when a run is done.
struct Reading
{
    void* to;
    const void* from;
    std::size_t bytes;
};

class D3d12Runner final : public Runner
{
public:
    explicit D3d12Runner(std::unique_ptr<D3d12Program> program)
        : device_(open_device()), program_(std::move(program)), shapes_(program_->shapes())
    {
        ID3D12Device* const device = device_.device.get();
        if (!program_->is_supported(device)) {
            throw std::runtime_error(std::string("the kernels need ") + program_->needs()
                + ", which the Direct3D 12 device does not have");
        }
        check(program_->create_pipelines(device), "making the pipelines");
        const D3D12_COMMAND_LIST_TYPE type = D3D12_COMMAND_LIST_TYPE_COMPUTE;
        allocator_ = make<ID3D12CommandAllocator>("CreateCommandAllocator",
            [&](ID3D12CommandAllocator** made) {
                return device->CreateCommandAllocator(type, IID_PPV_ARGS(made));
            });
        list_ = make<ID3D12GraphicsCommandList>("CreateCommandList",
            [&](ID3D12GraphicsCommandList** made) {
                return device->CreateCommandList(0, type, allocator_.get(), nullptr,
                    IID_PPV_ARGS(made));
            });
        fence_ = make<ID3D12Fence>("CreateFence", [&](ID3D12Fence** made) {
            return device->CreateFence(0, D3D12_FENCE_FLAG_NONE, IID_PPV_ARGS(made));
        });
    }

    const Shapes& shapes() const override { return shapes_; }

    void make_buffers(const std::vector<Tensor>& tensors, const std::uint64_t*) override
    {
        buffers_.clear();
        resources_.clear();
        bool has_constants = false;
        for (const Tensor& tensor : tensors) {
            Buffer buffer;
            buffer.own = device_.make_buffer(tensor, D3D12_HEAP_TYPE_DEFAULT,
                D3D12_RESOURCE_STATE_COMMON);
            if (tensor.role == Role::output) {
                buffer.staged = device_.make_buffer(tensor, D3D12_HEAP_TYPE_READBACK,
                    D3D12_RESOURCE_STATE_COPY_DEST);
            } else if (tensor.role != Role::scratch) {
                buffer.staged = device_.make_buffer(tensor, D3D12_HEAP_TYPE_UPLOAD,
                    D3D12_RESOURCE_STATE_GENERIC_READ);
            }
            if (buffer.staged != nullptr) {
                check(buffer.staged->Map(0, nullptr, &buffer.mapped), "ID3D12Resource::Map");
            }
            resources_.push_back(buffer.own.get());
            buffers_.push_back(std::move(buffer));
            if (tensor.values != nullptr) {
                write(buffers_.size() - 1, tensor.values, tensor.value_bytes);
                has_constants = true;
            }
        }
        if (has_constants) {
            finish();
        }
    }

    void write(std::size_t slot, const void* data, std::size_t bytes) override
    {
        open();
        const Buffer& buffer = buffers_[slot];
        std::memcpy(buffer.mapped, data, bytes);
        list_->CopyBufferRegion(buffer.own.get(), 0, buffer.staged.get(), 0, bytes);
        change(slot, D3D12_RESOURCE_STATE_COPY_DEST, program_->state(slot));
    }

    void launch(const std::uint64_t* sizes) override
    {
        open();
        check(program_->record(list_.get(), resources_, sizes), "recording the kernels");
    }

    void read(std::size_t slot, void* data, std::size_t bytes) override
    {
        const Buffer& buffer = buffers_[slot];
        change(slot, program_->state(slot), D3D12_RESOURCE_STATE_COPY_SOURCE);
        list_->CopyBufferRegion(buffer.staged.get(), 0, buffer.own.get(), 0, bytes);
        readings_.push_back({data, buffer.mapped, bytes});
    }

    void finish() override
    {
        is_open_ = false;
        check(list_->Close(), "ID3D12GraphicsCommandList::Close");
        ID3D12CommandList* const lists[] = {list_.get()};
        device_.queue->ExecuteCommandLists(1, lists);
        check(device_.queue->Signal(fence_.get(), ++runs_), "ID3D12CommandQueue::Signal");
        // Without an event, this waits.
        check(fence_->SetEventOnCompletion(runs_, nullptr), "ID3D12Fence::SetEventOnCompletion");
        check(device_.device->GetDeviceRemovedReason(), "the run");
        for (const Reading& each : readings_) {
            std::memcpy(each.to, each.from, each.bytes);
        }
        readings_.clear();
    }

    void abandon() noexcept override
    {
        readings_.clear();
        if (is_open_) {
            is_open_ = false;
            list_->Close();
        }
    }

private:
    // Begins a run. Buffers are in the state COMMON then, as they are after each list.
    void open()
    {
        if (!is_open_) {
            check(allocator_->Reset(), "ID3D12CommandAllocator::Reset");
            check(list_->Reset(allocator_.get(), nullptr), "ID3D12GraphicsCommandList::Reset");
            is_open_ = true;
        }
    }

    void change(std::size_t slot, D3D12_RESOURCE_STATES before, D3D12_RESOURCE_STATES after)
    {
        D3D12_RESOURCE_BARRIER barrier = {};
        barrier.Type = D3D12_RESOURCE_BARRIER_TYPE_TRANSITION;
        barrier.Transition.pResource = resources_[slot];
        barrier.Transition.Subresource = D3D12_RESOURCE_BARRIER_ALL_SUBRESOURCES;
        barrier.Transition.StateBefore = before;
        barrier.Transition.StateAfter = after;
        list_->ResourceBarrier(1, &barrier);
    }

    Device& device_;
    std::unique_ptr<D3d12Program> program_;
    Shapes shapes_;
    Owned<ID3D12CommandAllocator> allocator_;
    Owned<ID3D12GraphicsCommandList> list_;
    Owned<ID3D12Fence> fence_;
    std::uint64_t runs_ = 0;
    bool is_open_ = true; // whether the list takes commands
    std::vector<Buffer> buffers_;
    std::vector<ID3D12Resource*> resources_;
    std::vector<Reading> readings_;
};

} // namespace

std::unique_ptr<Runner> dmlc_plugin::run_d3d12(std::unique_ptr<D3d12Program> program)
{
    return std::make_unique<D3d12Runner>(std::move(program));
}

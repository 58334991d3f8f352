// Runs two programs of dmlc on a Direct3D 12 device, and compares what they give with the same
// computed here, on the CPU.
//
//     d3d12_example [FOLDER]
//
// FOLDER holds the compiled kernels, NAME.dxil; without it, they are in the working folder.

#include <d3d12.h>
#include <wrl/client.h>

#include "ACTIVATION_RELU_GRAD.hpp"
#include "relu_bias_backward.hpp"

#include <cmath>
#include <cstdio>
#include <cstring>
#include <exception>
#include <fstream>
#include <iterator>
#include <map>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

namespace relu = dmlc::ACTIVATION_RELU_GRAD;
namespace layer = dmlc::relu_bias_backward;

namespace {

using Microsoft::WRL::ComPtr;

// Tensors by name. All of them are FLOAT32 and packed here.
using Arrays = std::map<std::string, std::vector<float>>;

void check(HRESULT status, const char* what)
{
    if (FAILED(status)) {
        char text[32];
        std::snprintf(text, sizeof text, " failed: 0x%08x", static_cast<unsigned>(status));
        throw std::runtime_error(what + std::string(text));
    }
}

// A device, a queue for compute, and a list that is executed and begun anew.
class Gpu
{
public:
    ComPtr<ID3D12Device> device;
    ComPtr<ID3D12GraphicsCommandList> list;

    Gpu()
    {
        const D3D12_COMMAND_LIST_TYPE type = D3D12_COMMAND_LIST_TYPE_COMPUTE;
        check(D3D12CreateDevice(nullptr, D3D_FEATURE_LEVEL_11_0, IID_PPV_ARGS(&device)),
            "D3D12CreateDevice");
        D3D12_COMMAND_QUEUE_DESC description = {};
        description.Type = type;
        check(device->CreateCommandQueue(&description, IID_PPV_ARGS(&queue_)), "CreateCommandQueue");
        check(device->CreateCommandAllocator(type, IID_PPV_ARGS(&allocator_)),
            "CreateCommandAllocator");
        check(device->CreateCommandList(0, type, allocator_.Get(), nullptr, IID_PPV_ARGS(&list)),
            "CreateCommandList");
        check(device->CreateFence(0, D3D12_FENCE_FLAG_NONE, IID_PPV_ARGS(&fence_)), "CreateFence");
    }

    void execute()
    {
        check(list->Close(), "ID3D12GraphicsCommandList::Close");
        ID3D12CommandList* const lists[] = {list.Get()};
        queue_->ExecuteCommandLists(1, lists);
        check(queue_->Signal(fence_.Get(), ++executed_), "ID3D12CommandQueue::Signal");
        // Without an event, this waits.
        check(fence_->SetEventOnCompletion(executed_, nullptr), "SetEventOnCompletion");
        check(allocator_->Reset(), "ID3D12CommandAllocator::Reset");
        check(list->Reset(allocator_.Get(), nullptr), "ID3D12GraphicsCommandList::Reset");
    }

    ComPtr<ID3D12Resource> make_buffer(std::uint64_t bytes, D3D12_HEAP_TYPE type)
    {
        D3D12_HEAP_PROPERTIES heap = {};
        heap.Type = type;
        D3D12_RESOURCE_DESC description = {};
        description.Dimension = D3D12_RESOURCE_DIMENSION_BUFFER;
        description.Width = bytes;
        description.Height = 1;
        description.DepthOrArraySize = 1;
        description.MipLevels = 1;
        description.SampleDesc.Count = 1;
        description.Layout = D3D12_TEXTURE_LAYOUT_ROW_MAJOR;
        D3D12_RESOURCE_STATES state = D3D12_RESOURCE_STATE_COMMON;
        switch (type) {
        case D3D12_HEAP_TYPE_UPLOAD:
            state = D3D12_RESOURCE_STATE_GENERIC_READ;
            break;
        case D3D12_HEAP_TYPE_READBACK:
            state = D3D12_RESOURCE_STATE_COPY_DEST;
            break;
        default:
            description.Flags = D3D12_RESOURCE_FLAG_ALLOW_UNORDERED_ACCESS;
            break;
        }
        ComPtr<ID3D12Resource> made;
        check(device->CreateCommittedResource(&heap, D3D12_HEAP_FLAG_NONE, &description, state,
                  nullptr, IID_PPV_ARGS(&made)),
            "CreateCommittedResource");
        return made;
    }

    void upload(ID3D12Resource* buffer, const void* values, std::size_t bytes)
    {
        const ComPtr<ID3D12Resource> staging = make_buffer(bytes, D3D12_HEAP_TYPE_UPLOAD);
        void* mapped = nullptr;
        check(staging->Map(0, nullptr, &mapped), "ID3D12Resource::Map");
        std::memcpy(mapped, values, bytes);
        staging->Unmap(0, nullptr);
        list->CopyBufferRegion(buffer, 0, staging.Get(), 0, bytes);
        execute();
    }

    void download(ID3D12Resource* buffer, void* values, std::size_t bytes)
    {
        const ComPtr<ID3D12Resource> staging = make_buffer(bytes, D3D12_HEAP_TYPE_READBACK);
        list->CopyBufferRegion(staging.Get(), 0, buffer, 0, bytes);
        execute();
        void* mapped = nullptr;
        check(staging->Map(0, nullptr, &mapped), "ID3D12Resource::Map");
        std::memcpy(values, mapped, bytes);
        staging->Unmap(0, nullptr);
    }

private:
    ComPtr<ID3D12CommandQueue> queue_;
    ComPtr<ID3D12CommandAllocator> allocator_;
    ComPtr<ID3D12Fence> fence_;
    std::uint64_t executed_ = 0;
};

std::vector<char> read_file(const std::string& path)
{
    std::ifstream file(path, std::ios::binary);
    if (!file) {
        throw std::runtime_error("cannot read " + path);
    }
    return {std::istreambuf_iterator<char>(file), {}};
}

// The shaders of a program's kernels. `files` keeps what they point to.
template <class Shaders, class Kernels>
Shaders load_shaders(const std::string& folder, const Kernels& kernels,
    std::vector<std::vector<char>>& files)
{
    Shaders shaders = {};
    for (const auto& kernel : kernels) {
        files.push_back(read_file(folder + "/" + kernel.name + ".dxil"));
    }
    for (std::size_t number = 0; number < shaders.size(); ++number) {
        shaders[number] = {files[number].data(), files[number].size()};
    }
    return shaders;
}

template <class Tensor>
std::size_t count_elements(const Tensor& tensor)
{
    std::size_t count = 1;
    for (std::uint32_t axis = 0; axis < tensor.rank; ++axis) {
        count *= static_cast<std::size_t>(tensor.sizes[axis]);
    }
    return count;
}

// Runs a program: makes a buffer for each of its tensors, uploads what it is given, has `record`
// put the kernels into the list, and gives the outputs.
template <class Buffers, class Tensors, class Record>
Arrays run(Gpu& gpu, const Tensors& tensors, const Arrays& inputs, const Record& record)
{
    using Role = decltype(tensors[0].role);
    std::vector<ComPtr<ID3D12Resource>> resources;
    Buffers buffers;
    for (std::size_t slot = 0; slot < tensors.size(); ++slot) {
        const auto& tensor = tensors[slot];
        resources.push_back(gpu.make_buffer(tensor.bytes, D3D12_HEAP_TYPE_DEFAULT));
        buffers[slot].resource = resources.back().Get();
        if (tensor.role == Role::input) {
            const std::vector<float>& values = inputs.at(tensor.name);
            gpu.upload(buffers[slot].resource, values.data(), values.size() * sizeof(float));
        } else if (tensor.role == Role::constant) {
            gpu.upload(buffers[slot].resource, tensor.values,
                count_elements(tensor) * tensor.element_bytes);
        }
    }
    check(record(gpu.list.Get(), buffers), "record");
    gpu.execute();
    Arrays outputs;
    for (std::size_t slot = 0; slot < tensors.size(); ++slot) {
        if (tensors[slot].role == Role::output) {
            std::vector<float>& values = outputs[tensors[slot].name];
            values.resize(count_elements(tensors[slot]));
            gpu.download(buffers[slot].resource, values.data(), values.size() * sizeof(float));
        }
    }
    return outputs;
}

std::vector<float> draw(std::size_t count, unsigned seed)
{
    std::mt19937 generator(seed);
    std::normal_distribution<float> normal;
    std::vector<float> values(count);
    for (float& value : values) {
        value = normal(generator);
    }
    return values;
}

std::vector<float> relu_gradient(const std::vector<float>& x, const std::vector<float>& dy)
{
    std::vector<float> dx(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
        dx[i] = x[i] > 0 ? dy[i] : 0;
    }
    return dx;
}

// Says how far an output is from what is expected. `allowed` bounds the difference of each element.
bool compare(const char* name, const std::vector<float>& found, const std::vector<double>& expected,
    const std::vector<double>& allowed)
{
    double largest = 0;
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
        const double difference = std::abs(found[i] - expected[i]);
        largest = std::fmax(largest, difference);
        if (!(difference <= allowed[i])) { // NaN is wrong, too.
            ++wrong;
        }
    }
    std::printf("  %s: %zu elements, largest difference %g, %zu wrong\n", name, expected.size(),
        largest, wrong);
    return wrong == 0 && found.size() == expected.size();
}

bool compare_exactly(const char* name, const std::vector<float>& found,
    const std::vector<float>& expected)
{
    return compare(name, found, {expected.begin(), expected.end()},
        std::vector<double>(expected.size(), 0.0));
}

// One kernel, which takes the number of elements when it runs.
bool check_relu_gradient(Gpu& gpu, const std::string& folder)
{
    std::vector<std::vector<char>> files;
    const auto shaders = load_shaders<relu::Shaders>(folder, relu::kernels, files);
    relu::Pipelines pipelines;
    check(relu::create_pipelines(gpu.device.Get(), shaders, pipelines), "create_pipelines");

    bool right = true;
    for (const std::size_t count : {std::size_t{1}, std::size_t{100003}}) {
        const relu::Sizes sizes = {count};
        const std::vector<float> x = draw(count, 1);
        const std::vector<float> dy = draw(count, 2);
        const Arrays outputs = run<relu::Buffers>(gpu, relu::tensors(sizes),
            {{"InputTensor", x}, {"InputGradientTensor", dy}},
            [&](ID3D12GraphicsCommandList* list, const relu::Buffers& buffers) {
                return relu::record(list, pipelines, buffers, sizes);
            });
        std::printf("ACTIVATION_RELU_GRAD of %zu elements\n", count);
        right &= compare_exactly("OutputGradientTensor", outputs.at("OutputGradientTensor"),
            relu_gradient(x, dy));
    }
    return right;
}

// Two kernels: the second adds what the first one left in scratch memory.
bool check_layer(Gpu& gpu, const std::string& folder)
{
    std::vector<std::vector<char>> files;
    const auto shaders = load_shaders<layer::Shaders>(folder, layer::kernels, files);
    layer::Pipelines pipelines;
    check(layer::create_pipelines(gpu.device.Get(), shaders, pipelines), "create_pipelines");

    constexpr auto tensors = layer::tensors();
    const auto rows = static_cast<std::size_t>(tensors[layer::slot::x].sizes[0]);
    const auto columns = static_cast<std::size_t>(tensors[layer::slot::x].sizes[1]);
    const std::vector<float> x = draw(rows * columns, 3);
    const std::vector<float> dy = draw(rows * columns, 4);
    const Arrays outputs = run<layer::Buffers>(gpu, tensors, {{"x", x}, {"dy", dy}},
        [&](ID3D12GraphicsCommandList* list, const layer::Buffers& buffers) {
            return layer::record(list, pipelines, buffers);
        });

    const std::vector<float> dx = relu_gradient(x, dy);
    std::vector<double> sums(columns, 0.0);
    std::vector<double> sizes(columns, 0.0);
    for (std::size_t i = 0; i < dx.size(); ++i) {
        sums[i % columns] += dx[i];
        sizes[i % columns] += std::abs(static_cast<double>(dx[i]));
    }
    // Rounding: half a unit in the last place for each addition, of what is added at most.
    for (double& size : sizes) {
        size *= static_cast<double>(rows) * 0x1p-24;
    }
    std::printf("relu_bias_backward of %zu rows and %zu columns\n", rows, columns);
    const bool right = compare_exactly("dx", outputs.at("dx"), dx);
    return compare("dbias", outputs.at("dbias"), sums, sizes) && right;
}

} // namespace

int main(int count, char** arguments)
{
    try {
        const std::string folder = count > 1 ? arguments[1] : ".";
        Gpu gpu;
        if (!relu::is_supported(gpu.device.Get()) || !layer::is_supported(gpu.device.Get())) {
            throw std::runtime_error("the device lacks what the kernels need");
        }
        const bool relu_is_right = check_relu_gradient(gpu, folder);
        const bool layer_is_right = check_layer(gpu, folder);
        std::printf("%s\n", relu_is_right && layer_is_right ? "all right" : "something is wrong");
        return relu_is_right && layer_is_right ? 0 : 1;
    } catch (const std::exception& problem) {
        std::fprintf(stderr, "%s\n", problem.what());
        return 2;
    }
}

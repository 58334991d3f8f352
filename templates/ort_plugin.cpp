// A library of custom operators for ONNX Runtime, whose kernels run on an OpenCL device. Tensors
// are in the host's memory. The device is the first GPU, else the first device;
// DMLC_OPENCL_DEVICE names another one by a part of its name.

#define CL_TARGET_OPENCL_VERSION 120

#include "dmlc_plugin.hpp"

#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>

#ifdef __APPLE__
#include <OpenCL/opencl.h>
#else
#include <CL/cl.h>
#endif

#ifdef _WIN32
#define DMLC_CALL __stdcall
#define DMLC_EXPORT extern "C" __declspec(dllexport)
#else
#define DMLC_CALL
#define DMLC_EXPORT extern "C" __attribute__((visibility("default")))
#endif

// ONNX Runtime's C interface ---------------------------------------------------------------------
//
// Its wheels have no headers. The interface is a table of functions that grows at its end alone,
// and a structure of callbacks with a version: here is the part that this library uses. The layout
// is that of version 16 (ONNX Runtime 1.16), which every later release accepts.

extern "C" {
struct OrtStatus;
struct OrtValue;
struct OrtKernelInfo;
struct OrtKernelContext;
struct OrtSessionOptions;
struct OrtCustomOpDomain;
struct OrtTensorTypeAndShapeInfo;
struct OrtApi;

struct OrtApiBase
{
    const OrtApi*(DMLC_CALL* GetApi)(std::uint32_t version);
    const char*(DMLC_CALL* GetVersionString)();
};

struct OrtCustomOp
{
    std::uint32_t version;
    void*(DMLC_CALL* CreateKernel)(const OrtCustomOp*, const OrtApi*, const OrtKernelInfo*);
    const char*(DMLC_CALL* GetName)(const OrtCustomOp*);
    const char*(DMLC_CALL* GetExecutionProviderType)(const OrtCustomOp*);
    int(DMLC_CALL* GetInputType)(const OrtCustomOp*, std::size_t);
    std::size_t(DMLC_CALL* GetInputTypeCount)(const OrtCustomOp*);
    int(DMLC_CALL* GetOutputType)(const OrtCustomOp*, std::size_t);
    std::size_t(DMLC_CALL* GetOutputTypeCount)(const OrtCustomOp*);
    void(DMLC_CALL* KernelCompute)(void*, OrtKernelContext*);
    void(DMLC_CALL* KernelDestroy)(void*);
    int(DMLC_CALL* GetInputCharacteristic)(const OrtCustomOp*, std::size_t);
    int(DMLC_CALL* GetOutputCharacteristic)(const OrtCustomOp*, std::size_t);
    int(DMLC_CALL* GetInputMemoryType)(const OrtCustomOp*, std::size_t);
    int(DMLC_CALL* GetVariadicInputMinArity)(const OrtCustomOp*);
    int(DMLC_CALL* GetVariadicInputHomogeneity)(const OrtCustomOp*);
    int(DMLC_CALL* GetVariadicOutputMinArity)(const OrtCustomOp*);
    int(DMLC_CALL* GetVariadicOutputHomogeneity)(const OrtCustomOp*);
    OrtStatus*(DMLC_CALL* CreateKernelV2)(const OrtCustomOp*, const OrtApi*, const OrtKernelInfo*,
        void**);
    OrtStatus*(DMLC_CALL* KernelComputeV2)(void*, OrtKernelContext*);
};
}

namespace {

using namespace dmlc;

constexpr std::uint32_t api_version = 16;

enum Code
{
    fail = 1,
    invalid_argument = 2,
};

// A function of ONNX Runtime's table, by its place.
template <std::size_t Place, class Result, class... Arguments>
struct Function
{
    Result operator()(const OrtApi* api, Arguments... arguments) const
    {
        using Pointer = Result(DMLC_CALL*)(Arguments...);
        Pointer function;
        std::memcpy(&function, reinterpret_cast<const char*>(api) + Place * sizeof function,
            sizeof function);
        return function(arguments...);
    }
};

constexpr Function<0, OrtStatus*, int, const char*> CreateStatus;
constexpr Function<2, const char*, const OrtStatus*> GetErrorMessage;
constexpr Function<26, OrtStatus*, const char*, OrtCustomOpDomain**> CreateCustomOpDomain;
constexpr Function<27, OrtStatus*, OrtCustomOpDomain*, const OrtCustomOp*> CustomOpDomain_Add;
constexpr Function<28, OrtStatus*, OrtSessionOptions*, OrtCustomOpDomain*> AddCustomOpDomain;
constexpr Function<51, OrtStatus*, OrtValue*, void**> GetTensorMutableData;
constexpr Function<60, OrtStatus*, const OrtTensorTypeAndShapeInfo*, int*> GetTensorElementType;
constexpr Function<61, OrtStatus*, const OrtTensorTypeAndShapeInfo*,
    std::size_t*> GetDimensionsCount;
constexpr Function<62, OrtStatus*, const OrtTensorTypeAndShapeInfo*, std::int64_t*,
    std::size_t> GetDimensions;
constexpr Function<65, OrtStatus*, const OrtValue*,
    OrtTensorTypeAndShapeInfo**> GetTensorTypeAndShape;
constexpr Function<85, OrtStatus*, const OrtKernelInfo*, const char*,
    float*> KernelInfoGetAttribute_float;
constexpr Function<86, OrtStatus*, const OrtKernelInfo*, const char*,
    std::int64_t*> KernelInfoGetAttribute_int64;
constexpr Function<87, OrtStatus*, const OrtKernelInfo*, const char*, char*,
    std::size_t*> KernelInfoGetAttribute_string;
constexpr Function<90, OrtStatus*, const OrtKernelContext*, std::size_t,
    const OrtValue**> KernelContext_GetInput;
constexpr Function<91, OrtStatus*, OrtKernelContext*, std::size_t, const std::int64_t*, std::size_t,
    OrtValue**> KernelContext_GetOutput;
constexpr Function<93, void, OrtStatus*> ReleaseStatus;
constexpr Function<99, void, OrtTensorTypeAndShapeInfo*> ReleaseTensorTypeAndShapeInfo;
constexpr Function<162, OrtStatus*, const OrtKernelInfo*, const char*, float*,
    std::size_t*> KernelInfoGetAttributeArray_float;
constexpr Function<163, OrtStatus*, const OrtKernelInfo*, const char*, std::int64_t*,
    std::size_t*> KernelInfoGetAttributeArray_int64;

const OrtApi* api = nullptr;

// What is wrong with a call, for the user of ONNX Runtime.
struct Refusal : std::runtime_error
{
    using std::runtime_error::runtime_error;
};

void check(OrtStatus* status)
{
    if (status != nullptr) {
        const std::string message = GetErrorMessage(api, status);
        ReleaseStatus(api, status);
        throw std::runtime_error(message);
    }
}

// Runs a function, and turns what it throws into a status.
template <class Body>
OrtStatus* guard(const char* name, Body&& body) noexcept
{
    try {
        body();
        return nullptr;
    } catch (const Refusal& refusal) {
        return CreateStatus(api, invalid_argument,
            (std::string(name) + ": " + refusal.what()).c_str());
    } catch (const std::exception& error) {
        return CreateStatus(api, fail, (std::string(name) + ": " + error.what()).c_str());
    }
}

// OpenCL -----------------------------------------------------------------------------------------

void check(cl_int code, const std::string& doing)
{
    if (code != CL_SUCCESS) {
        throw std::runtime_error(doing + " failed with the OpenCL error " + std::to_string(code));
    }
}

std::string read_text(cl_device_id device, cl_device_info what)
{
    std::size_t size = 0;
    check(clGetDeviceInfo(device, what, 0, nullptr, &size), "clGetDeviceInfo");
    std::string text(size, '\0');
    check(clGetDeviceInfo(device, what, size, &text[0], nullptr), "clGetDeviceInfo");
    return text.c_str(); // Without the zero at its end.
}

std::vector<cl_device_id> list_devices()
{
    cl_uint count = 0;
    // Without a driver this is an error, too.
    if (clGetPlatformIDs(0, nullptr, &count) != CL_SUCCESS || count == 0) {
        return {};
    }
    std::vector<cl_platform_id> platforms(count);
    check(clGetPlatformIDs(count, platforms.data(), nullptr), "clGetPlatformIDs");
    std::vector<cl_device_id> all;
    for (cl_platform_id platform : platforms) {
        cl_uint found = 0;
        if (clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 0, nullptr, &found) != CL_SUCCESS) {
            continue;
        }
        std::vector<cl_device_id> own(found);
        check(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, found, own.data(), nullptr),
            "clGetDeviceIDs");
        all.insert(all.end(), own.begin(), own.end());
    }
    return all;
}

template <class Value>
Value read_info(cl_device_id device, cl_device_info what)
{
    Value value = {};
    // A device that does not know of something does not have it.
    if (clGetDeviceInfo(device, what, sizeof value, &value, nullptr) != CL_SUCCESS) {
        return Value{};
    }
    return value;
}

bool is_gpu(cl_device_id device)
{
    return (read_info<cl_device_type>(device, CL_DEVICE_TYPE) & CL_DEVICE_TYPE_GPU) != 0;
}

cl_device_id choose_device()
{
    const std::vector<cl_device_id> all = list_devices();
    if (all.empty()) {
        throw std::runtime_error("there is no OpenCL device on this machine: install a driver "
                                 "(PoCL runs on any processor)");
    }
    const char* wanted = std::getenv("DMLC_OPENCL_DEVICE");
    if (wanted != nullptr && *wanted != '\0') {
        std::string names;
        for (cl_device_id device : all) {
            const std::string name = read_text(device, CL_DEVICE_NAME);
            if (name.find(wanted) != std::string::npos) {
                return device;
            }
            names += (names.empty() ? "'" : ", '") + name + "'";
        }
        throw std::runtime_error("DMLC_OPENCL_DEVICE is '" + std::string(wanted)
            + "', and no OpenCL device has that in its name: there are " + names);
    }
    for (cl_device_id device : all) {
        if (is_gpu(device)) {
            return device;
        }
    }
    return all.front();
}

// The device of all operators. It lives as long as the process.
struct Device
{
    cl_device_id id = nullptr;
    cl_context context = nullptr;
    cl_command_queue queue = nullptr;

    Device() : id(choose_device())
    {
        cl_int code = 0;
        context = clCreateContext(nullptr, 1, &id, nullptr, nullptr, &code);
        check(code, "clCreateContext");
        queue = clCreateCommandQueue(context, id, 0, &code);
        check(code, "clCreateCommandQueue");
    }
};

Device& open_device()
{
    static Device& device = *new Device;
    return device;
}

struct ReleaseKernel
{
    void operator()(cl_kernel kernel) const { clReleaseKernel(kernel); }
};
struct ReleaseMemory
{
    void operator()(cl_mem memory) const { clReleaseMemObject(memory); }
};
using OwnedKernel = std::unique_ptr<_cl_kernel, ReleaseKernel>;
using Memory = std::unique_ptr<_cl_mem, ReleaseMemory>;

OwnedKernel build(const Device& device, const Kernel& kernel)
{
    const std::string name = kernel.entry_point;
    if (kernel.needs_double && read_info<cl_device_fp_config>(device.id,
        CL_DEVICE_DOUBLE_FP_CONFIG) == 0) {
        throw std::runtime_error("the kernel " + name + " needs FLOAT64, which the device "
            + read_text(device.id, CL_DEVICE_NAME) + " does not have");
    }
    std::string options = "-w";
    bool divides = false;
    for (const char* piece : kernel.source) {
        divides = divides || std::strstr(piece, "DIVIDES_CORRECTLY") != nullptr;
    }
    if (divides
        && (read_info<cl_device_fp_config>(device.id, CL_DEVICE_SINGLE_FP_CONFIG)
            & CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT)) {
        options += " -cl-fp32-correctly-rounded-divide-sqrt -D DIVIDES_CORRECTLY";
    }
    cl_int code = 0;
    std::vector<const char*> source = kernel.source;
    cl_program program = clCreateProgramWithSource(device.context,
        static_cast<cl_uint>(source.size()), source.data(), nullptr, &code);
    check(code, "clCreateProgramWithSource");
    code = clBuildProgram(program, 1, &device.id, options.c_str(), nullptr, nullptr);
    if (code != CL_SUCCESS) {
        std::string log(1 << 14, '\0');
        clGetProgramBuildInfo(program, device.id, CL_PROGRAM_BUILD_LOG, log.size(), &log[0],
            nullptr);
        clReleaseProgram(program);
        throw std::runtime_error("the driver cannot build the kernel " + name + ":\n"
            + log.c_str());
    }
    OwnedKernel made(clCreateKernel(program, kernel.entry_point, &code));
    clReleaseProgram(program); // The kernel keeps it.
    check(code, "clCreateKernel");
    return made;
}

// Operators --------------------------------------------------------------------------------------

std::string spell(const std::vector<std::uint64_t>& sizes)
{
    std::string text = "[";
    for (const std::uint64_t size : sizes) {
        text += (text.size() > 1 ? ", " : "") + std::to_string(size);
    }
    return text + "]";
}

struct Given
{
    std::vector<std::uint64_t> shape;
    const void* data;
};

Given read_input(const OrtKernelContext* context, std::size_t number)
{
    const OrtValue* value = nullptr;
    check(KernelContext_GetInput(api, context, number, &value));
    OrtTensorTypeAndShapeInfo* found = nullptr;
    check(GetTensorTypeAndShape(api, value, &found));
    struct Release
    {
        void operator()(OrtTensorTypeAndShapeInfo* info) const {
            ReleaseTensorTypeAndShapeInfo(api, info); }
    };
    const std::unique_ptr<OrtTensorTypeAndShapeInfo, Release> info(found);
    std::size_t rank = 0;
    check(GetDimensionsCount(api, info.get(), &rank));
    std::vector<std::int64_t> dimensions(rank);
    check(GetDimensions(api, info.get(), dimensions.data(), rank));
    void* data = nullptr;
    check(GetTensorMutableData(api, const_cast<OrtValue*>(value), &data));
    return {{dimensions.begin(), dimensions.end()}, data};
}

// A node of a model.
class Node
{
public:
    Node(const Operator& own, const OrtKernelInfo* info) : own_(own), device_(open_device())
    {
        for (const char* name : own.attributes) {
            if (has_attribute(info, name)) {
                throw Refusal(std::string("the node gives the attribute '") + name
                    + "', whose value is compiled into the kernels: leave it out, or export the "
                      "operator again with that value, or open, as an input");
            }
        }
        program_ = is_gpu(device_.id) ? &own.gpu : &own.cpu;
        kernels_ = program_->kernels();
        for (const Kernel& kernel : kernels_) {
            built_.push_back(build(device_, kernel));
        }
    }

    const char* name() const { return own_.name; }

    void compute(OrtKernelContext* context)
    {
        // A node may run in several threads, and a kernel's arguments are its own.
        const std::lock_guard<std::mutex> lock(mutex_);
        const std::vector<std::uint64_t> zeros(own_.symbols.size(), 0);
        const std::vector<Tensor> unsized = program_->tensors(zeros.data());
        std::vector<Given> inputs;
        for (const Tensor& tensor : unsized) {
            if (tensor.role == Role::input) {
                inputs.push_back(read_input(context, inputs.size()));
            }
        }
        const std::vector<std::uint64_t> sizes = learn_sizes(unsized, inputs);
        if (!has_buffers_ || sizes != sizes_) {
            make_buffers(sizes);
        }
        run(context, inputs);
    }

private:
    static bool has_attribute(const OrtKernelInfo* info, const char* name)
    {
        float real = 0;
        std::int64_t whole = 0;
        std::size_t size = 0;
        std::size_t reals = 0;
        std::size_t wholes = 0;
        const auto succeeds = [](OrtStatus* status) {
            if (status != nullptr) {
                ReleaseStatus(api, status);
            }
            return status == nullptr;
        };
        return succeeds(KernelInfoGetAttribute_float(api, info, name, &real))
            || succeeds(KernelInfoGetAttribute_int64(api, info, name, &whole))
            || succeeds(KernelInfoGetAttribute_string(api, info, name, nullptr, &size))
            || succeeds(KernelInfoGetAttributeArray_float(api, info, name, nullptr, &reals))
            || succeeds(KernelInfoGetAttributeArray_int64(api, info, name, nullptr, &wholes));
    }

    // The open sizes, from the shapes of the inputs. Throws Refusal where these do not fit.
    std::vector<std::uint64_t> learn_sizes(const std::vector<Tensor>& tensors,
        const std::vector<Given>& inputs)
    {
        std::vector<std::uint64_t> sizes(own_.symbols.size(), 0);
        std::vector<bool> known(own_.symbols.size(), false);
        if (own_.is_counted) {
            // Some inputs may have sizes of their own, such as attributes that are left open.
            std::size_t place = 0;
            for (const Tensor& tensor : tensors) {
                if (tensor.role == Role::input) {
                    if (is_counted(tensor)) {
                        break;
                    }
                    ++place;
                }
            }
            shape_ = inputs[place].shape;
            sizes[0] = 1;
            for (const std::uint64_t size : shape_) {
                sizes[0] *= size;
            }
            known[0] = true;
        }
        std::size_t number = 0;
        for (const Tensor& tensor : tensors) {
            if (tensor.role != Role::input) {
                continue;
            }
            const std::vector<std::uint64_t>& shape = inputs[number++].shape;
            if (is_counted(tensor)) {
                if (shape != shape_) {
                    throw Refusal(std::string("the input ") + tensor.name + " has the shape "
                        + spell(shape)
                        + ", and others have " + spell(shape_) + ": all must have one shape");
                }
                continue;
            }
            if (shape.size() != tensor.sizes.size()) {
                throw Refusal(std::string("the input ") + tensor.name + " has the shape "
                    + spell(shape) + ", "
                    + std::to_string(shape.size()) + " axes, and the kernels take "
                    + std::to_string(tensor.sizes.size()));
            }
            for (std::size_t axis = 0; axis < shape.size(); ++axis) {
                const int symbol = tensor.symbols[axis];
                if (symbol < 0) {
                    continue;
                }
                const auto place = static_cast<std::size_t>(symbol);
                if (known[place] && sizes[place] != shape[axis]) {
                    throw Refusal(std::string("axis ") + std::to_string(axis) + " of the input "
                        + tensor.name
                        + " has " + std::to_string(shape[axis]) + " elements, and the size "
                        + own_.symbols[place] + " is " + std::to_string(sizes[place])
                            + " elsewhere");
                }
                sizes[place] = shape[axis];
                known[place] = true;
            }
        }
        if (!program_->is_valid(sizes.data())) {
            std::string text;
            for (std::size_t place = 0; place < sizes.size(); ++place) {
                text += std::string(place ? ", " : "") + own_.symbols[place] + " = "
                    + std::to_string(sizes[place]);
            }
            throw Refusal("the kernels do not take these sizes: " + text);
        }
        number = 0;
        for (const Tensor& tensor : program_->tensors(sizes.data())) {
            if (tensor.role != Role::input) {
                continue;
            }
            const std::vector<std::uint64_t>& shape = inputs[number++].shape;
            if (!is_counted(tensor) && shape != tensor.sizes) {
                throw Refusal(std::string("the input ") + tensor.name + " has the shape "
                    + spell(shape)
                    + ", and the kernels take " + spell(tensor.sizes));
            }
        }
        return sizes;
    }

    // Whether a tensor may have any shape with the counted number of elements.
    bool is_counted(const Tensor& tensor) const
    {
        return own_.is_counted && tensor.symbols.size() == 1 && tensor.symbols[0] == 0;
    }

    void make_buffers(const std::vector<std::uint64_t>& sizes)
    {
        has_buffers_ = false;
        tensors_ = program_->tensors(sizes.data());
        launches_ = program_->launches(sizes.data());
        buffers_.clear();
        const auto most = read_info<cl_ulong>(device_.id, CL_DEVICE_MAX_MEM_ALLOC_SIZE);
        for (const Tensor& tensor : tensors_) {
            if (tensor.bytes > most) {
                throw std::runtime_error(std::string(tensor.name) + " needs "
                    + std::to_string(tensor.bytes)
                    + " bytes, and a buffer of this device has at most " + std::to_string(most));
            }
            cl_int code = 0;
            const std::size_t bytes = tensor.bytes < 4 ? 4 : static_cast<std::size_t>(tensor.bytes);
            buffers_.emplace_back(clCreateBuffer(device_.context, CL_MEM_READ_WRITE, bytes, nullptr,
                &code));
            check(code, "clCreateBuffer");
            if (tensor.values != nullptr) {
                check(clEnqueueWriteBuffer(device_.queue, buffers_.back().get(), CL_TRUE, 0,
                    tensor.value_bytes,
                          tensor.values, 0, nullptr, nullptr),
                    "clEnqueueWriteBuffer");
            }
        }
        sizes_ = sizes;
        has_buffers_ = true;
    }

    std::size_t count_bytes(const Tensor& tensor, const std::vector<std::uint64_t>& shape) const
    {
        std::size_t bytes = tensor.element_bytes;
        for (const std::uint64_t size : shape) {
            bytes *= static_cast<std::size_t>(size);
        }
        return bytes;
    }

    void run(OrtKernelContext* context, const std::vector<Given>& inputs)
    {
        std::size_t number = 0;
        for (std::size_t slot = 0; slot < tensors_.size(); ++slot) {
            if (tensors_[slot].role != Role::input) {
                continue;
            }
            const Given& given = inputs[number++];
            const std::size_t bytes = count_bytes(tensors_[slot], given.shape);
            if (bytes > 0) {
                check(clEnqueueWriteBuffer(device_.queue, buffers_[slot].get(), CL_FALSE, 0, bytes,
                    given.data, 0,
                          nullptr, nullptr),
                    "clEnqueueWriteBuffer");
            }
        }
        try {
            launch_all();
            read_outputs(context);
        } catch (...) {
            clFinish(device_.queue); // Copies from the caller's memory end before it gets it back.
            throw;
        }
    }

    void launch_all()
    {
        for (const Launch& launch : launches_) {
            const Kernel& kernel = kernels_[launch.kernel];
            cl_kernel handle = built_[launch.kernel].get();
            for (const Binding& each : kernel.bindings) {
                cl_mem memory = buffers_[each.tensor].get();
                check(clSetKernelArg(handle, each.argument, sizeof memory, &memory),
                    "clSetKernelArg");
            }
            for (std::size_t place = 0; place < kernel.scalars.size(); ++place) {
                const cl_ulong wide = launch.values[place];
                const auto narrow = static_cast<cl_uint>(wide);
                const bool is_wide = kernel.scalars[place].bits == 64;
                check(clSetKernelArg(handle, kernel.scalars[place].argument, is_wide ? sizeof wide
                    : sizeof narrow,
                          is_wide ? static_cast<const void*>(&wide) : &narrow),
                    "clSetKernelArg");
            }
            const std::size_t total[3] = {
                static_cast<std::size_t>(launch.groups) * kernel.items[0], kernel.items[1],
                    kernel.items[2]};
            check(clEnqueueNDRangeKernel(device_.queue, handle, 3, nullptr, total,
                kernel.items.data(), 0, nullptr,
                      nullptr),
                std::string("the launch of ") + kernel.entry_point);
        }
    }

    void read_outputs(OrtKernelContext* context)
    {
        std::size_t number = 0;
        for (std::size_t slot = 0; slot < tensors_.size(); ++slot) {
            const Tensor& tensor = tensors_[slot];
            if (tensor.role != Role::output) {
                continue;
            }
            const std::vector<std::uint64_t>& sizes = is_counted(tensor) ? shape_ : tensor.sizes;
            const std::vector<std::int64_t> shape(sizes.begin(), sizes.end());
            OrtValue* value = nullptr;
            check(KernelContext_GetOutput(api, context, number++, shape.data(), shape.size(),
                &value));
            void* data = nullptr;
            check(GetTensorMutableData(api, value, &data));
            const std::size_t bytes = count_bytes(tensor, sizes);
            if (bytes > 0) {
                check(clEnqueueReadBuffer(device_.queue, buffers_[slot].get(), CL_FALSE, 0, bytes,
                    data, 0, nullptr,
                          nullptr),
                    "clEnqueueReadBuffer");
            }
        }
        check(clFinish(device_.queue), std::string("the run of ") + own_.name);
    }

    const Operator& own_;
    Device& device_;
    const Program* program_ = nullptr;
    std::vector<Kernel> kernels_;
    std::vector<OwnedKernel> built_;
    std::mutex mutex_;
    bool has_buffers_ = false;
    std::vector<std::uint64_t> sizes_; // what the buffers are made for
    std::vector<std::uint64_t> shape_; // of counted tensors, in the run at hand
    std::vector<Tensor> tensors_;
    std::vector<Launch> launches_;
    std::vector<Memory> buffers_;
};

// An operator as ONNX Runtime knows it.
struct CustomOp : OrtCustomOp
{
    const Operator& own;
    std::vector<int> inputs;
    std::vector<int> outputs;

    explicit CustomOp(const Operator& of) : OrtCustomOp{}, own(of)
    {
        const std::vector<std::uint64_t> zeros(of.symbols.size(), 0);
        for (const Tensor& tensor : of.cpu.tensors(zeros.data())) {
            if (tensor.role == Role::input) {
                inputs.push_back(tensor.element_type);
            } else if (tensor.role == Role::output) {
                outputs.push_back(tensor.element_type);
            }
        }
        version = api_version;
        GetName = [](const OrtCustomOp* op) { return of_(op).own.name; };
        GetExecutionProviderType = [](const OrtCustomOp*) -> const char* { return nullptr; };
        GetInputType = [](const OrtCustomOp* op, std::size_t number) {
            return of_(op).inputs[number]; };
        GetInputTypeCount = [](const OrtCustomOp* op) { return of_(op).inputs.size(); };
        GetOutputType = [](const OrtCustomOp* op, std::size_t number) {
            return of_(op).outputs[number]; };
        GetOutputTypeCount = [](const OrtCustomOp* op) { return of_(op).outputs.size(); };
        KernelDestroy = [](void* node) { delete static_cast<Node*>(node); };
        GetInputCharacteristic = [](const OrtCustomOp*, std::size_t) { return 0; }; // required
        GetOutputCharacteristic = [](const OrtCustomOp*, std::size_t) { return 0; };
        GetInputMemoryType = [](const OrtCustomOp*, std::size_t) { return 0; }; // the default
        GetVariadicInputMinArity = [](const OrtCustomOp*) { return 1; };
        GetVariadicInputHomogeneity = [](const OrtCustomOp*) { return 1; };
        GetVariadicOutputMinArity = [](const OrtCustomOp*) { return 1; };
        GetVariadicOutputHomogeneity = [](const OrtCustomOp*) { return 1; };
        CreateKernelV2 = [](const OrtCustomOp* op, const OrtApi*, const OrtKernelInfo* info,
            void** made) {
            const Operator& wanted = of_(op).own;
            return guard(wanted.name, [&] { *made = new Node(wanted, info); });
        };
        KernelComputeV2 = [](void* node, OrtKernelContext* context) {
            Node& one = *static_cast<Node*>(node);
            return guard(one.name(), [&] { one.compute(context); });
        };
    }

private:
    static const CustomOp& of_(const OrtCustomOp* op) { return *static_cast<const CustomOp*>(op); }
};

} // namespace

DMLC_EXPORT OrtStatus* DMLC_CALL RegisterCustomOps(OrtSessionOptions* options,
    const OrtApiBase* base)
{
    api = base->GetApi(api_version);
    if (api == nullptr) {
        // Every release has version 1, and with it what errors are made of.
        return CreateStatus(base->GetApi(1), fail,
            (std::string("dmlc's operators need ONNX Runtime 1.16 or newer, and this is ")
                + base->GetVersionString()).c_str());
    }
    return guard("dmlc", [&] {
        // ONNX Runtime keeps pointers to all of these, for as long as its sessions live.
        static std::vector<std::unique_ptr<CustomOp>>& made = *new
            std::vector<std::unique_ptr<CustomOp>>;
        if (made.empty()) {
            for (const Operator& own : operators()) {
                made.push_back(std::make_unique<CustomOp>(own));
            }
        }
        OrtCustomOpDomain* domain = nullptr;
        check(CreateCustomOpDomain(api, "dmlc", &domain));
        for (const std::unique_ptr<CustomOp>& op : made) {
            check(CustomOpDomain_Add(api, domain, op.get()));
        }
        check(AddCustomOpDomain(api, options, domain));
    });
}

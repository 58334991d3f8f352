// The device of a plug-in for ONNX Runtime by OpenCL: the first GPU, else the first device;
// DMLC_OPENCL_DEVICE names another one by a part of its name.

#define CL_TARGET_OPENCL_VERSION 120

#include "dmlc_opencl.hpp"

#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>

#ifdef __APPLE__
#include <OpenCL/opencl.h>
#else
#include <CL/cl.h>
#endif

namespace {

using namespace dmlc_plugin;

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

class OpenclRunner final : public Runner
{
public:
    OpenclRunner(const OpenclProgram& cpu, const OpenclProgram& gpu)
        : device_(open_device()), program_(is_gpu(device_.id) ? gpu : cpu)
    {
        for (Kernel& kernel : program_.kernels()) {
            built_.push_back(build(device_, kernel));
            kernels_.push_back(std::move(kernel));
        }
    }

    const Shapes& shapes() const override { return program_.shapes; }

    void make_buffers(const std::vector<Tensor>& tensors, const std::uint64_t* sizes) override
    {
        launches_ = program_.launches(sizes);
        buffers_.clear();
        const auto most = read_info<cl_ulong>(device_.id, CL_DEVICE_MAX_MEM_ALLOC_SIZE);
        for (const Tensor& tensor : tensors) {
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
                write(buffers_.size() - 1, tensor.values, tensor.value_bytes);
            }
        }
    }

    void write(std::size_t slot, const void* data, std::size_t bytes) override
    {
        check(clEnqueueWriteBuffer(device_.queue, buffers_[slot].get(), CL_FALSE, 0, bytes, data, 0,
                  nullptr, nullptr),
            "clEnqueueWriteBuffer");
    }

    void launch(const std::uint64_t*) override
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
                check(clSetKernelArg(handle, kernel.scalars[place].argument,
                          is_wide ? sizeof wide : sizeof narrow,
                          is_wide ? static_cast<const void*>(&wide) : &narrow),
                    "clSetKernelArg");
            }
            const std::size_t total[3] = {
                static_cast<std::size_t>(launch.groups) * kernel.items[0], kernel.items[1],
                kernel.items[2]};
            check(clEnqueueNDRangeKernel(device_.queue, handle, 3, nullptr, total,
                      kernel.items.data(), 0, nullptr, nullptr),
                std::string("the launch of ") + kernel.entry_point);
        }
    }

    void read(std::size_t slot, void* data, std::size_t bytes) override
    {
        check(clEnqueueReadBuffer(device_.queue, buffers_[slot].get(), CL_FALSE, 0, bytes, data, 0,
                  nullptr, nullptr),
            "clEnqueueReadBuffer");
    }

    void finish() override { check(clFinish(device_.queue), "the run"); }

    void abandon() noexcept override { clFinish(device_.queue); }

private:
    Device& device_;
    const OpenclProgram program_;
    std::vector<Kernel> kernels_;
    std::vector<OwnedKernel> built_;
    std::vector<Launch> launches_;
    std::vector<Memory> buffers_;
};

} // namespace

std::unique_ptr<Runner> dmlc_plugin::run_opencl(const OpenclProgram& cpu, const OpenclProgram& gpu)
{
    return std::make_unique<OpenclRunner>(cpu, gpu);
}

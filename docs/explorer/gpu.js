// Runs a plan of the compiler by WebGPU: makes the buffers, launches the kernels in order, and
// reads the results back.

const LIMITS = [
  "maxComputeWorkgroupsPerDimension",
  "maxComputeInvocationsPerWorkgroup",
  "maxComputeWorkgroupSizeX",
  "maxComputeWorkgroupStorageSize",
  "maxStorageBuffersPerShaderStage",
  "maxBindingsPerBindGroup",
  "maxStorageBufferBindingSize",
  "maxUniformBufferBindingSize",
  "maxBufferSize",
];
const FEATURES = ["shader-f16"];

// The browser's device, and its description for the compiler. Throws an Error that says why there
// is none.
export async function openDevice() {
  if (!navigator.gpu) {
    throw new Error(
      window.isSecureContext
        ? "This browser has no WebGPU. Current Chrome, Edge, Safari and Firefox on Windows have it."
        : "Browsers offer WebGPU to pages from https and from localhost only.",
    );
  }
  const adapter = await navigator.gpu.requestAdapter();
  if (!adapter) {
    throw new Error("WebGPU finds no device here. chrome://gpu says why, in Chrome.");
  }
  const limits = Object.fromEntries(LIMITS.map((name) => [name, adapter.limits[name]]));
  const features = FEATURES.filter((name) => adapter.features.has(name));
  const device = await adapter.requestDevice({ requiredLimits: limits, requiredFeatures: features });
  const { vendor, architecture, device: model, description } = adapter.info;
  const name = description || [vendor, architecture, model].filter(Boolean).join(" ");
  return { device, description: { name: name || "a device without a name", limits, features } };
}

// The bytes of each result, by name, and the milliseconds that the launches took with what the
// browser needs around them. Throws an Error with WebGPU's own message.
export async function run(device, plan) {
  device.pushErrorScope("out-of-memory");
  device.pushErrorScope("validation");
  const buffers = makeBuffers(device, plan);
  const pipelines = plan.kernels.map((kernel) => makePipeline(device, kernel));
  const launches = plan.launches.map((launch) => bindLaunch(device, plan, launch, pipelines, buffers));
  await device.queue.onSubmittedWorkDone();
  const begun = performance.now();
  const encoder = device.createCommandEncoder();
  const pass = encoder.beginComputePass();
  for (const { pipeline, group, groups } of launches) {
    pass.setPipeline(pipeline);
    pass.setBindGroup(0, group);
    pass.dispatchWorkgroups(...groups);
  }
  pass.end();
  device.queue.submit([encoder.finish()]);
  await device.queue.onSubmittedWorkDone();
  const milliseconds = performance.now() - begun;
  for (const kind of ["validation", "out-of-memory"]) {
    const error = await device.popErrorScope();
    if (error) throw new Error(`WebGPU refuses the run (${kind}): ${error.message}`);
  }
  const results = {};
  for (const [name, size] of Object.entries(plan.downloads)) {
    results[name] = encodeBytes((await readBuffer(device, buffers.get(name))).subarray(0, size));
  }
  for (const buffer of buffers.values()) buffer.destroy();
  return { results, milliseconds };
}

function makeBuffers(device, plan) {
  const usage = GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST;
  const buffers = new Map();
  for (const [name, size] of Object.entries(plan.buffers)) {
    buffers.set(name, device.createBuffer({ size, usage }));
  }
  for (const [name, bytes] of Object.entries(plan.uploads)) {
    device.queue.writeBuffer(buffers.get(name), 0, decodeBytes(bytes));
  }
  return buffers;
}

function makePipeline(device, kernel) {
  const types = kernel.written.map((written) => (written ? "storage" : "read-only-storage"));
  if (kernel.has_constants) types.push("uniform");
  const layout = device.createBindGroupLayout({
    entries: types.map((type, binding) => ({
      binding,
      visibility: GPUShaderStage.COMPUTE,
      buffer: { type },
    })),
  });
  const module = device.createShaderModule({ code: kernel.source, label: kernel.name });
  const pipeline = device.createComputePipeline({
    layout: device.createPipelineLayout({ bindGroupLayouts: [layout] }),
    compute: { module, entryPoint: kernel.entry_point },
  });
  return { layout, pipeline };
}

function bindLaunch(device, plan, launch, pipelines, buffers) {
  const { layout, pipeline } = pipelines[launch.kernel];
  const bound = launch.buffers.map((name) => buffers.get(name));
  if (plan.kernels[launch.kernel].has_constants) {
    const bytes = decodeBytes(launch.constants);
    const usage = GPUBufferUsage.UNIFORM | GPUBufferUsage.COPY_DST;
    const constants = device.createBuffer({ size: bytes.length, usage });
    device.queue.writeBuffer(constants, 0, bytes);
    bound.push(constants);
  }
  const entries = bound.map((buffer, binding) => ({ binding, resource: { buffer } }));
  return { pipeline, group: device.createBindGroup({ layout, entries }), groups: launch.groups };
}

async function readBuffer(device, buffer) {
  const usage = GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST;
  const copy = device.createBuffer({ size: buffer.size, usage });
  const encoder = device.createCommandEncoder();
  encoder.copyBufferToBuffer(buffer, 0, copy, 0, buffer.size);
  device.queue.submit([encoder.finish()]);
  await copy.mapAsync(GPUMapMode.READ);
  const bytes = new Uint8Array(copy.getMappedRange()).slice();
  copy.destroy();
  return bytes;
}

function decodeBytes(text) {
  return Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
}

function encodeBytes(bytes) {
  let text = "";
  for (let start = 0; start < bytes.length; start += 8192) {
    text += String.fromCharCode(...bytes.subarray(start, start + 8192));
  }
  return btoa(text);
}

//===- CudaDeviceTest.cpp - a GPU as a device -----------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//

#include "runtime/device/Registry.h"
#include "runtime/device/cuda/CallerContext.h"
#include "test/fake/GpuHarness.h"

#include <dlfcn.h>
#include <latch>
#include <numeric>
#include <thread>

using namespace gridloom;
using namespace gridloom::rt;
using namespace gridloom::rt::test;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

namespace {

using CudaDeviceTest = FakeGpus;

/// Kernel `scale`: out[i] = 2 * in[i] + 1 on grid.x * block.x floats.
void registerScale(const std::string &symbol = "scale") {
  auto count = [](const fake::Launch &launch) { return size_t(launch.grid[0]) * launch.block[0]; };
  fake::registerKernel(symbol, {2,
                                [=](const fake::Launch &launch) -> std::vector<fake::Access> {
                                  size_t bytes = count(launch) * sizeof(float);
                                  return {{launch.pointers[0], bytes, false},
                                          {launch.pointers[1], bytes, true}};
                                },
                                [=](const fake::Launch &launch) {
                                  auto *in = static_cast<const float *>(launch.pointers[0]);
                                  auto *out = static_cast<float *>(launch.pointers[1]);
                                  for (size_t i = 0; i < count(launch); ++i)
                                    out[i] = 2 * in[i] + 1;
                                }});
}

LaunchShape makeShape(uint32_t grid, uint32_t block) {
  LaunchShape shape;
  shape.grid[0] = grid;
  shape.block[0] = block;
  return shape;
}

std::vector<float> makeRamp(size_t count) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), 0.0f);
  return values;
}

//===----------------------------------------------------------------------===//
// Opening
//===----------------------------------------------------------------------===//

TEST_F(CudaDeviceTest, MissingDriverIsOneLine) {
  if (void *driver = dlopen("libcuda.so.1", RTLD_LAZY)) {
    dlclose(driver);
    GTEST_SKIP() << "this machine has libcuda.so.1";
  }
  unsetenv("GRIDLOOM_CUDA_DRIVER");
  std::string message = catchError(ErrorCode::Unavailable, [] { CudaDevice device(0); });
  EXPECT_THAT(message, StartsWith("libcuda.so.1 not found: the NVIDIA driver is not installed"));
  EXPECT_THAT(message, HasSubstr("--target cpu"));
}

TEST_F(CudaDeviceTest, DriverOfAnotherNameIsNamed) {
  CudaOptions options;
  options.driverPath = "/nowhere/libcuda.so.1";
  std::string message = catchError(ErrorCode::Unavailable, [&] { CudaDevice device(0, options); });
  EXPECT_THAT(message, StartsWith("/nowhere/libcuda.so.1 not found: "));
}

TEST_F(CudaDeviceTest, LibraryThatIsNoDriverNamesTheMissingEntryPoint) {
  CudaOptions options;
  options.driverPath = "libm.so.6";
  std::string message = catchError(ErrorCode::Unavailable, [&] { CudaDevice device(0, options); });
  EXPECT_THAT(message, StartsWith("libm.so.6 has no cuInit: the driver is too old"));
}

TEST_F(CudaDeviceTest, OldDriverIsRefusedWithBothVersions) {
  fake::Options options;
  options.driverVersion = 10020;
  fake::reset(options);
  std::string message = catchError(ErrorCode::Unavailable, [] { CudaDevice device(0); });
  EXPECT_THAT(message, AllOf(HasSubstr("10.2"), HasSubstr("11.2")));
}

TEST_F(CudaDeviceTest, NoGpuIsOneLine) {
  fake::failCall("cuInit", 100);
  std::string message = catchError(ErrorCode::Unavailable, [] { CudaDevice device(0); });
  EXPECT_THAT(message, HasSubstr("cuInit failed with CUDA_ERROR_NO_DEVICE (no CUDA-capable device "
                                 "is detected)"));
}

TEST_F(CudaDeviceTest, GpuThatIsNotThereNamesBothNumbers) {
  std::string message = catchError(ErrorCode::Unavailable, [] { CudaDevice device(2); });
  EXPECT_THAT(message, StartsWith("no GPU 2: this machine has 2"));
}

TEST_F(CudaDeviceTest, NameSaysOrdinalAndArchitecture) {
  EXPECT_EQ(CudaDevice(1).getName(), "cuda:1 Fake GPU (sm_90)");
}

TEST_F(CudaDeviceTest, RanksGetTheGpusInTurnUnlessOneIsNamed) {
  const DeviceKind &kind = *findDeviceKind("cuda");
  auto nameOf = [&](const DeviceRequest &request) { return kind.create(request)->getName(); };
  EXPECT_THAT(nameOf({.localRank = 1, .localSize = 4}), StartsWith("cuda:1 "));
  EXPECT_THAT(nameOf({.localRank = 2, .localSize = 4}), StartsWith("cuda:0 "));
  EXPECT_THAT(nameOf({.number = 1, .localRank = 2, .localSize = 4}), StartsWith("cuda:1 "));
  EXPECT_EQ(kind.create({})->getKind(), kind.getName());
}

TEST_F(CudaDeviceTest, InventoryHasEveryGpuAndTheDriver) {
  DeviceInventory inventory = findDeviceKind("cuda")->takeInventory();
  ASSERT_EQ(inventory.devices.size(), 2u);
  EXPECT_EQ(inventory.devices[1].device, "cuda:1");
  EXPECT_EQ(inventory.devices[1].level, "sm_90");
  EXPECT_TRUE(inventory.devices[1].freeBytes);
  ASSERT_FALSE(inventory.fields.empty());
  EXPECT_EQ(inventory.fields[0].first, "driver");
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

TEST_F(CudaDeviceTest, MemoryIsAlignedAndOfTheDevice) {
  CudaDevice device(0);
  auto memory = device.allocate(3);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(memory->data) % 256, 0u);
  EXPECT_EQ(memory->bytes, 3u);
  EXPECT_EQ(device.allocate(0)->bytes, 0u);
}

TEST_F(CudaDeviceTest, TooMuchMemoryNamesBothNumbers) {
  fake::Options options;
  options.memoryBytes = 1000;
  fake::reset(options);
  CudaDevice device(0);
  auto some = device.allocate(200);
  std::string message = catchError(ErrorCode::OutOfMemory, [&] { device.allocate(900); });
  EXPECT_THAT(message, HasSubstr("900 bytes asked, 800 of 1000 free"));
}

TEST_F(CudaDeviceTest, MemoryOutlivesTheDevice) {
  auto device = std::make_unique<CudaDevice>(0);
  auto memory = device->allocate(64);
  auto stream = device->createStream(StreamKind::Compute, "compute");
  device.reset();
  stream.reset();
  memory.reset();
}

class CudaCopyTest : public FakeGpus,
                     public testing::WithParamInterface<std::tuple<size_t, fake::Schedule>> {};

TEST_P(CudaCopyTest, RoundTrip) {
  auto [count, schedule] = GetParam();
  fake::Options options;
  options.schedule = schedule;
  fake::reset(options);
  CudaDevice device(0);
  auto stream = device.createStream(StreamKind::Copy, "copy");
  auto first = device.allocate(count * sizeof(float));
  auto second = device.allocate(count * sizeof(float));
  std::vector<float> in = makeRamp(count);
  device.copyIn(*stream, first->data, in.data(), first->bytes);
  std::vector<float> expected = in;
  std::fill(in.begin(), in.end(), -1.0f); // copyIn has already read it
  device.copy(*stream, second->data, first->data, first->bytes);
  std::vector<float> out(count);
  device.copyOut(*stream, out.data(), second->data, second->bytes);
  stream->synchronize();
  EXPECT_EQ(out, expected);
}

INSTANTIATE_TEST_SUITE_P(Sizes, CudaCopyTest,
                         testing::Combine(testing::Values(1, 1000, 1 << 20, 5 << 20),
                                          testing::Values(fake::Schedule::Eager,
                                                          fake::Schedule::Random)));

TEST_F(CudaDeviceTest, ManySmallCopiesReuseStaging) {
  fake::Options options;
  options.schedule = fake::Schedule::OldestFirst;
  fake::reset(options);
  CudaDevice device(0);
  auto stream = device.createStream(StreamKind::Copy, "copy");
  constexpr size_t bytes = 3 << 20;
  auto memory = device.allocate(bytes);
  for (int i = 0; i < 20; ++i) {
    std::vector<unsigned char> in(bytes, static_cast<unsigned char>(i)), out(bytes);
    device.copyIn(*stream, memory->data, in.data(), bytes);
    device.copyOut(*stream, out.data(), memory->data, bytes);
    if (i % 3 == 0)
      device.copyIn(*stream, memory->data, in.data(), bytes);
    stream->synchronize();
    ASSERT_EQ(out, in);
  }
  EXPECT_EQ(fake::getCalls("cuMemHostAlloc").size(), 1u);
}

//===----------------------------------------------------------------------===//
// Kernels
//===----------------------------------------------------------------------===//

TEST_F(CudaDeviceTest, RunsAKernelOfACubin) {
  registerScale();
  CudaDevice device(0);
  auto stream = device.createStream(StreamKind::Compute, "compute");
  auto kernel = device.loadKernel("k.cubin", fake::makeCubin(90, {"scale"}), "scale");
  auto in = upload(device, *stream, makeRamp(512));
  auto out = device.allocate(in->bytes);
  void *pointers[] = {in->data, out->data};
  device.launch(*stream, *kernel, makeShape(4, 128), pointers);
  std::vector<float> values = download<float>(device, *stream, out->data, 512);
  for (size_t i = 0; i < values.size(); ++i)
    ASSERT_EQ(values[i], 2 * float(i) + 1);
}

TEST_F(CudaDeviceTest, RunsAKernelOfPtx) {
  registerScale();
  CudaDevice device(0);
  std::string ptx = ".version 8.0\n.target sm_80\n.visible .entry scale(.param .u64 a) { ret; }\n";
  auto kernel = device.loadKernel("k.ptx", std::as_bytes(std::span(ptx)), "scale");
  EXPECT_NE(kernel, nullptr);
}

TEST_F(CudaDeviceTest, CodeIsLoadedOnceAndUnloaded) {
  CudaDevice device(0);
  auto code = fake::makeCubin(90, {"a", "b"});
  auto other = fake::makeCubin(90, {"a", "c"});
  {
    auto a = device.loadKernel("k.cubin", code, "a");
    auto b = device.loadKernel("k.cubin", code, "b");
    EXPECT_EQ(fake::getCalls("cuModuleLoadDataEx").size(), 1u);
    auto c = device.loadKernel("k.cubin", other, "c");
    EXPECT_EQ(fake::getCalls("cuModuleLoadDataEx").size(), 2u);
  }
  EXPECT_EQ(fake::getCalls("cuModuleUnload").size(), 2u);
}

TEST_F(CudaDeviceTest, CodeOfAnotherGpuNamesTheTarget) {
  CudaDevice device(0);
  std::string message = catchError(ErrorCode::InvalidPlan, [&] {
    device.loadKernel("k.cubin", fake::makeCubin(100, {"a"}), "a");
  });
  EXPECT_THAT(message, AllOf(HasSubstr("loading k.cubin on cuda:0 Fake GPU (sm_90)"),
                             HasSubstr("--target cuda:sm_90")));
}

TEST_F(CudaDeviceTest, MissingKernelIsNamed) {
  CudaDevice device(0);
  std::string message = catchError(ErrorCode::InvalidPlan, [&] {
    device.loadKernel("k.cubin", fake::makeCubin(90, {"gelu_1"}), "gelu");
  });
  EXPECT_THAT(message, StartsWith("k.cubin has no kernel gelu;"));
}

TEST_F(CudaDeviceTest, DamagedCodeIsRefused) {
  CudaDevice device(0);
  std::string text = "no code";
  catchError(ErrorCode::InvalidPlan,
             [&] { device.loadKernel("k.ptx", std::as_bytes(std::span(text)), "a"); });
}

TEST_F(CudaDeviceTest, PassesManyPointers) {
  constexpr size_t count = 40;
  std::vector<void *> seen;
  fake::registerKernel("many",
                       {count, [](const fake::Launch &) { return std::vector<fake::Access>(); },
                        [&](const fake::Launch &launch) { seen = launch.pointers; }});
  CudaDevice device(0);
  auto stream = device.createStream(StreamKind::Compute, "compute");
  auto kernel = device.loadKernel("k.cubin", fake::makeCubin(90, {"many"}), "many");
  auto memory = device.allocate(count);
  std::vector<void *> pointers;
  for (size_t i = 0; i < count; ++i)
    pointers.push_back(static_cast<std::byte *>(memory->data) + i);
  device.launch(*stream, *kernel, makeShape(1, 1), pointers);
  stream->synchronize();
  EXPECT_EQ(seen, pointers);
}

TEST_F(CudaDeviceTest, AsksForMuchSharedMemoryOnce) {
  fake::registerKernel("shared",
                       {0, [](const fake::Launch &) { return std::vector<fake::Access>(); },
                        [](const fake::Launch &) {}});
  CudaDevice device(0);
  auto stream = device.createStream(StreamKind::Compute, "compute");
  auto kernel = device.loadKernel("k.cubin", fake::makeCubin(90, {"shared"}), "shared");
  LaunchShape shape = makeShape(1, 32);
  shape.sharedBytes = 100 * 1024;
  device.launch(*stream, *kernel, shape, {});
  device.launch(*stream, *kernel, shape, {});
  EXPECT_EQ(fake::getCalls("cuFuncSetAttribute").size(), 1u);
  shape.block[0] = 2048;
  std::string message =
      catchError(ErrorCode::Internal, [&] { device.launch(*stream, *kernel, shape, {}); });
  EXPECT_THAT(message, StartsWith("cuLaunchKernel failed with CUDA_ERROR_INVALID_VALUE"));
  EXPECT_THAT(message, HasSubstr("launching kernel shared"));
}

//===----------------------------------------------------------------------===//
// Streams, events, order
//===----------------------------------------------------------------------===//

TEST_F(CudaDeviceTest, CommunicationStreamsHavePriority) {
  CudaDevice device(0);
  auto compute = device.createStream(StreamKind::Compute, "compute");
  auto communication = device.createStream(StreamKind::Communication, "comm.model");
  EXPECT_EQ(fake::getStreamPriority(0), 0);
  EXPECT_EQ(fake::getStreamPriority(1), -5);
}

TEST_F(CudaDeviceTest, HostWorkRunsInOrderAndItsErrorSurfaces) {
  CudaDevice device(0);
  auto stream = device.createStream(StreamKind::Compute, "compute");
  std::vector<int> order;
  stream->enqueueHost([&] { order.push_back(1); });
  stream->enqueueHost([&] {
    order.push_back(2);
    throw Error(ErrorCode::PeerFailed, "planted");
  });
  stream->enqueueHost([&] { order.push_back(3); });
  EXPECT_EQ(catchError(ErrorCode::PeerFailed, [&] { stream->synchronize(); }), "planted");
  EXPECT_THAT(order, ElementsAre(1, 2, 3));
  stream->synchronize();
}

TEST_F(CudaDeviceTest, TimesAreTheHostsMonotonicClock) {
  fake::registerKernel("slow", {0, [](const fake::Launch &) { return std::vector<fake::Access>(); },
                                [](const fake::Launch &) {
                                  std::this_thread::sleep_for(std::chrono::milliseconds(20));
                                }});
  CudaDevice device(0);
  auto stream = device.createStream(StreamKind::Compute, "compute");
  auto kernel = device.loadKernel("k.cubin", fake::makeCubin(90, {"slow"}), "slow");
  for (int round = 0; round < 2; ++round) {
    int64_t times[2] = {};
    int64_t before = getMonotonicTime();
    stream->recordTime(&times[0]);
    device.launch(*stream, *kernel, {}, {});
    stream->recordTime(&times[1]);
    stream->synchronize();
    int64_t after = getMonotonicTime();
    constexpr int64_t millisecond = 1000000;
    EXPECT_GE(times[0], before - millisecond);
    EXPECT_LE(times[1], after + millisecond);
    EXPECT_GE(times[1] - times[0], 19 * millisecond);
  }
  EXPECT_EQ(fake::getCalls("cuLaunchHostFunc").size(), 0u);
}

/// Copies on one stream, scales on another, with or without a wait for the copy.
std::vector<float> runTwoStreams(CudaDevice &device, bool waits) {
  registerScale();
  auto copies = device.createStream(StreamKind::Copy, "copy");
  auto compute = device.createStream(StreamKind::Compute, "compute");
  auto kernel = device.loadKernel("k.cubin", fake::makeCubin(90, {"scale"}), "scale");
  auto event = device.createEvent();
  auto in = device.allocate(64);
  auto out = device.allocate(64);
  std::vector<float> values = makeRamp(16);
  device.copyIn(*copies, in->data, values.data(), in->bytes);
  copies->record(*event);
  if (waits)
    compute->wait(*event);
  void *pointers[] = {in->data, out->data};
  device.launch(*compute, *kernel, makeShape(1, 16), pointers);
  values = download<float>(device, *compute, out->data, 16);
  copies->synchronize();
  return values;
}

TEST_F(CudaDeviceTest, EventsOrderStreamsWhateverTheSchedule) {
  for (auto schedule : {fake::Schedule::Eager, fake::Schedule::OldestFirst,
                        fake::Schedule::NewestFirst, fake::Schedule::Random}) {
    fake::Options options;
    options.schedule = schedule;
    fake::reset(options);
    CudaDevice device(0);
    std::vector<float> values = runTwoStreams(device, true);
    EXPECT_EQ(values[15], 31.0f);
    EXPECT_THAT(fake::takeFindings(), IsEmpty());
  }
}

TEST_F(CudaDeviceTest, PlantedMissingWaitIsFoundOnEverySchedule) {
  for (auto schedule : {fake::Schedule::Eager, fake::Schedule::NewestFirst}) {
    fake::Options options;
    options.schedule = schedule;
    fake::reset(options);
    CudaDevice device(0);
    std::vector<float> values = runTwoStreams(device, false);
    // The eager schedule gives the right numbers by chance; the race is found anyway.
    EXPECT_EQ(values[15] == 31.0f, schedule == fake::Schedule::Eager);
    EXPECT_THAT(fake::takeFindings(),
                Contains(AllOf(StartsWith("race: kernel scale on stream 1 reads"),
                               HasSubstr("cuMemcpyHtoDAsync_v2 on stream 0 writes"))));
  }
}

TEST_F(CudaDeviceTest, PlantedDoubleFreeAndUseAfterFreeAreFound) {
  CudaDevice device(0);
  const cuda::Driver &driver = device.getContext()->use();
  auto stream = device.createStream(StreamKind::Compute, "compute");
  cuda::DevicePointer pointer = 0;
  driver.memAlloc(&pointer, 64);
  EXPECT_EQ(driver.memFree(pointer), cuda::SUCCESS);
  EXPECT_NE(driver.memFree(pointer), cuda::SUCCESS);
  EXPECT_THAT(fake::takeFindings(), ElementsAre(HasSubstr("double free")));
  float value = 0;
  device.copyIn(*stream, reinterpret_cast<void *>(uintptr_t(pointer)), &value, sizeof(value));
  EXPECT_THAT(fake::takeFindings(), ElementsAre(HasSubstr("after it was freed")));
}

TEST_F(CudaDeviceTest, PlantedFreeOfMemoryInUseIsFound) {
  fake::Options options;
  options.schedule = fake::Schedule::OldestFirst;
  fake::reset(options);
  CudaDevice device(0);
  auto stream = device.createStream(StreamKind::Copy, "copy");
  auto memory = device.allocate(64);
  std::vector<float> values = makeRamp(16);
  device.copyIn(*stream, memory->data, values.data(), 64);
  memory.reset();
  EXPECT_THAT(fake::takeFindings(), ElementsAre(HasSubstr("may still use")));
}

TEST_F(CudaDeviceTest, PlantedLeakIsFound) {
  CudaDevice device(0);
  const cuda::Driver &driver = device.getContext()->use();
  cuda::DevicePointer pointer = 0;
  driver.memAlloc(&pointer, 64);
  EXPECT_THAT(fake::findLeaks(), Contains("memory of 64 bytes on device 0"));
  driver.memFree(pointer);
}

TEST_F(CudaDeviceTest, PlantedWriteBehindTheEndIsFound) {
  CudaDevice device(0);
  auto stream = device.createStream(StreamKind::Copy, "copy");
  auto memory = device.allocate(64);
  std::vector<float> values = makeRamp(17);
  std::string message = catchError(ErrorCode::Internal, [&] {
    device.copyIn(*stream, memory->data, values.data(), 68);
    stream->synchronize();
  });
  EXPECT_THAT(message, HasSubstr("failed with CUDA_ERROR_ILLEGAL_ADDRESS (an illegal memory access "
                                 "was encountered)"));
  EXPECT_THAT(fake::takeFindings(), Contains(HasSubstr("not all in one buffer")));
}

TEST_F(CudaDeviceTest, EveryFailingCallIsAnErrorThatNamesIt) {
  // Each driver call of a small program fails once; the error must name it, and nothing may leak.
  auto program = [] {
    registerScale();
    CudaDevice device(0);
    std::vector<float> values = runTwoStreams(device, true);
  };
  const char *calls[] = {"cuDeviceGetCount",
                         "cuDeviceGet",
                         "cuDeviceGetName",
                         "cuDeviceGetAttribute",
                         "cuDevicePrimaryCtxRetain",
                         "cuCtxGetStreamPriorityRange",
                         "cuStreamCreateWithPriority",
                         "cuModuleLoadDataEx",
                         "cuModuleGetFunction",
                         "cuEventCreate",
                         "cuMemAlloc_v2",
                         "cuMemHostAlloc",
                         "cuMemcpyHtoDAsync_v2",
                         "cuEventRecord",
                         "cuStreamWaitEvent",
                         "cuLaunchKernel",
                         "cuMemcpyDtoHAsync_v2",
                         "cuLaunchHostFunc",
                         "cuStreamSynchronize"};
  for (const char *call : calls) {
    fake::reset();
    fake::failCall(call, 719);
    std::string name = call;
    name = name.substr(0, name.find("_v2"));
    EXPECT_THAT(catchError(ErrorCode::Internal, program),
                AllOf(StartsWith(name + " failed with CUDA_ERROR_LAUNCH_FAILED (unspecified launch "
                                        "failure)"),
                      HasSubstr("CUDA_LAUNCH_BLOCKING"), HasSubstr("restart it")));
    EXPECT_THAT(fake::findLeaks(), IsEmpty()) << call;
    fake::takeFindings(); // memory freed while a failed stream may use it
  }
}

TEST_F(CudaDeviceTest, CallersContextIsLeftAsItWas) {
  CudaDevice callers(1);
  const cuda::Driver &driver = callers.getContext()->use();
  {
    CallerContext keep;
    CudaDevice device(0);
    device.createStream(StreamKind::Compute, "compute")->synchronize();
  }
  // The fake driver records the device of an allocation, which is that of the current context.
  cuda::DevicePointer pointer = 0;
  EXPECT_EQ(driver.memAlloc(&pointer, 64), cuda::SUCCESS);
  EXPECT_EQ(fake::getCalls("cuMemAlloc_v2").back().device, 1);
  driver.memFree(pointer);
  driver.ctxSetCurrent(nullptr);
  {
    CallerContext keep;
    CudaDevice device(0);
    device.allocate(64);
  }
  EXPECT_NE(driver.memAlloc(&pointer, 64), cuda::SUCCESS);
  EXPECT_THAT(fake::takeFindings(), ElementsAre("cuMemAlloc_v2 without a current context"));
}

TEST_F(CudaDeviceTest, LostGpuIsToldAsSuch) {
  for (int error : {46, 214, 220, 226}) {
    fake::reset();
    fake::failCall("cuStreamSynchronize", error);
    EXPECT_THAT(catchError(ErrorCode::Unavailable,
                           [] {
                             CudaDevice device(0);
                             device.createStream(StreamKind::Compute, "compute")->synchronize();
                           }),
                AllOf(HasSubstr("the GPU is lost"), HasSubstr("restart the process")))
        << error;
  }
}

/// After its communication failed, a stream's work may go on: its pending copies to the host must
/// not write, because their targets may be gone.
TEST_F(CudaDeviceTest, CopiesOfAGivenUpStreamWriteNothing) {
  fake::Options options;
  options.schedule = fake::Schedule::OldestFirst;
  fake::reset(options);
  struct Failure : StreamMonitor {
    void poll() override { throw Error(ErrorCode::PeerFailed, "a peer is gone"); }
  };
  CudaDevice device(0);
  auto stream = device.createStream(StreamKind::Compute, "compute");
  auto memory = upload(device, *stream, std::vector<float>{1, 2, 3});
  std::latch reached(1), released(1);
  auto event = device.createEvent();
  std::thread blocker([&] {
    auto other = device.createStream(StreamKind::Compute, "other");
    other->enqueueHost([&] {
      reached.count_down();
      released.wait();
    });
    other->record(*event);
    other->synchronize();
  });
  reached.wait();
  std::vector<float> target(3, -1);
  auto failure = std::make_shared<Failure>();
  auto &cudaStream = static_cast<CudaStream &>(*stream);
  stream->wait(*event);
  device.copyOut(*stream, target.data(), memory->data, 12);
  cudaStream.addMonitor(failure);
  catchError(ErrorCode::PeerFailed, [&] { stream->synchronize(); });
  released.count_down();
  blocker.join();
  failure.reset();
  stream->synchronize();
  EXPECT_EQ(target, std::vector<float>(3, -1));
}

} // namespace

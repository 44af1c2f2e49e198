//===- LoopbackTest.cpp - kernels and work of loopback ranks --------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// What every transport must do is tested in TransportConformanceTest.cpp.
//
//===----------------------------------------------------------------------===//

#include "AllTypes.h"
#include "runtime/comm/Reduce.h"
#include "runtime/comm/loopback/LoopbackTransport.h"
#include "runtime/comm/loopback/ReducePtx.h"
#include "test/fake/GpuHarness.h"

#include <barrier>
#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

using namespace gridloom;
using namespace gridloom::rt;
using namespace gridloom::rt::test;
using testing::HasSubstr;
using testing::IsEmpty;

namespace {

/// Random bits for integers; for floats random numbers with some NaN and infinities.
std::vector<std::byte> makeOperand(DataType type, size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<std::byte> bytes(count * sizeOf(type));
  for (size_t i = 0; i < count; ++i) {
    float x = normal(random) * std::exp2(float(int(random() % 9) - 4));
    if (random() % 16 == 0)
      x = random() % 2 ? NAN : float(INFINITY);
    std::byte *at = bytes.data() + i * sizeOf(type);
    auto put = [&](auto value) { std::memcpy(at, &value, sizeof value); };
    if (type == DataType::F32)
      put(x);
    else if (type == DataType::F64)
      put(double(x) + double(normal(random)) * 1e-9);
    else if (type == DataType::F16)
      put(_Float16(x));
    else if (type == DataType::BF16)
      put(uint16_t(std::bit_cast<uint32_t>(x) >> 16));
    else if (uint64_t bits = type == DataType::Bool ? random() % 3 : random(); true)
      std::memcpy(at, &bits, sizeOf(type));
  }
  return bytes;
}

/// Whether an element is NaN; its payload is unspecified.
bool isNan(DataType type, const std::byte *at) {
  uint64_t bits = 0;
  std::memcpy(&bits, at, sizeOf(type));
  switch (type) {
  case DataType::F32:
    return std::isnan(std::bit_cast<float>(uint32_t(bits)));
  case DataType::F64:
    return std::isnan(std::bit_cast<double>(bits));
  case DataType::F16:
    return (bits & 0x7fff) > 0x7c00;
  case DataType::BF16:
    return (bits & 0x7fff) > 0x7f80;
  default:
    return false;
  }
}

class LoopbackTest : public FakeGpus {
protected:
  /// Reduces on the fake GPU, starting at element `offset` of each buffer.
  std::vector<std::byte> reduce(DataType type, Reduction reduction,
                                const std::vector<std::vector<std::byte>> &inputs, size_t offset) {
    CudaDevice device(0);
    auto stream = device.createStream(StreamKind::Compute, "test");
    std::string text = makeReducePtx(type, reduction, int(inputs.size()));
    auto kernel = device.loadKernel("reduce.ptx", std::as_bytes(std::span(text)),
                                    getReduceName(type, reduction, int(inputs.size())));
    size_t count = inputs[0].size() / sizeOf(type);
    size_t skip = offset * sizeOf(type);
    std::vector<std::unique_ptr<Memory>> memory;
    std::vector<void *> parameters;
    for (const auto &input : inputs) {
      memory.push_back(device.allocate(skip + input.size()));
      parameters.push_back(static_cast<std::byte *>(memory.back()->data) + skip);
      device.copyIn(*stream, parameters.back(), input.data(), input.size());
    }
    parameters.push_back(parameters.front()); // in place
    size_t vectors = skip % reduceVectorBytes ? 0 : inputs[0].size() / reduceVectorBytes;
    parameters.push_back(reinterpret_cast<void *>(vectors));
    parameters.push_back(reinterpret_cast<void *>(count));
    LaunchShape shape;
    shape.grid[0] = 2;
    shape.block[0] = 64;
    device.launch(*stream, *kernel, shape, parameters);
    std::vector<std::byte> result(inputs[0].size());
    device.copyOut(*stream, result.data(), parameters.front(), result.size());
    stream->synchronize();
    return result;
  }
};

} // namespace

TEST_F(LoopbackTest, KernelsReduceAsTheHostDoes) {
  int checked = 0;
  for (DataType type : allTypes)
    for (Reduction reduction : allReductions)
      for (auto [members, offset] : {std::pair(3, size_t(0)), {2, size_t(1)}}) {
        constexpr size_t count = 307;
        std::vector<std::vector<std::byte>> inputs;
        std::vector<const void *> pointers;
        for (int i = 0; i < members; ++i)
          inputs.push_back(makeOperand(type, count, uint64_t(checked * 8 + i)));
        for (const auto &input : inputs)
          pointers.push_back(input.data());
        std::vector<std::byte> expected(inputs[0].size());
        reduceOnHost(expected.data(), pointers, count, type, reduction);
        std::vector<std::byte> actual = this->reduce(type, reduction, inputs, offset);
        for (size_t i = 0; i < count; ++i) {
          const std::byte *ours = actual.data() + i * sizeOf(type);
          const std::byte *theirs = expected.data() + i * sizeOf(type);
          if (isNan(type, ours) && isNan(type, theirs))
            continue;
          ASSERT_EQ(std::memcmp(ours, theirs, sizeOf(type)), 0)
              << nameOf(reduction) << " of " << members << " " << nameOf(type) << " at " << i;
        }
        ++checked;
      }
  EXPECT_EQ(checked, 104);
}

TEST_F(LoopbackTest, KernelsAssembleForEveryGpu) {
  if (std::system("ptxas --version > /dev/null 2>&1") != 0)
    GTEST_SKIP() << "ptxas is not installed";
  std::filesystem::path folder =
      std::filesystem::path(testing::TempDir()) / ("gridloom-reduce-" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  // One file with the kernels of all types: a ptxas process for each would take most of the time.
  for (const char *architecture : {"sm_80", "sm_90", "sm_100"}) {
    std::string text;
    for (DataType type : allTypes)
      for (Reduction reduction : allReductions)
        for (int members : {2, 8}) {
          std::string kernel = makeReducePtx(type, reduction, members);
          text += text.empty() ? kernel : kernel.substr(kernel.find(".visible"));
        }
    std::ofstream(folder / "all.ptx") << text;
    std::string command = std::string("ptxas -arch=") + architecture + " " +
                          (folder / "all.ptx").string() + " -o " + (folder / "all.cubin").string();
    EXPECT_EQ(std::system(command.c_str()), 0) << architecture;
  }
  std::filesystem::remove_all(folder);
}

TEST_F(LoopbackTest, RanksOfTwoGpusAreRefused) {
  auto hub = std::make_shared<LoopbackHub>(2);
  std::vector<std::string> errors = runRanks(2, [&](int rank) {
    CudaDevice device(rank);
    auto transport = createLoopbackTransport(device, hub, rank);
    std::vector<int> ranks = {0, 1};
    transport->createCommunicator(ranks, "world");
  });
  EXPECT_THAT(errors, testing::Each(testing::AllOf(HasSubstr("loopback joins ranks of one GPU"),
                                                   HasSubstr("use --transport nccl"))));
}

/// A producer on each rank's compute stream and an all_reduce on its communication stream, without
/// the wait between them.
TEST_F(LoopbackTest, PlantedMissingWaitIsFound) {
  for (bool waits : {true, false}) {
    fake::reset({1});
    auto hub = std::make_shared<LoopbackHub>(3);
    std::vector<std::string> errors = runRanks(3, [&](int rank) {
      CudaDevice device(0);
      auto transport = createLoopbackTransport(device, hub, rank);
      std::vector<int> ranks = {0, 1, 2};
      auto world = transport->createCommunicator(ranks, "world");
      auto compute = device.createStream(StreamKind::Compute, "compute");
      auto stream = device.createStream(StreamKind::Communication, "comm");
      auto event = device.createEvent();
      auto memory = device.allocate(400);
      std::vector<float> values(100, float(rank + 1));
      device.copyIn(*compute, memory->data, values.data(), 400);
      compute->record(*event);
      if (waits)
        stream->wait(*event);
      world->allReduce(*stream, memory->data, memory->data, 100, DataType::F32, Reduction::Sum,
                       {"all_reduce", 1, "/MatMul"});
      std::vector<float> result = download<float>(device, *stream, memory->data, 100);
      if (waits)
        EXPECT_EQ(result, std::vector<float>(100, 6));
      compute->synchronize();
      world->barrier(*stream, {"barrier", 2, ""}); // peers read this rank's memory
      stream->synchronize();
    });
    EXPECT_THAT(errors, testing::Each(""));
    std::vector<std::string> findings = fake::takeFindings();
    if (waits)
      EXPECT_THAT(findings, IsEmpty());
    else
      EXPECT_THAT(findings, testing::Contains(HasSubstr("race: ")));
    hub.reset();
  }
}

/// A call of a collective must not wait for the GPU.
TEST_F(LoopbackTest, CallsWaitForPeersAloneAndFailuresNameTheOperation) {
  fake::Options options;
  options.devices = 1;
  options.schedule = fake::Schedule::OldestFirst;
  fake::reset(options);
  auto hub = std::make_shared<LoopbackHub>(2);
  std::barrier together(2);
  std::vector<std::string> errors = runRanks(2, [&](int rank) {
    CudaDevice device(0);
    auto transport = createLoopbackTransport(device, hub, rank);
    std::vector<int> ranks = {0, 1};
    auto world = transport->createCommunicator(ranks, "world");
    auto stream = device.createStream(StreamKind::Communication, "comm");
    auto memory = upload(device, *stream, std::vector<float>(64, 1.0f));
    together.arrive_and_wait();
    size_t before = fake::getCalls("cuStreamSynchronize").size();
    together.arrive_and_wait();
    for (uint32_t i = 0; i < 8; ++i)
      world->allReduce(*stream, memory->data, memory->data, 64, DataType::F32, Reduction::Sum,
                       {"all_reduce", i, "/MatMul"});
    together.arrive_and_wait();
    EXPECT_EQ(fake::getCalls("cuStreamSynchronize").size(), before);
    together.arrive_and_wait();
    EXPECT_EQ(download<float>(device, *stream, memory->data, 64), std::vector<float>(64, 256));
    world->barrier(*stream, {"barrier", 8, ""});
    stream->synchronize();
    // The next kernel launch fails; both ranks report it.
    if (rank == 0)
      fake::failCall("cuLaunchKernel", 14);
    try {
      world->allReduce(*stream, memory->data, memory->data, 64, DataType::F32, Reduction::Sum,
                       {"all_reduce", 9, "/MatMul"});
    } catch (const Error &) {
      drain(*stream);
      throw;
    }
  });
  EXPECT_THAT(errors, testing::Each(testing::AllOf(HasSubstr("all_reduce #9 (onnx node /MatMul)"),
                                                   HasSubstr("cuLaunchKernel"))));
}

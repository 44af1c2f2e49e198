//===- CudaGraphTest.cpp - work captured as a graph -----------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//

#include "test/fake/GpuHarness.h"

#include <numeric>

using namespace gridloom;
using namespace gridloom::rt;
using namespace gridloom::rt::test;
using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

namespace {

constexpr uint32_t count = 64;
constexpr size_t bytes = count * sizeof(float);

/// Kernel `symbol`: out[i] = function(in[i]) on 64 floats.
void registerMap(const std::string &symbol, float (*function)(float)) {
  fake::registerKernel(symbol, {2,
                                [](const fake::Launch &launch) -> std::vector<fake::Access> {
                                  return {{launch.pointers[0], bytes, false},
                                          {launch.pointers[1], bytes, true}};
                                },
                                [=](const fake::Launch &launch) {
                                  auto *in = static_cast<const float *>(launch.pointers[0]);
                                  auto *out = static_cast<float *>(launch.pointers[1]);
                                  std::transform(in, in + count, out, function);
                                }});
}

/// a = 2 x on the first stream and b = x + 3 on the second; then a is copied over half of b on the
/// first, which waits for the second if `waits`; then x = b, so that replays differ.
struct Fork {
  explicit Fork(bool waits = true) : waits(waits) {
    registerMap("twice", [](float x) { return 2 * x; });
    registerMap("more", [](float x) { return x + 3; });
    first = device.createStream(StreamKind::Compute, "compute");
    second = device.createStream(StreamKind::Communication, "comm");
    auto code = fake::makeCubin(90, {"twice", "more"});
    twice = device.loadKernel("k.cubin", code, "twice");
    more = device.loadKernel("k.cubin", code, "more");
    begun = device.createEvent();
    done = device.createEvent();
    for (auto *memory : {&x, &a, &b})
      *memory = device.allocate(bytes);
    std::vector<float> values(count);
    std::iota(values.begin(), values.end(), 0.0f);
    device.copyIn(*first, x->data, values.data(), bytes);
    first->synchronize();
  }

  void launch(Stream &stream, Kernel &kernel, const Memory &in, const Memory &out) {
    void *pointers[] = {in.data, out.data};
    LaunchShape shape;
    shape.block[0] = count;
    device.launch(stream, kernel, shape, pointers);
  }
  void submit() {
    first->record(*begun);
    second->wait(*begun);
    launch(*first, *twice, *x, *a);
    launch(*second, *more, *x, *b);
    second->record(*done);
    if (waits)
      first->wait(*done);
    device.copy(*first, b->data, a->data, bytes / 2);
    device.copy(*first, x->data, b->data, bytes);
  }
  std::unique_ptr<WorkGraph> capture() {
    Stream *streams[] = {first.get(), second.get()};
    device.beginCapture(streams);
    submit();
    return device.endCapture();
  }
  std::vector<float> read() { return download<float>(device, *first, x->data, count); }

  static std::vector<float> expect(int times) {
    std::vector<float> values(count);
    std::iota(values.begin(), values.end(), 0.0f);
    for (; times > 0; --times)
      for (uint32_t i = 0; i < count; ++i)
        values[i] = i < count / 2 ? 2 * values[i] : values[i] + 3;
    return values;
  }

  bool waits;
  CudaDevice device{0};
  std::unique_ptr<Stream> first, second;
  std::unique_ptr<Kernel> twice, more;
  std::unique_ptr<Event> begun, done;
  std::unique_ptr<Memory> x, a, b;
};

class CudaGraphTest : public FakeGpus {
protected:
  static void restart(fake::Schedule schedule, uint64_t seed = 1) {
    fake::Options options;
    options.schedule = schedule;
    options.seed = seed;
    fake::reset(options);
  }
};

TEST_F(CudaGraphTest, CaptureRunsNothingAndReplaysRunAll) {
  for (uint64_t seed = 0; seed < 6; ++seed) {
    restart(seed ? fake::Schedule::Random : fake::Schedule::NewestFirst, seed);
    Fork fork;
    auto graph = fork.capture();
    EXPECT_EQ(fork.read(), Fork::expect(0));
    for (int replay = 1; replay <= 3; ++replay) {
      fork.device.replay(*fork.first, *graph);
      if (replay != 2) // the third replay follows the second without a wait
        EXPECT_EQ(fork.read(), Fork::expect(replay));
    }
    EXPECT_EQ(fake::getCalls("cuLaunchKernel").size(), 2u);
    EXPECT_EQ(fake::getCalls("cuGraphLaunch").size(), 3u);
    EXPECT_THAT(fake::takeFindings(), IsEmpty());
  }
}

TEST_F(CudaGraphTest, PlantedMissingWaitIsFoundInAReplay) {
  Fork fork(/*waits=*/false);
  auto graph = fork.capture();
  EXPECT_THAT(fake::takeFindings(), IsEmpty());
  fork.device.replay(*fork.first, *graph);
  fork.first->synchronize();
  EXPECT_THAT(fake::takeFindings(),
              Contains(AllOf(StartsWith("race: "), HasSubstr("kernel more"))));
}

TEST_F(CudaGraphTest, WorkBesideAGraphIsOrderedByItsStream) {
  restart(fake::Schedule::NewestFirst);
  Fork fork;
  auto graph = fork.capture();
  fork.submit(); // steps before and after the graph
  fork.device.replay(*fork.first, *graph);
  fork.submit();
  EXPECT_EQ(fork.read(), Fork::expect(3));
  fork.second->synchronize();
  fork.device.replay(*fork.first, *graph);
  fork.launch(*fork.second, *fork.more, *fork.x, *fork.b); // without a wait for the graph
  fork.first->synchronize();
  fork.second->synchronize();
  EXPECT_THAT(fake::takeFindings(), Contains(StartsWith("race: ")));
}

TEST_F(CudaGraphTest, OutlivesTheDeviceAndLeavesNothing) {
  auto fork = std::make_unique<Fork>();
  auto graph = fork->capture();
  fork->device.replay(*fork->first, *graph);
  fork->first->synchronize(); // then its memory is freed
  fork.reset();
  graph.reset();
  EXPECT_THAT(fake::findLeaks(), IsEmpty());
}

TEST_F(CudaGraphTest, CancelledCaptureLeavesStreamsAsTheyWere) {
  Fork fork;
  Stream *streams[] = {fork.first.get(), fork.second.get()};
  fork.device.beginCapture(streams);
  fork.submit();
  fork.device.cancelCapture();
  fork.submit();
  EXPECT_EQ(fork.read(), Fork::expect(1));
}

/// Waiting for an event that a cancelled capture recorded means its last record before the capture.
TEST_F(CudaGraphTest, EventOfACancelledCaptureMeansItsRecordBefore) {
  restart(fake::Schedule::OldestFirst);
  Fork fork;
  fork.submit();
  Stream *streams[] = {fork.first.get(), fork.second.get()};
  fork.device.beginCapture(streams);
  fork.submit();
  fork.device.cancelCapture();
  auto late = fork.device.createStream(StreamKind::Copy, "late");
  late->wait(*fork.done);
  fork.launch(*late, *fork.more, *fork.b, *fork.b); // after the record that `done` refers to
  late->synchronize();
  fork.first->synchronize();
  fork.second->synchronize();
  auto findings = fake::takeFindings(); // but not after the first stream's copies
  EXPECT_THAT(findings, Not(Contains(HasSubstr("kernel more on stream 1"))));
}

TEST_F(CudaGraphTest, NodesKeepTheirStreamsPriorities) {
  for (auto [version, flags] : {std::pair(13000, "8"), {11070, "8"}, {11060, "0"}}) {
    fake::Options options;
    options.driverVersion = version;
    fake::reset(options);
    Fork fork;
    auto graph = fork.capture();
    auto calls = fake::getCalls("cuGraphInstantiateWithFlags");
    ASSERT_EQ(calls.size(), 1u);
    EXPECT_EQ(calls[0].detail, flags) << version;
  }
}

TEST_F(CudaGraphTest, WorkspaceGrowsWhileCapturing) {
  Fork fork;
  auto &stream = static_cast<CudaStream &>(*fork.first);
  void *small = stream.getWorkspace(1000);
  EXPECT_EQ(stream.getWorkspace(1024), small);
  Stream *streams[] = {fork.first.get(), fork.second.get()};
  fork.device.beginCapture(streams);
  void *large = stream.getWorkspace(5000);
  EXPECT_NE(large, small);
  fork.device.copy(stream, large, fork.x->data, bytes);
  fork.device.copy(stream, fork.b->data, large, bytes);
  auto graph = fork.device.endCapture();
  stream.getWorkspace(100000); // the graph keeps its own
  fork.device.replay(stream, *graph);
  fork.first->synchronize();
}

TEST_F(CudaGraphTest, OldDriverSaysWhyNot) {
  fake::Options options;
  options.driverVersion = 11030;
  fake::reset(options);
  EXPECT_EQ(CudaDevice(0).whyNotCapturable(), "the driver supports CUDA 11.3, graphs need 11.4");
  fake::reset();
  EXPECT_EQ(CudaDevice(0).whyNotCapturable(), "");
  EXPECT_EQ(createCpuDevice(1)->whyNotCapturable(), "");
}

TEST_F(CudaGraphTest, EveryFailingCallIsNamedAndLeavesNothing) {
  for (const char *call : {"cuStreamBeginCapture_v2", "cuStreamEndCapture",
                           "cuGraphInstantiateWithFlags", "cuGraphLaunch"}) {
    fake::reset();
    fake::failCall(call, 999);
    std::string name = call;
    EXPECT_THAT(catchError(ErrorCode::Internal,
                           [] {
                             Fork fork;
                             auto graph = fork.capture();
                             fork.device.replay(*fork.first, *graph);
                           }),
                StartsWith(name.substr(0, name.find("_v2")) + " failed with error 999"));
    EXPECT_THAT(fake::findLeaks(), IsEmpty()) << call;
  }
}

//===----------------------------------------------------------------------===//
// What a capture forbids
//===----------------------------------------------------------------------===//

/// The driver API during a capture of one stream.
struct Capturing {
  Capturing() { driver.streamBeginCapture(handle, cuda::STREAM_CAPTURE_MODE_THREAD_LOCAL); }
  cuda::Result end() {
    cuda::Graph graph = nullptr;
    cuda::Result result = driver.streamEndCapture(handle, &graph);
    if (graph)
      driver.graphDestroy(graph);
    return result;
  }

  CudaDevice device{0};
  const cuda::Driver &driver = device.getContext()->use();
  std::unique_ptr<Stream> stream = device.createStream(StreamKind::Compute, "compute");
  std::unique_ptr<Stream> other = device.createStream(StreamKind::Compute, "other");
  CudaEvent event{device.getContext()};
  cuda::StreamHandle handle = static_cast<cuda::StreamHandle>(stream->getNative());
};

TEST_F(CudaGraphTest, WaitingOnTheHostEndsACapture) {
  for (int call = 0; call < 5; ++call) {
    Capturing capture;
    const cuda::Driver &driver = capture.driver;
    cuda::DevicePointer pointer = 0;
    cuda::Result results[] = {
        call == 0 ? driver.streamSynchronize(capture.handle) : 900,
        call == 1 ? driver.memAlloc(&pointer, 64) : 900,
        call == 2 ? driver.eventQuery(capture.event.getHandle()) : 900,
        call == 3 ? driver.eventSynchronize(capture.event.getHandle()) : 900,
        call == 4 ? driver.streamQuery(capture.handle) : 900,
    };
    for (cuda::Result result : results)
      EXPECT_EQ(result, 900) << call;
    EXPECT_EQ(capture.end(), 901) << call;
    EXPECT_EQ(driver.streamSynchronize(capture.handle), cuda::SUCCESS);
  }
}

TEST_F(CudaGraphTest, OtherThreadsGoOnDuringACapture) {
  Capturing capture;
  std::thread([&] {
    const cuda::Driver &driver = capture.device.getContext()->use();
    cuda::DevicePointer pointer = 0;
    EXPECT_EQ(driver.memAlloc(&pointer, 64), cuda::SUCCESS);
    EXPECT_EQ(driver.memFree(pointer), cuda::SUCCESS);
    EXPECT_EQ(driver.eventQuery(capture.event.getHandle()), cuda::SUCCESS);
  }).join();
  EXPECT_EQ(capture.end(), cuda::SUCCESS);
}

TEST_F(CudaGraphTest, EventsDoNotCrossTheEdgeOfACapture) {
  {
    CudaDevice device(0);
    auto stream = device.createStream(StreamKind::Compute, "compute");
    auto other = device.createStream(StreamKind::Compute, "other");
    auto event = device.createEvent();
    other->record(*event);
    Stream *streams[] = {stream.get()};
    device.beginCapture(streams);
    EXPECT_THAT(catchError(ErrorCode::Internal, [&] { stream->wait(*event); }),
                StartsWith("cuStreamWaitEvent failed with error 905"));
    device.cancelCapture();
  }
  Capturing capture;
  capture.stream->record(capture.event);
  EXPECT_EQ(capture.end(), cuda::SUCCESS);
  EXPECT_EQ(capture.driver.eventQuery(capture.event.getHandle()), 907);
  EXPECT_EQ(
      capture.driver.streamWaitEvent(static_cast<cuda::StreamHandle>(capture.other->getNative()),
                                     capture.event.getHandle(), 0),
      907);
}

TEST_F(CudaGraphTest, StreamThatDoesNotComeBackEndsACapture) {
  CudaDevice device(0);
  auto memory = device.allocate(128);
  auto stream = device.createStream(StreamKind::Compute, "compute");
  auto other = device.createStream(StreamKind::Compute, "other");
  auto event = device.createEvent();
  Stream *streams[] = {stream.get()};
  device.beginCapture(streams);
  stream->record(*event);
  other->wait(*event);
  device.copy(*other, static_cast<std::byte *>(memory->data) + 64, memory->data, 64);
  EXPECT_THAT(catchError(ErrorCode::Internal, [&] { device.endCapture(); }),
              StartsWith("cuStreamEndCapture failed with CUDA_ERROR_STREAM_CAPTURE_UNJOINED"));
  other->synchronize(); // it no longer captures
}

} // namespace

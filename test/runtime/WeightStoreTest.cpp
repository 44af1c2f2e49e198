//===- WeightStoreTest.cpp - loading, splitting and replacing weights -----===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/core/WeightStore.h"

#include "PlanBuilder.h"
#include "SystemCalls.h"
#include "runtime/comm/local/LocalTransport.h"
#include "runtime/core/Error.h"
#include "runtime/core/InProcessJob.h"
#include "runtime/core/Shard.h"
#include "runtime/train/Checkpoint.h"
#include "support/Sha256.h"

#include <gmock/gmock.h>
#include <numeric>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <thread>

using namespace gridloom;
using namespace gridloom::rt;
using namespace gridloom::test;
using testing::AllOf;
using testing::ElementsAreArray;
using testing::HasSubstr;

namespace {

std::vector<float> iota(size_t count, float first) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), first);
  return values;
}

std::string messageOf(const std::function<void()> &work) {
  try {
    work();
  } catch (const Error &error) {
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    return error.what();
  }
  return "nothing was thrown";
}

//===----------------------------------------------------------------------===//
// Shards
//===----------------------------------------------------------------------===//

/// Splitting and reassembling restores every element, also where sizes do not divide.
TEST(ShardTest, CutsAndPlacesBack) {
  Mesh mesh({{"a", 2}, {"b", 3}}, "");
  const std::vector<std::vector<std::string>> axes[] = {
      {{}, {}}, {{"a"}, {}}, {{}, {"b"}}, {{"a"}, {"b"}}, {{"b", "a"}, {}}, {{}, {"a", "b"}}};
  for (const auto &dims : axes)
    for (int64_t granule : {1, 2, 4})
      for (int64_t rows : {1, 5, 6, 12})
        for (int64_t columns : {1, 4, 7})
          for (int64_t pad : {0, 3}) {
            schema::Sharding sharding;
            PlanBuilder::fillSharding(sharding, dims);
            sharding.mutable_dims(0)->set_granule(granule);
            std::vector<float> global = iota(size_t(rows * columns), 1), back(global.size(), 0);
            std::vector<int> seen(global.size(), 0);
            for (int rank = 0; rank < 6; ++rank) {
              Shard shard = getShard(mesh, rank, sharding, {rows, columns});
              EXPECT_EQ(shard.local[0] % granule, 0);
              int64_t row = shard.local[1] + pad;
              std::vector<float> cut(size_t(shard.local[0] * row), -1), dense;
              cutShard(shard, 4, reinterpret_cast<std::byte *>(global.data()),
                       reinterpret_cast<std::byte *>(cut.data()), pad);
              for (int64_t i = 0; i < shard.local[0]; ++i)
                for (int64_t j = 0; j < row; ++j) {
                  bool valid = i < shard.valid[0] && j < shard.valid[1];
                  float expected = 0;
                  if (valid)
                    expected = global[size_t((shard.begin[0] + i) * columns + shard.begin[1] + j)];
                  ASSERT_EQ(cut[size_t(i * row + j)], expected);
                  if (j < shard.local[1])
                    dense.push_back(cut[size_t(i * row + j)]);
                }
              placeShard(shard, 4, reinterpret_cast<std::byte *>(dense.data()),
                         reinterpret_cast<std::byte *>(back.data()));
            }
            ASSERT_THAT(back, ElementsAreArray(global));
          }
}

/// A contiguous shard is one run that covers all of it; checked for every shard of some shapes.
TEST(ShardTest, PartsInOnePieceAreFound) {
  Mesh mesh({{"a", 2}, {"b", 3}}, "");
  size_t numFound = 0, numOthers = 0;
  for (const std::vector<int64_t> &global : std::vector<std::vector<int64_t>>{
           {}, {6}, {5}, {6, 4}, {2, 6}, {1, 6}, {6, 1, 4}, {2, 3, 4}})
    for (size_t a = 0; a <= global.size(); ++a) // the dimension that "a" splits; the last: none
      for (size_t b = 0; b <= global.size(); ++b) {
        std::vector<std::vector<std::string>> dims(global.size() + 1);
        dims[a].push_back("a");
        dims[b].push_back("b");
        dims.pop_back();
        schema::Sharding sharding;
        PlanBuilder::fillSharding(sharding, dims);
        for (int rank = 0; rank < 6; ++rank) {
          Shard shard = getShard(mesh, rank, sharding, global);
          int64_t size = 1;
          for (int64_t extent : shard.local)
            size *= extent;
          std::vector<int64_t> begins;
          forEachRun(shard, [&](int64_t begin, int64_t, int64_t count) {
            if (count == size)
              begins.push_back(begin);
          });
          std::optional<int64_t> found = findOnlyRun(shard);
          ASSERT_EQ(found.has_value(), begins.size() == 1);
          if (found)
            EXPECT_EQ(*found, begins[0]);
          ++(found ? numFound : numOthers);
        }
      }
  EXPECT_GT(numFound, 100u);
  EXPECT_GT(numOthers, 100u);
}

TEST(ShardTest, LocalSizes) {
  EXPECT_EQ(getShardSize(10, 4, 1), 3);
  EXPECT_EQ(getShardSize(768, 8, 64), 128);
  EXPECT_EQ(getShardSize(50257, 8, 1), 6283);
  EXPECT_EQ(getShardSize(0, 4, 1), 0);
  EXPECT_EQ(getShardSize(3, 1, 1), 3);
}

//===----------------------------------------------------------------------===//
// Replacements
//===----------------------------------------------------------------------===//

std::string toVarint(uint64_t value) {
  std::string text;
  for (; value >= 0x80; value >>= 7)
    text.push_back(char(value | 0x80));
  text.push_back(char(value));
  return text;
}
std::string toField(unsigned number, const std::string &bytes) {
  return toVarint(number << 3 | 2) + toVarint(bytes.size()) + bytes;
}

/// An ONNX model with only initializers; f32 as raw data.
std::string makeOnnx(
    const std::map<std::string, std::pair<std::vector<int64_t>, std::vector<float>>> &tensors) {
  std::string graph;
  for (auto &[name, tensor] : tensors) {
    std::string proto;
    for (int64_t size : tensor.first)
      proto += toVarint(1 << 3) + toVarint(uint64_t(size));
    proto += toVarint(2 << 3) + toVarint(1) + toField(8, name) + toField(9, toBytes(tensor.second));
    graph += toField(5, proto);
  }
  return toVarint(1 << 3) + toVarint(8) + toField(7, graph);
}

std::string makeSafeTensors(
    const std::map<std::string, std::pair<std::vector<int64_t>, std::vector<float>>> &tensors) {
  nlohmann::json header;
  std::string data;
  for (auto &[name, tensor] : tensors) {
    header[name] = {{"dtype", "F32"},
                    {"shape", tensor.first},
                    {"data_offsets", {data.size(), data.size() + tensor.second.size() * 4}}};
    data += toBytes(tensor.second);
  }
  header["__metadata__"] = {{"format", "pt"}};
  std::string text = header.dump();
  uint64_t size = text.size();
  return std::string(reinterpret_cast<char *>(&size), 8) + text + data;
}

/// y = d and z = w, where the prologue computes d = 2 * w; rows are split over ranks and padded.
class Weights : public testing::Test {
protected:
  TemporaryFolder folder;
  std::vector<float> w = iota(12, 1), w2 = iota(12, 100), scale = {3};

  PlanBuilder makePlan(int ranks) {
    PlanBuilder plan;
    if (ranks > 1)
      plan.addAxis("model", ranks);
    std::vector<std::string> axes =
        ranks > 1 ? std::vector<std::string>{"model"} : std::vector<std::string>{};
    int64_t rows = getShardSize(4, ranks, 1);
    plan.addWeight("w", {4, 3}, w);
    plan.manifest["folded"].push_back(
        {{"name", "scale"}, {"sha256", sha256(std::as_bytes(std::span(scale)))}});
    std::ifstream file(GRIDLOOM_TEST_KERNELS, std::ios::binary);
    plan.kernels["test.so"] = std::string{std::istreambuf_iterator<char>(file), {}};
    plan.addEntry({}, {PlanBuilder::argument("y", {4, 3}), PlanBuilder::argument("z", {4, 3})});
    schema::Stage &stage = plan.stages[0];
    schema::Kernel *kernel = stage.add_kernels();
    kernel->set_library("test.so");
    kernel->set_symbol("twice");
    kernel->set_num_pointers(2);
    kernel->set_rows(12);
    schema::Derived *derived = stage.add_derived();
    derived->set_name("d");
    derived->set_type(schema::F32);
    derived->add_shape(4);
    derived->add_shape(3);
    derived->add_sources("w");
    derived->set_arena_bytes(64);
    PlanBuilder::addBuffer(*derived, schema::INPUT, {4, 3});
    PlanBuilder::addBuffer(*derived, schema::ARENA, {4, 3});
    PlanBuilder::addBuffer(*derived, schema::OUTPUT, {4, 3});
    schema::Launch *launch = PlanBuilder::addStep(*derived->mutable_block()).mutable_launch();
    launch->add_inputs(0);
    launch->add_outputs(1);
    PlanBuilder::addCopy(*derived->mutable_block(), 1, 2);
    schema::Specialisation &program = plan.program();
    schema::Block &block = PlanBuilder::addBlock(program);
    for (const char *name : {"d", "w"}) {
      schema::Weight *weight = stage.add_weights();
      weight->set_name(name);
      weight->set_type(schema::F32);
      weight->add_shape(rows);
      weight->add_shape(3);
      weight->set_bytes(uint64_t(rows * 12));
      PlanBuilder::fillSharding(*weight->mutable_sharding(), {axes, {}});
      uint32_t index = uint32_t(stage.weights_size() - 1);
      PlanBuilder::fillBinding(*program.add_outputs(), index ? "z" : "y", {rows, 3}, {axes, {}});
      uint32_t from = PlanBuilder::addBuffer(program, schema::WEIGHT, {rows, 3}, index);
      uint32_t to = PlanBuilder::addBuffer(program, schema::OUTPUT, {rows, 3}, index);
      PlanBuilder::addCopy(block, from, to);
    }
    return plan;
  }
  void expect(InProcessJob &job, const std::vector<float> &values) {
    job.run();
    std::vector<float> doubled;
    for (float value : values)
      doubled.push_back(2 * value);
    HostArray y = job.getOutput("y"), z = job.getOutput("z");
    EXPECT_THAT(y.as<float>(), ElementsAreArray(doubled));
    EXPECT_THAT(z.as<float>(), ElementsAreArray(values));
  }
  std::filesystem::path write(const std::string &name, const std::string &contents) {
    writeFile(folder.getPath() / name, contents);
    return folder.getPath() / name;
  }
};

TEST_F(Weights, AreCutAndDerived) {
  for (int ranks : {1, 2, 3}) { // of 3, the last rank has only padding
    PlanBuilder plan = makePlan(ranks);
    InProcessJob job(Plan::load(plan.write(folder.getPath())));
    expect(job, w);
  }
}

TEST_F(Weights, AreReplacedByOnnxAndSafeTensors) {
  PlanBuilder plan = makePlan(2);
  InProcessJob job(Plan::load(plan.write(folder.getPath())));
  expect(job, w);
  job.updateWeights(write("new.onnx", makeOnnx({{"w", {{4, 3}, w2}}, {"scale", {{1}, scale}}})));
  expect(job, w2);
  std::vector<float> w3 = iota(12, -50);
  job.updateWeights(write("new.safetensors", makeSafeTensors({{"w", {{4, 3}, w3}}})));
  expect(job, w3);
}

TEST_F(Weights, AWrongReplacementChangesNothing) {
  PlanBuilder plan = makePlan(2);
  InProcessJob job(Plan::load(plan.write(folder.getPath())));
  auto update = [&](const std::string &name, const std::string &contents) {
    return messageOf([&] { job.updateWeights(write(name, contents)); });
  };
  EXPECT_THAT(update("a.onnx", makeOnnx({{"scale", {{1}, scale}}})),
              HasSubstr("has no weight 'w'"));
  EXPECT_THAT(update("b.onnx", makeOnnx({{"w", {{3, 4}, w2}}, {"scale", {{1}, scale}}})),
              HasSubstr("weight 'w' is f32 [3, 4], the plan needs f32 [4, 3]"));
  EXPECT_THAT(update("c.onnx", makeOnnx({{"w", {{4, 3}, w2}}, {"scale", {{1}, {4}}}})),
              HasSubstr("'scale' differs from the value compiled into the plan"));
  EXPECT_THAT(update("d.onnx", makeOnnx({{"w", {{4, 3}, w2}}})),
              HasSubstr("has no initializer 'scale'"));
  EXPECT_THAT(update("e.safetensors", "short"), HasSubstr("has 5 bytes"));
  EXPECT_THAT(update("f.safetensors", std::string("\xff\0\0\0\0\0\0\0{}", 10)),
              HasSubstr("declares a header of 255 bytes; the file has 10"));
  std::string cut = makeSafeTensors({{"w", {{4, 3}, w2}}});
  EXPECT_THAT(update("g.safetensors", cut.substr(0, cut.size() - 4)),
              HasSubstr("puts tensor 'w' of 48 bytes at 0 to 48 of 44"));
  EXPECT_THAT(
      update("h.safetensors", makeSafeTensors({{"w", {{4, 3}, w2}}, {"scale", {{1}, {4}}}})),
      HasSubstr("'scale' differs"));
  EXPECT_THAT(messageOf([&] { job.updateWeights(folder.getPath() / "none.onnx"); }),
              HasSubstr("none.onnx"));
  expect(job, w);
}

TEST_F(Weights, ACheckpointIsCheckedBeforeItReplacesThem) {
  InProcessJob job(Plan::load(makePlan(2).write(folder.getPath())));
  Checkpoint checkpoint;
  HostArray array = HostArray::allocate(DataType::F32, {4, 3});
  std::ranges::copy(w2, array.as<float>().begin());
  checkpoint.states["w"] = array;
  std::filesystem::path run = folder.getPath() / "run", saved = getCheckpointFolder(run, 7);
  checkpoint.write(saved);
  job.updateWeights(saved);
  expect(job, w2);
  std::fstream file(saved / "states.safetensors", std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(-1, std::ios::end);
  file.put('\0');
  file.close();
  for (const std::filesystem::path &path : {saved, run})
    EXPECT_THAT(messageOf([&] { job.updateWeights(path); }),
                AllOf(HasSubstr("states.safetensors"), HasSubstr("is damaged")));
  expect(job, w2);
}

TEST_F(Weights, MayStartFromAReplacement) {
  PlanBuilder plan = makePlan(2);
  InProcessOptions options;
  options.session.weights = write("new.safetensors", makeSafeTensors({{"w", {{4, 3}, w2}}}));
  InProcessJob job(Plan::load(plan.write(folder.getPath())), options);
  expect(job, w2);
}

TEST_F(Weights, TheModelMustBeTheCompiledOne) {
  PlanBuilder plan = makePlan(1);
  auto loaded = Plan::load(plan.write(folder.getPath()));
  std::string other = plan.model;
  other[5] ^= 1;
  write("model.onnx", other); // of the right size
  EXPECT_THAT(messageOf([&] { WeightSource::openModel(*loaded); }),
              HasSubstr("the plan was compiled from " + loaded->getModel().sha256));
  write("model.onnx", plan.model + "x");
  EXPECT_THAT(messageOf([&] { WeightSource::openModel(*loaded); }),
              HasSubstr("has 49 bytes, the plan was compiled from 48"));
  std::filesystem::remove(folder.getPath() / "model.onnx");
  EXPECT_THAT(messageOf([&] { WeightSource::openModel(*loaded); }),
              HasSubstr("model.onnx: the model whose weights the plan uses is not there"));
}

/// A file of 33 MiB is too large to be read whole at each load.
TEST_F(Weights, ALargeModelIsReadWhereItIsNewerThanThePlan) {
  namespace fs = std::filesystem;
  PlanBuilder plan = makePlan(1);
  plan.model.resize(size_t(33) << 20);
  fs::path folderOfPlan = plan.write(folder.getPath()), model = folder.getPath() / "model.onnx";
  auto loaded = Plan::load(folderOfPlan);
  auto written = fs::last_write_time(folderOfPlan / "manifest.json");
  WeightSource::openModel(*loaded);
  std::fstream(model, std::ios::binary | std::ios::in | std::ios::out) << 'x';
  fs::last_write_time(model, written + std::chrono::seconds(1));
  EXPECT_THAT(messageOf([&] { WeightSource::openModel(*loaded); }),
              HasSubstr("; compile again, or give the file with --weights"));
  fs::last_write_time(model, written - std::chrono::seconds(1));
  WeightSource::openModel(*loaded);
  EXPECT_THAT(messageOf([&] { WeightSource::openModel(*loaded, /*verifyDigest=*/true); }),
              HasSubstr("the plan was compiled from " + loaded->getModel().sha256));
}

/// CPU devices use aligned weights directly in the mapped file.
class MappedWeights : public Weights {
protected:
  /// A job whose weight 'w' is not copied.
  std::unique_ptr<InProcessJob> load() {
    model = plan.model;
    auto job = std::make_unique<InProcessJob>(Plan::load(plan.write(folder.getPath())));
    expect(*job, w);
    return job;
  }
  PlanBuilder plan = makePlan(2);
  std::string model;
};

TEST_F(MappedWeights, ChangedInPlaceTheyEndTheRun) {
  std::unique_ptr<InProcessJob> job = load();
  std::this_thread::sleep_for(std::chrono::milliseconds(20)); // file timestamps are coarse
  std::string other = model;
  other[5] ^= 1;
  write("model.onnx", other);
  EXPECT_THAT(messageOf([&] { job->run(); }),
              HasSubstr("model.onnx: was written to while it is in use; load it again"));
}

TEST_F(MappedWeights, CutOffTheyEndTheRunAndNotTheProcess) {
  std::unique_ptr<InProcessJob> job = load();
  write("model.onnx", "");
  EXPECT_THAT(messageOf([&] { job->run(); }),
              HasSubstr("model.onnx: was changed while it is in use: it had 48 bytes and has 0"));
}

TEST_F(MappedWeights, ReplacedByRenameTheyStayWhatTheyWere) {
  std::unique_ptr<InProcessJob> job = load();
  std::filesystem::rename(write("new.onnx", std::string(model.size(), 'x')),
                          folder.getPath() / "model.onnx");
  expect(*job, w);
}

/// Without openat2, links that lead out of the folder are refused, too.
TEST(MappedFileTest, StaysInTheFolderWithoutOpenat2) {
  TemporaryFolder folder;
  writeFile(folder.getPath() / "secret", "x");
  writeFile(folder.getPath() / "model/data", "y");
  std::filesystem::create_symlink("../secret", folder.getPath() / "model/out");
  std::filesystem::create_symlink("data", folder.getPath() / "model/in");
  pid_t child = fork();
  if (child == 0) {
    if (!forbidSystemCall(SYS_openat2, ENOSYS))
      _exit(2);
    bool isRefused = messageOf([&] {
                       MappedFile::openBeneath(folder.getPath() / "model", "out");
                     }).ends_with("it is a link that leads out of the model's folder");
    bool isFound =
        MappedFile::openBeneath(folder.getPath() / "model", "in")->getBytes().size() == 1;
    _exit(isRefused && isFound ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST(MappedFileTest, ReadsZerosWhereTheFileEnded) {
  TemporaryFolder folder;
  std::filesystem::path path = folder.getPath() / "file";
  writeFile(path, std::string(size_t(3) * 4096, 'x'));
  auto file = MappedFile::open(path);
  auto getSum = [&] {
    size_t sum = 0;
    for (std::byte byte : file->getBytes())
      sum += size_t(byte);
    return sum;
  };
  EXPECT_EQ(getSum(), size_t(3 * 4096 * 'x'));
  std::filesystem::resize_file(path, 4096);
  EXPECT_EQ(getSum(), size_t(4096 * 'x'));
  std::filesystem::remove(path); // its size can no longer be read
  EXPECT_THAT(messageOf([&] { file->requireUnchanged(); }),
              HasSubstr("file: could not be read while it is in use"));
}

TEST_F(Weights, ExternalFilesAreChecked) {
  PlanBuilder plan = makePlan(1);
  plan.manifest["weights"][0]["file"] = "data/w.bin";
  plan.manifest["weights"][0]["offset"] = 16;
  auto loaded = Plan::load(plan.write(folder.getPath()));
  EXPECT_THAT(messageOf([&] { WeightSource::openModel(*loaded); }), HasSubstr("data/w.bin"));
  write("data/w.bin", std::string(16, 0) + toBytes(w2).substr(4));
  EXPECT_THAT(messageOf([&] { WeightSource::openModel(*loaded); }),
              HasSubstr("weight 'w' ends at byte 64, the file has 60"));
  write("data/w.bin", std::string(16, 0) + toBytes(w2));
  InProcessJob job(loaded);
  expect(job, w2);
  // A plan with the files' digests refuses other contents.
  plan.editManifest = [&](nlohmann::json &manifest) {
    std::string data = std::string(16, 0) + toBytes(w);
    manifest["model"]["data"]["data/w.bin"] = sha256(std::as_bytes(std::span(data)));
  };
  loaded = Plan::load(plan.write(folder.getPath()));
  EXPECT_THAT(messageOf([&] { WeightSource::openModel(*loaded); }),
              HasSubstr("data/w.bin: has other contents than when the plan was compiled"));
  write("data/w.bin", std::string(16, 0) + toBytes(w));
  WeightSource::openModel(*loaded);
}

TEST_F(Weights, ExternalFilesAreNotFoundThroughLinksThatLeadOut) {
  PlanBuilder plan = makePlan(1);
  plan.manifest["weights"][0]["file"] = "data/w.bin";
  std::filesystem::path inner = folder.getPath() / "inner";
  auto loaded = Plan::load(plan.write(inner));
  write("w.bin", toBytes(w));
  std::filesystem::create_directory(inner / "data");
  std::filesystem::create_symlink("../../w.bin", inner / "data/w.bin");
  EXPECT_THAT(messageOf([&] { WeightSource::openModel(*loaded); }),
              HasSubstr("data/w.bin: cannot be read: it is a link that leads out of the model's "
                        "folder"));
  // Links that stay inside are followed, also absolute ones.
  write("inner/there.bin", toBytes(w));
  std::filesystem::remove(inner / "data/w.bin");
  std::filesystem::create_symlink(inner / "there.bin", inner / "data/w.bin");
  WeightSource::openModel(*loaded);
}

/// Ranks may read different files of the same name, as on machines with local disks.
TEST_F(Weights, RanksMustReadTheSame) {
  PlanBuilder plan = makePlan(2);
  auto loaded = Plan::load(plan.write(folder.getPath()));
  std::filesystem::path files[] = {write("a.safetensors", makeSafeTensors({{"w", {{4, 3}, w}}})),
                                   write("b.safetensors", makeSafeTensors({{"w", {{4, 3}, w2}}}))};
  auto onBoth = [](const std::function<void(int)> &work) {
    std::thread other([&] { work(1); });
    work(0);
    other.join();
  };
  std::string loads[2], updates[2], runs[2];
  auto transports = createInProcessTransports(2);
  onBoth([&](int rank) {
    auto device = createCpuDevice(1);
    SessionOptions options;
    options.weights = files[rank];
    loads[rank] =
        messageOf([&] { Session(loaded, *device, transports[size_t(rank)].get(), options); });
  });
  transports = createInProcessTransports(2);
  onBoth([&](int rank) {
    auto device = createCpuDevice(1);
    Session session(loaded, *device, transports[size_t(rank)].get());
    updates[rank] = messageOf([&] { session.updateWeights(files[rank]); });
    runs[rank] = messageOf([&] {
      session.run(); // with the old weights
      HostArray z = session.gatherOutputToAll("z");
      EXPECT_THAT(z.as<float>(), ElementsAreArray(w));
    });
  });
  for (int rank : {0, 1}) {
    EXPECT_EQ(loads[rank], "loading the plan: rank 1 read other weights than rank 0; give all "
                           "ranks files with equal contents");
    EXPECT_THAT(updates[rank], HasSubstr("updating the weights: rank 1 read other weights"));
    EXPECT_EQ(runs[rank], "nothing was thrown");
  }
}

TEST_F(Weights, EqualShardsAreShared) {
  PlanBuilder plan = makePlan(1);
  auto loaded = Plan::load(plan.write(folder.getPath()));
  auto source = WeightSource::openModel(*loaded);
  WeightCache cache;
  auto device = createCpuDevice(1), other = createCpuDevice(1);
  auto first = WeightSet::load(*loaded, 0, *device, *source, &cache);
  auto second = WeightSet::load(*loaded, 0, *other, *source, &cache);
  auto alone = WeightSet::load(*loaded, 0, *device, *source, nullptr);
  ASSERT_EQ(first->getNumWeights(), 2u);
  EXPECT_EQ(first->getData(0), second->getData(0));
  EXPECT_NE(first->getData(0), alone->getData(0));
}

TEST(WeightCacheTest, OneMakerManyUsers) {
  WeightCache cache;
  std::atomic<int> made{0};
  std::vector<std::shared_ptr<const void>> owners(8);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < owners.size(); ++i)
    threads.emplace_back([&, i] {
      owners[i] = cache
                      .get("key",
                           [&]() -> SharedMemory {
                             ++made;
                             std::this_thread::sleep_for(std::chrono::milliseconds(5));
                             auto value = std::make_shared<int>(7);
                             return {value.get(), value};
                           })
                      .owner;
    });
  for (std::thread &thread : threads)
    thread.join();
  EXPECT_EQ(made, 1);
  owners.clear();
  auto make = [&]() -> SharedMemory {
    ++made;
    auto value = std::make_shared<int>(8);
    return {value.get(), value};
  };
  cache.get("key", make); // all users had released it
  EXPECT_EQ(made, 2);
  EXPECT_THROW(cache.get("bad", []() -> SharedMemory { throw Error(ErrorCode::Internal, "no"); }),
               Error);
  EXPECT_NE(cache.get("bad", make).owner, nullptr);
}

} // namespace

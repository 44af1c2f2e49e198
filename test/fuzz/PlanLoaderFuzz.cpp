//===- PlanLoaderFuzz.cpp - damaged plans whose checksums hold ------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// The input's bytes choose what to change in a valid plan: fields of the stage programs, values of
// the manifest. Checksums are computed again, so that the verifier sees the changes. The loader
// returns a plan or throws an error of one line; measuring a plan that it accepts is safe.
//
//===----------------------------------------------------------------------===//
#include "../runtime/PlanBuilder.h"
#include "runtime/core/Error.h"
#include "runtime/core/MemoryNeeds.h"
#include "runtime/core/Plan.h"

#include <fuzzer/FuzzedDataProvider.h>
#include <google/protobuf/descriptor.pb.h>
#include <google/protobuf/dynamic_message.h>
#include <google/protobuf/stubs/logging.h>

#include <cstdio>
#include <limits>
#include <memory>
#include <random>

using namespace gridloom;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using nlohmann::json;

namespace {

//===----------------------------------------------------------------------===//
// Numbers and names
//===----------------------------------------------------------------------===//

/// A number that is likely to be a boundary case, or close to the old one.
uint64_t pickNumber(FuzzedDataProvider &data, uint64_t old) {
  const uint64_t numbers[] = {0,          1,          2,          3,          4,
                              7,          64,         1U << 31,   ~0U,        1U << 30,
                              1ULL << 40, 1ULL << 61, 1ULL << 62, 1ULL << 63, ~uint64_t(0),
                              old + 1,    old - 1,    old * 2,    old / 2,    old ^ 1};
  return data.PickValueInArray(numbers);
}

std::string pickName(FuzzedDataProvider &data) {
  const char *const names[] = {"",  "x",     "y",         "data",    "model",        "pipe", "main",
                               "w", "micro", "../etc",    "cpu.so",  "stage0.pb",    "f32",  "bool",
                               "a", "cuda",  "kernels/x", "nothing", "manifest.json"};
  return data.PickValueInArray(names);
}

//===----------------------------------------------------------------------===//
// Stage programs
//===----------------------------------------------------------------------===//

void setScalar(FuzzedDataProvider &data, Message &message, const FieldDescriptor *field) {
  const Reflection *access = message.GetReflection();
  bool repeats = field->is_repeated();
  int size = repeats ? access->FieldSize(message, field) : 0;
  bool adds = repeats && (size == 0 || data.ConsumeIntegralInRange(0, 3) == 0);
  int at = repeats && !adds ? data.ConsumeIntegralInRange(0, size - 1) : 0;
  auto put = [&](auto get, auto getOne, auto set, auto setOne, auto add, auto make) {
    using Value = decltype((access->*get)(message, field));
    Value old = adds      ? Value()
                : repeats ? (access->*getOne)(message, field, at)
                          : (access->*get)(message, field);
    auto value = Value(make(old));
    if (adds)
      (access->*add)(&message, field, value);
    else if (repeats)
      (access->*setOne)(&message, field, at, value);
    else
      (access->*set)(&message, field, value);
  };
  auto number = [&](auto old) { return pickNumber(data, uint64_t(old)); };
  auto real = [&](auto) {
    const double reals[] = {0,
                            -1,
                            1e30,
                            -1e308,
                            std::numeric_limits<double>::quiet_NaN(),
                            std::numeric_limits<double>::infinity()};
    return data.PickValueInArray(reals);
  };
#define GRIDLOOM_PUT(Kind, make)                                                                   \
  put(&Reflection::Get##Kind, &Reflection::GetRepeated##Kind, &Reflection::Set##Kind,              \
      &Reflection::SetRepeated##Kind, &Reflection::Add##Kind, make)
  switch (field->cpp_type()) {
  case FieldDescriptor::CPPTYPE_INT32:
    return GRIDLOOM_PUT(Int32, number);
  case FieldDescriptor::CPPTYPE_INT64:
    return GRIDLOOM_PUT(Int64, number);
  case FieldDescriptor::CPPTYPE_UINT32:
    return GRIDLOOM_PUT(UInt32, number);
  case FieldDescriptor::CPPTYPE_UINT64:
    return GRIDLOOM_PUT(UInt64, number);
  case FieldDescriptor::CPPTYPE_DOUBLE:
    return GRIDLOOM_PUT(Double, real);
  case FieldDescriptor::CPPTYPE_FLOAT:
    return GRIDLOOM_PUT(Float, real);
  case FieldDescriptor::CPPTYPE_BOOL:
    return GRIDLOOM_PUT(Bool, [](bool old) { return !old; });
  case FieldDescriptor::CPPTYPE_ENUM:
    return GRIDLOOM_PUT(EnumValue, [&](int) { return data.ConsumeIntegralInRange(-1, 20); });
  case FieldDescriptor::CPPTYPE_STRING: {
    std::string value = data.ConsumeBool() ? pickName(data) : data.ConsumeRandomLengthString(12);
    if (adds)
      access->AddString(&message, field, value);
    else if (repeats)
      access->SetRepeatedString(&message, field, at, value);
    else
      access->SetString(&message, field, value);
    return;
  }
  case FieldDescriptor::CPPTYPE_MESSAGE:
    return;
  }
#undef GRIDLOOM_PUT
}

/// Removes, duplicates or swaps elements of a repeated field.
void shuffle(FuzzedDataProvider &data, Message &message, const FieldDescriptor *field) {
  const Reflection *access = message.GetReflection();
  int size = access->FieldSize(message, field);
  if (size == 0)
    return;
  int at = data.ConsumeIntegralInRange(0, size - 1);
  switch (data.ConsumeIntegralInRange(0, 3)) {
  case 0:
    access->SwapElements(&message, field, at, size - 1);
    access->RemoveLast(&message, field);
    return;
  case 1:
    access->SwapElements(&message, field, at, data.ConsumeIntegralInRange(0, size - 1));
    return;
  case 2:
    access->ClearField(&message, field);
    return;
  default:
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      // The element must be copied first: adding may move it.
      std::unique_ptr<Message> copy(access->GetRepeatedMessage(message, field, at).New());
      copy->CopyFrom(access->GetRepeatedMessage(message, field, at));
      access->AddMessage(&message, field)->CopyFrom(*copy);
    } else {
      setScalar(data, message, field);
    }
  }
}

/// Changes one field of `message` or of a message in it.
void mutate(FuzzedDataProvider &data, Message &message, int depth = 0) {
  const Reflection *access = message.GetReflection();
  std::vector<const FieldDescriptor *> inner;
  {
    std::vector<const FieldDescriptor *> set;
    access->ListFields(message, &set);
    for (const FieldDescriptor *field : set)
      if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE)
        inner.push_back(field);
  }
  if (depth < 8 && !inner.empty() && data.ConsumeIntegralInRange(0, 5) != 0) {
    const FieldDescriptor *field = inner[data.ConsumeIntegralInRange<size_t>(0, inner.size() - 1)];
    if (!field->is_repeated())
      return mutate(data, *access->MutableMessage(&message, field), depth + 1);
    int at = data.ConsumeIntegralInRange(0, access->FieldSize(message, field) - 1);
    return mutate(data, *access->MutableRepeatedMessage(&message, field, at), depth + 1);
  }
  int count = message.GetDescriptor()->field_count();
  if (count == 0)
    return;
  const FieldDescriptor *field =
      message.GetDescriptor()->field(data.ConsumeIntegralInRange(0, count - 1));
  bool isMessage = field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
  if (field->is_repeated() && (isMessage || data.ConsumeBool())) {
    if (isMessage && access->FieldSize(message, field) == 0)
      access->AddMessage(&message, field);
    else
      shuffle(data, message, field);
  } else if (isMessage) {
    if (data.ConsumeBool())
      access->ClearField(&message, field);
    else
      access->MutableMessage(&message, field);
  } else {
    setScalar(data, message, field);
  }
}

//===----------------------------------------------------------------------===//
// The manifest
//===----------------------------------------------------------------------===//

void mutate(FuzzedDataProvider &data, json &value, int depth = 0) {
  if (depth < 8 && value.is_structured() && !value.empty() &&
      data.ConsumeIntegralInRange(0, 6) != 0) {
    auto at = value.begin();
    std::advance(at, data.ConsumeIntegralInRange<size_t>(0, value.size() - 1));
    return mutate(data, *at, depth + 1);
  }
  switch (data.ConsumeIntegralInRange(0, 6)) {
  case 0:
    value = nullptr;
    return;
  case 1:
    value = pickName(data);
    return;
  case 2:
    value = json::array();
    return;
  case 3:
    if (value.is_array() && !value.empty())
      value.push_back(json(value[data.ConsumeIntegralInRange<size_t>(0, value.size() - 1)]));
    else
      value = json::object();
    return;
  case 4:
    if (value.is_array() && !value.empty()) {
      value.erase(data.ConsumeIntegralInRange<size_t>(0, value.size() - 1));
    } else if (value.is_object() && !value.empty()) {
      auto at = value.begin();
      std::advance(at, data.ConsumeIntegralInRange<size_t>(0, value.size() - 1));
      value.erase(at);
    } else {
      value = data.ConsumeFloatingPoint<double>();
    }
    return;
  default:
    value = pickNumber(data, value.is_number_unsigned() ? value.get<uint64_t>() : 0);
    if (data.ConsumeIntegralInRange(0, 7) == 0)
      value = int64_t(value.get<uint64_t>());
  }
}

//===----------------------------------------------------------------------===//
// Plans
//===----------------------------------------------------------------------===//

[[noreturn]] void giveUp(const std::string &message) {
  std::fprintf(stderr, "%s\n", message.c_str());
  std::exit(1);
}

/// Reads stages into messages with reflection; the runtime's own messages have none.
class StageSchema {
public:
  StageSchema() {
    google::protobuf::FileDescriptorSet files;
    std::ifstream file(GRIDLOOM_PLAN_SCHEMA, std::ios::binary);
    if (!files.ParseFromIstream(&file) || files.file_size() != 1)
      giveUp(GRIDLOOM_PLAN_SCHEMA ": cannot be read");
    prototype = factory.GetPrototype(pool.BuildFile(files.file(0))->FindMessageTypeByName("Stage"));
  }
  std::unique_ptr<Message> parse(const std::string &bytes) const {
    std::unique_ptr<Message> stage(prototype->New());
    if (!stage->ParseFromString(bytes))
      giveUp("a stage of " GRIDLOOM_FUZZ_PLANS " cannot be read");
    return stage;
  }

private:
  google::protobuf::DescriptorPool pool;
  google::protobuf::DynamicMessageFactory factory;
  const Message *prototype = nullptr;
};

const StageSchema &getSchema() {
  static const StageSchema schema;
  return schema;
}

/// Reads a plan that the compiler wrote. The contents of its kernels do not matter here.
test::PlanBuilder readSeed(const std::filesystem::path &folder) {
  json manifest;
  std::ifstream(folder / "manifest.json") >> manifest;
  test::PlanBuilder plan(int(manifest["stages"].size()));
  plan.manifest = manifest;
  for (size_t i = 0; i < plan.stages.size(); ++i) {
    std::ifstream file(folder / manifest["stages"][i].get<std::string>(), std::ios::binary);
    plan.rawStages[i].assign(std::istreambuf_iterator<char>(file), {});
  }
  for (auto &[name, file] : manifest["files"].items())
    if (name.starts_with("kernels/"))
      plan.kernels[name.substr(8)] = "code";
  plan.manifest["files"] = json::object();
  plan.model = std::string(manifest["model"]["bytes"].get<size_t>(), 0);
  return plan;
}

const std::vector<test::PlanBuilder> &getSeeds() {
  static const std::vector<test::PlanBuilder> seeds = [] {
    std::vector<std::filesystem::path> folders;
    for (const auto &entry : std::filesystem::directory_iterator(GRIDLOOM_FUZZ_PLANS))
      folders.push_back(entry.path());
    std::sort(folders.begin(), folders.end());
    std::vector<test::PlanBuilder> read;
    for (const std::filesystem::path &folder : folders)
      read.push_back(readSeed(folder));
    return read;
  }();
  return seeds;
}

/// Loads the plan on disk. Returns the refusal, empty if the plan is accepted. A refusal is one
/// line; anything else ends the fuzzer.
std::string load(const std::filesystem::path &folder) {
  try {
    auto plan = rt::Plan::load(folder, {.requireTarget = false});
    for (int stage = 0; stage < plan->getNumStages(); ++stage)
      (void)rt::describe(rt::computeNeeds(plan->getStage(stage)));
    return {};
  } catch (const rt::Error &error) {
    std::string text = error.what();
    if (error.getCode() != rt::ErrorCode::InvalidPlan || text.empty() ||
        text.find('\n') != std::string::npos) {
      std::fprintf(stderr, "not one line that refuses a plan: %s\n", text.c_str());
      abort();
    }
    return text;
  }
}

} // namespace

extern "C" int LLVMFuzzerInitialize(int *, char ***) {
  for (const test::PlanBuilder &seed : getSeeds()) {
    TemporaryFolder folder;
    std::string refusal = load(test::PlanBuilder(seed).write(folder.getPath()));
    if (!refusal.empty())
      giveUp("a plan of " GRIDLOOM_FUZZ_PLANS " does not load; compile it again: " + refusal);
  }
  return 0;
}

extern "C" size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t maxSize);

/// A build without instrumentation gives libFuzzer no reason to grow inputs, so every other one is
/// drawn at random.
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t maxSize,
                                          unsigned seed) {
  std::minstd_rand random(seed);
  if (random() % 2)
    return LLVMFuzzerMutate(data, size, maxSize);
  size = 1 + random() % maxSize;
  std::generate_n(data, size, [&] { return uint8_t(random() >> 8); });
  return size;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
  FuzzedDataProvider data(bytes, size);
  const std::vector<test::PlanBuilder> &seeds = getSeeds();
  test::PlanBuilder plan = seeds[data.ConsumeIntegralInRange<size_t>(0, seeds.size() - 1)];
  // The edit runs after the manifest is written, checksums included.
  plan.editManifest = [&](json &manifest) {
    for (int left = data.ConsumeIntegralInRange(0, 2); left > 0; --left)
      mutate(data, manifest);
  };
  google::protobuf::LogSilencer silence; // names need not be UTF-8
  size_t which = data.ConsumeIntegralInRange<size_t>(0, plan.stages.size() - 1);
  std::unique_ptr<Message> stage = getSchema().parse(plan.rawStages[which]);
  for (int left = data.ConsumeIntegralInRange(0, 3); left > 0; --left)
    mutate(data, *stage);
  plan.rawStages[which] = stage->SerializeAsString();
  TemporaryFolder folder;
  (void)load(plan.write(folder.getPath()));
  return 0;
}

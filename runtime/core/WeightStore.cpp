//===- WeightStore.cpp - load weights -------------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/core/WeightStore.h"

#include "runtime/core/Error.h"
#include "runtime/core/Files.h"
#include "runtime/core/OnnxScanner.h"
#include "runtime/core/Program.h"
#include "runtime/core/SafeTensors.h"
#include "runtime/core/Shard.h"
#include "runtime/train/Checkpoint.h"
#include "support/Sha256.h"

#include <algorithm>
#include <cstring>

using namespace gridloom;
using namespace gridloom::rt;

//===----------------------------------------------------------------------===//
// WeightSource
//===----------------------------------------------------------------------===//

/// A tensor in a mapped file, which stays mapped as long as the array or a copy lives.
static HostArray viewTensor(const std::shared_ptr<const MappedFile> &file, uint64_t offset,
                            uint64_t bytes, DataType type, const std::vector<int64_t> &shape,
                            const std::string &name) {
  std::span<const std::byte> contents = file->getBytes();
  if (offset > contents.size() || bytes > contents.size() - offset)
    throw Error(ErrorCode::InvalidPlan, file->getPath().string() + ": weight '" + name +
                                            "' ends at byte " + std::to_string(offset + bytes) +
                                            ", the file has " + std::to_string(contents.size()));
  // Not null for an empty tensor either: null data means no array.
  const void *data = bytes ? static_cast<const void *>(contents.data() + offset) : "";
  return HostArray::share(type, shape, data, file);
}

/// Refuses a model other than the one that the plan was compiled from. The SHA-256 of a large file
/// takes seconds and is skipped if the file is older than the plan. Returns the file's fingerprint.
static std::string requireCompiled(const Plan &plan, const MappedFile &file, bool verifyDigest) {
  const ModelInfo &model = plan.getModel();
  size_t bytes = file.getBytes().size();
  if (bytes != model.bytes)
    throw Error(ErrorCode::InvalidPlan, model.path.string() + ": has " + std::to_string(bytes) +
                                            " bytes, the plan was compiled from " +
                                            std::to_string(model.bytes) +
                                            "; compile again, or give the file with --weights");
  bool isSmall = bytes <= fingerprintedWhole;
  if (!verifyDigest && !isSmall && file.getTime() < plan.getTime())
    return fingerprint(file.getBytes());
  if (std::string digest = sha256(file.getBytes()); digest != model.sha256)
    throw Error(ErrorCode::InvalidPlan, model.path.string() + ": has SHA-256 " + digest +
                                            ", the plan was compiled from " + model.sha256 +
                                            "; compile again, or give the file with --weights");
  return isSmall ? model.sha256 : fingerprint(file.getBytes());
}

/// Whether the plan's fingerprint of a file with external data does not cover all bytes.
static bool isSampled(const ModelInfo &model, const std::string &name, const MappedFile &file) {
  return file.getBytes().size() > fingerprintedWhole || !model.data.contains(name);
}

/// The same for a file with external data.
static std::string requireCompiledData(const Plan &plan, const std::string &name,
                                       const MappedFile &file) {
  const ModelInfo &model = plan.getModel();
  std::string found = fingerprint(file.getBytes());
  // Plans of older versions have no fingerprints.
  if (auto known = model.data.find(name); known != model.data.end() && found != known->second)
    throw Error(ErrorCode::InvalidPlan,
                file.getPath().string() +
                    ": has other contents than when the plan was compiled; compile again, or give "
                    "the model with --weights");
  if (!plan.getSignature())
    return found;
  // A small file may hold just what the fingerprint of a large one covers, so its size decides
  // nothing where the signature has a SHA-256.
  const std::map<std::string, std::string> &data = plan.getSignature()->data;
  auto known = data.find(name);
  if (known != data.end() || isSampled(model, name, file)) {
    std::string wanted = known == data.end() ? "none" : known->second;
    if (std::string digest = sha256(file.getBytes()); digest != wanted)
      throw Error(ErrorCode::InvalidPlan,
                  file.getPath().string() +
                      ": was changed after the plan was signed: it has SHA-256 " + digest +
                      ", signed was " + wanted +
                      "; put the file back, or sign the plan again with 'gridloom sign'");
  }
  return found;
}

std::map<std::string, std::string> gridloom::rt::digestSampledData(
    const Plan &plan, const std::function<void(const std::string &name, uint64_t bytes)> &onRead) {
  std::map<std::string, std::string> digests;
  std::set<std::string> names;
  for (const WeightInfo &weight : plan.getWeights()) {
    if (weight.file.empty() || !names.insert(weight.file).second)
      continue;
    auto file = MappedFile::openBeneath(plan.getModel().path.parent_path(), weight.file);
    requireCompiledData(plan, weight.file, *file);
    if (!isSampled(plan.getModel(), weight.file, *file))
      continue;
    onRead(weight.file, file->getBytes().size());
    digests[weight.file] = sha256(file->getBytes());
    file->requireUnchanged();
  }
  return digests;
}

std::shared_ptr<const WeightSource> WeightSource::openModel(const Plan &plan, bool verifyDigest) {
  const ModelInfo &model = plan.getModel();
  auto source = std::make_shared<WeightSource>();
  std::error_code error;
  if (!std::filesystem::exists(model.path, error))
    throw Error(ErrorCode::InvalidPlan,
                model.path.lexically_normal().string() +
                    ": the model whose weights the plan uses is not there; put it back, compile "
                    "again, or give a file with --weights");
  std::shared_ptr<const MappedFile> main = MappedFile::open(model.path);
  source->add(main, requireCompiled(plan, *main, verifyDigest || plan.getSignature()));
  std::map<std::string, std::shared_ptr<const MappedFile>> files = {{"", main}};
  for (const WeightInfo &weight : plan.getWeights()) {
    std::shared_ptr<const MappedFile> &file = files[weight.file];
    if (!file) {
      file = MappedFile::openBeneath(model.path.parent_path(), weight.file);
      source->add(file, requireCompiledData(plan, weight.file, *file));
    }
    source->tensors[weight.name] =
        viewTensor(file, weight.offset, weight.bytes, weight.type, weight.shape, weight.name);
  }
  return source;
}

void WeightSource::add(const std::shared_ptr<const MappedFile> &file,
                       const std::string &fingerprintOfFile) {
  files.push_back(file);
  identity += (identity.empty() ? "" : "+") + file->getIdentity();
  std::string all = fingerprint + fingerprintOfFile;
  fingerprint = sha256(std::as_bytes(std::span(all)));
}

std::shared_ptr<const MappedFile> WeightSource::findFile(const std::byte *data) const {
  for (const std::shared_ptr<const MappedFile> &file : files) {
    std::span<const std::byte> bytes = file->getBytes();
    if (!bytes.empty() && data >= bytes.data() && data < bytes.data() + bytes.size())
      return file;
  }
  return nullptr;
}

void WeightSource::requireUnchanged() const {
  for (const std::shared_ptr<const MappedFile> &file : files)
    file->requireUnchanged();
}

void WeightSource::dropPages() const {
  for (const std::shared_ptr<const MappedFile> &file : files)
    file->dropPages();
}

namespace {

/// A file or a checkpoint that offers tensors by name.
class Replacement {
public:
  explicit Replacement(Checkpoint checkpoint)
      : files(std::move(checkpoint.files)), arrays(std::move(checkpoint.states)) {
    addTiedWeights(checkpoint.ties, arrays);
  }
  explicit Replacement(const std::filesystem::path &path)
      : file(MappedFile::open(path)), files{file} {
    if (path.extension() == ".safetensors") {
      for (const SafeTensor &tensor : readSafeTensors(file->getBytes(), path.string()))
        safeTensors[tensor.name] = tensor;
    } else {
      model = std::make_unique<OnnxFile>(file);
      for (OnnxTensor &tensor : model->scan())
        onnxTensors[tensor.name] = std::move(tensor);
    }
  }
  bool has(const std::string &name) const {
    return arrays.count(name) || safeTensors.count(name) || onnxTensors.count(name);
  }
  HostArray read(const std::string &name) {
    if (auto found = arrays.find(name); found != arrays.end())
      return found->second;
    if (auto found = safeTensors.find(name); found != safeTensors.end()) {
      const SafeTensor &tensor = found->second;
      return viewTensor(file, tensor.offset, tensor.bytes, tensor.type, tensor.shape, name);
    }
    const OnnxTensor &tensor = onnxTensors.at(name);
    if (!tensor.inPlace) {
      auto values = std::make_shared<std::vector<char>>(model->read(tensor));
      return HostArray::share(tensor.type, tensor.shape, values->empty() ? "" : values->data(),
                              values);
    }
    std::shared_ptr<const MappedFile> &holder = external[tensor.file];
    if (!holder) {
      holder = model->open(tensor);
      if (!tensor.file.empty())
        files.push_back(holder);
    }
    return viewTensor(holder, tensor.offset, tensor.getSize(), tensor.type, tensor.shape, name);
  }
  std::vector<std::shared_ptr<const MappedFile>> takeFiles() { return std::move(files); }

private:
  std::shared_ptr<const MappedFile> file;
  std::vector<std::shared_ptr<const MappedFile>> files;
  std::map<std::string, HostArray> arrays;
  std::unique_ptr<OnnxFile> model;
  std::map<std::string, std::shared_ptr<const MappedFile>> external;
  std::unordered_map<std::string, SafeTensor> safeTensors;
  std::unordered_map<std::string, OnnxTensor> onnxTensors;
};

} // namespace

/// Opens the file, or the checkpoint in the folder; then sets `path` to the checkpoint's file of
/// states.
static Replacement openPath(std::filesystem::path &path) {
  std::error_code error;
  if (!std::filesystem::is_directory(path, error))
    return Replacement(path);
  std::filesystem::path folder = findCheckpoint(path); // `path` or a run's last checkpoint
  path = folder / "states.safetensors";
  return Replacement(Checkpoint::read(folder));
}

std::shared_ptr<const WeightSource>
WeightSource::openReplacement(const Plan &plan, const std::filesystem::path &given) {
  std::filesystem::path path = given;
  Replacement replacement = openPath(path);
  auto source = std::make_shared<WeightSource>();
  for (const WeightInfo &weight : plan.getWeights()) {
    if (!replacement.has(weight.name))
      throw Error(ErrorCode::InvalidArgument,
                  path.string() + ": has no weight '" + weight.name + "'" +
                      (path == given ? ""
                                     : "; a checkpoint has those that were trained, and 'gridloom "
                                       "checkpoint export --plan' adds the model's others"));
    HostArray array = replacement.read(weight.name);
    if (array.getType() != weight.type || array.getShape() != weight.shape)
      throw Error(ErrorCode::InvalidArgument,
                  path.string() + ": weight '" + weight.name + "' is " +
                      std::string(nameOf(array.getType())) + " " + formatShape(array.getShape()) +
                      ", the plan needs " + std::string(nameOf(weight.type)) + " " +
                      formatShape(weight.shape));
    source->tensors[weight.name] = std::move(array);
  }
  // A .safetensors file holds only weights: folded initializers may be absent.
  bool mayLack = path.extension() == ".safetensors";
  for (const FoldedInfo &folded : plan.getFolded()) {
    if (mayLack && !replacement.has(folded.name))
      continue;
    if (!replacement.has(folded.name))
      throw Error(ErrorCode::InvalidArgument, path.string() + ": has no initializer '" +
                                                  folded.name +
                                                  "', whose value the plan was compiled with");
    HostArray array = replacement.read(folded.name);
    if (sha256({array.getData(), array.getNumBytes()}) != folded.sha256)
      throw Error(
          ErrorCode::InvalidArgument,
          path.string() + ": initializer '" + folded.name +
              "' differs from the value compiled into the plan; compile this model instead");
  }
  for (const std::shared_ptr<const MappedFile> &file : replacement.takeFiles())
    source->add(file, rt::fingerprint(file->getBytes()));
  return source;
}

std::shared_ptr<const WeightSource>
WeightSource::open(const Plan &plan, const std::filesystem::path &path, bool verifyDigest) {
  return path.empty() ? openModel(plan, verifyDigest) : openReplacement(plan, path);
}

HostArray WeightSource::read(const std::string &name) const {
  auto found = tensors.find(name);
  if (found == tensors.end())
    throw Error(ErrorCode::InvalidPlan, "there is no weight '" + name + "'");
  return found->second;
}

//===----------------------------------------------------------------------===//
// WeightCache
//===----------------------------------------------------------------------===//

SharedMemory WeightCache::get(const std::string &key, const std::function<SharedMemory()> &make) {
  std::unique_lock lock(mutex);
  while (true) {
    Slot &slot = slots[key];
    if (std::shared_ptr<const void> owner = slot.owner.lock())
      return {slot.data, std::move(owner), slot.file.lock()};
    if (!slot.busy)
      break;
    changed.wait(lock);
  }
  slots[key].busy = true;
  lock.unlock();
  SharedMemory made;
  try {
    made = make();
  } catch (...) {
    lock.lock();
    slots.erase(key);
    changed.notify_all();
    throw;
  }
  lock.lock();
  // Sessions with other weights come and go: drop unused entries.
  std::erase_if(slots,
                [](auto &entry) { return !entry.second.busy && entry.second.owner.expired(); });
  slots[key] = {false, made.data, made.owner, made.file};
  changed.notify_all();
  return made;
}

//===----------------------------------------------------------------------===//
// WeightSet
//===----------------------------------------------------------------------===//

namespace gridloom::rt {

/// Loads the weights of one rank.
class WeightLoader {
public:
  WeightLoader(const Plan &plan, int rank, Device &device, const WeightSource &source,
               WeightCache *cache)
      : plan(plan), stage(plan.getStage(plan.getMesh().getStage(rank))), rank(rank), device(device),
        source(source), cache(cache) {
    for (const schema::Derived &tensor : stage.derived())
      derived[tensor.name()] = &tensor;
  }
  std::shared_ptr<const WeightSet> load();

private:
  SharedMemory loadWeight(const schema::Weight &weight);
  SharedMemory share(const std::string &key, const std::function<SharedMemory()> &make) {
    return cache ? cache->get(key, make) : make();
  }
  HostArray readWhole(const std::string &name);
  /// Counts one use of tensor `name` as done; frees a derived tensor after its last.
  void release(const std::string &name);
  HostArray derive(const schema::Derived &tensor);
  SharedMemory toDevice(const HostArray &array);
  SharedMemory toDevice(size_t bytes, const std::function<void(std::byte *)> &fill);
  Stream &getStream();

  const Plan &plan;
  const schema::Stage &stage;
  int rank;
  Device &device;
  const WeightSource &source;
  WeightCache *cache;
  std::map<std::string, const schema::Derived *> derived;
  std::map<std::string, HostArray> results; // derived tensors that are still needed
  std::map<std::string, int> readers;       // remaining uses, by tensor
  std::vector<std::unique_ptr<Kernel>> kernels;
  StreamTable streams;
};

} // namespace gridloom::rt

std::shared_ptr<const WeightSet> WeightSet::load(const Plan &plan, int rank, Device &device,
                                                 const WeightSource &source, WeightCache *cache) {
  return WeightLoader(plan, rank, device, source, cache).load();
}

std::shared_ptr<const WeightSet> WeightLoader::load() {
  auto set = std::make_shared<WeightSet>();
  for (const schema::Weight &weight : stage.weights())
    ++readers[weight.name()];
  for (const schema::Derived &tensor : stage.derived())
    for (const std::string &name : tensor.sources())
      ++readers[name];
  for (const schema::Weight &weight : stage.weights()) {
    set->weights.push_back(loadWeight(weight));
    release(weight.name());
    if (set->weights.back().file)
      set->files.insert(set->weights.back().file);
  }
  source.requireUnchanged(); // else parts may be of two versions
  source.dropPages();        // weights used in place are paged in again on use
  return set;
}

void WeightSet::dropPages() const {
  for (const std::shared_ptr<const MappedFile> &file : files)
    file->dropPages();
}

void WeightSet::requireUnchanged() const {
  for (const std::shared_ptr<const MappedFile> &file : files)
    file->requireUnchanged();
}

static constexpr size_t alignment = 64;

static bool isAligned(const void *pointer) {
  return reinterpret_cast<uintptr_t>(pointer) % alignment == 0;
}

/// The byte offset of the shard in the whole tensor, if it is contiguous there in the layout that
/// the program needs.
static std::optional<size_t> findInPlace(const Shard &shard, size_t elementBytes, int64_t rowPad) {
  std::optional<int64_t> run = rowPad ? std::nullopt : findOnlyRun(shard);
  return run ? std::optional(size_t(*run) * elementBytes) : std::nullopt;
}

SharedMemory WeightLoader::loadWeight(const schema::Weight &weight) {
  std::vector<int64_t> global;
  auto tensor = derived.find(weight.name());
  if (tensor != derived.end())
    global = {tensor->second->shape().begin(), tensor->second->shape().end()};
  else
    global = plan.findWeight(weight.name())->shape;
  Shard shard = getShard(plan.getMesh(), rank, weight.sharding(), global);
  size_t elementBytes = sizeOf(DataType(weight.type()));

  std::string key = device.getName() + "|" + source.getIdentity() + "|" + weight.name() + "|" +
                    formatShape(shard.begin) + formatShape(shard.local) + "+" +
                    std::to_string(weight.row_pad());
  if (tensor != derived.end()) // its program belongs to the plan and stage
    key += "|" + plan.getDigest() + "|" + std::to_string(stage.stage());
  return share(key, [&]() -> SharedMemory {
    HostArray whole = readWhole(weight.name());
    std::optional<size_t> offset = findInPlace(shard, elementBytes, weight.row_pad());
    if (device.hasHostMemory() && offset && isAligned(whole.getData() + *offset))
      return {whole.getData() + *offset, whole.getOwner(), source.findFile(whole.getData())};
    return toDevice(weight.bytes(), [&](std::byte *out) {
      cutShard(shard, elementBytes, whole.getData(), out, weight.row_pad());
    });
  });
}

HostArray WeightLoader::readWhole(const std::string &name) {
  auto tensor = derived.find(name);
  if (tensor == derived.end())
    return source.read(name);
  HostArray &result = results[name];
  if (result.isNull())
    result = derive(*tensor->second);
  return result;
}

void WeightLoader::release(const std::string &name) {
  if (--readers[name] == 0)
    results.erase(name);
}

Stream &WeightLoader::getStream() {
  std::unique_ptr<Stream> &stream = streams["prologue"];
  if (!stream)
    stream = device.createStream(StreamKind::Compute, "prologue");
  return *stream;
}

SharedMemory WeightLoader::toDevice(size_t bytes, const std::function<void(std::byte *)> &fill) {
  std::shared_ptr<Memory> memory = device.allocate(bytes);
  if (device.hasHostMemory()) {
    fill(static_cast<std::byte *>(memory->data));
  } else {
    std::vector<std::byte> staging(bytes);
    fill(staging.data());
    device.copyIn(getStream(), memory->data, staging.data(), bytes);
    getStream().synchronize();
  }
  return {memory->data, memory};
}

SharedMemory WeightLoader::toDevice(const HostArray &array) {
  if (device.hasHostMemory() && isAligned(array.getData()))
    return {array.getData(), array.getOwner()};
  return toDevice(array.getNumBytes(), [&](std::byte *out) {
    if (array.getNumBytes())
      std::memcpy(out, array.getData(), array.getNumBytes());
  });
}

HostArray WeightLoader::derive(const schema::Derived &tensor) {
  std::vector<SharedMemory> inputs;
  for (const std::string &name : tensor.sources())
    inputs.push_back(toDevice(readWhole(name)));
  std::vector<int64_t> shape(tensor.shape().begin(), tensor.shape().end());
  HostArray result = HostArray::allocate(DataType(tensor.type()), shape);
  std::shared_ptr<Memory> output = device.allocate(result.getNumBytes());
  std::unique_ptr<Memory> arena = device.allocate(tensor.arena_bytes());

  schema::Specialisation program;
  *program.mutable_buffers() = tensor.buffers();
  program.set_arena_bytes(tensor.arena_bytes());
  schema::Stream *stream = program.add_streams();
  stream->set_name("prologue");
  stream->set_kind(schema::Stream::COMPUTE);
  *program.add_body()->mutable_block() = tensor.block();
  if (kernels.empty())
    kernels = loadKernels(plan, stage, device);

  ProgramMemory memory;
  memory.arena = arena->data;
  memory.input = [&](uint32_t index) { return inputs[index].data; };
  memory.output = [&](uint32_t) { return output->data; };
  Program prologue({plan, stage, rank, device, kernels, nullptr, streams}, program);
  prologue.run(memory);
  for (const std::string &name : tensor.sources())
    release(name);
  if (device.hasHostMemory())
    return HostArray::share(result.getType(), shape, output->data, output);
  device.copyOut(getStream(), result.getMutableData(), output->data, result.getNumBytes());
  getStream().synchronize();
  return result;
}

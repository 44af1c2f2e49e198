//===- Decoder.cpp - a plan as a language model ---------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/cli/Decoder.h"

#include "runtime/arrays/Generator.h"
#include "runtime/arrays/Values.h"
#include "runtime/core/Error.h"
#include "runtime/core/PlanQueries.h"
#include "runtime/core/Session.h"

#include "runtime/core/plan.pb.h"

#include <algorithm>
#include <cstring>
#include <set>

using namespace gridloom::rt;

static Error refuse(const std::string &text) { return {ErrorCode::InvalidArgument, text}; }

static std::string describe(const Argument &argument) {
  return "'" + argument.name + "' " + std::string(nameOf(argument.type)) + " " +
         formatShape(argument.shape);
}

static bool hasPart(const Argument &argument, const char *part) {
  return argument.name.find(part) != std::string::npos;
}

/// Whether it is an integer with token positions: `position`, `position_ids`, `cache_position`.
static bool isPosition(const Argument &argument) {
  return !isFloat(argument.type) && hasPart(argument, "pos");
}

/// Whether it is a mask of visible positions: `attention_mask`.
static bool isMask(const Argument &argument) {
  return hasPart(argument, "mask") && argument.shape.size() == 2;
}

//===----------------------------------------------------------------------===//
// Inputs and outputs of the plan
//===----------------------------------------------------------------------===//

Decoder::Decoder(const Plan &plan, DecoderSettings given, int64_t batch)
    : settings(std::move(given)), batch(batch) {
  for (int stage = 0; stage < plan.getNumStages(); ++stage)
    cached |= plan.getStage(stage).states_size() > 0;
  bool isBound = false;
  std::string all;
  for (const EntrySpecialisation &specialisation : plan.getEntry(settings.entry).specialisations) {
    all += (all.empty() ? "" : "; ") + formatDims(specialisation.dims);
    if (!specialisation.binds(settings.dims))
      continue;
    isBound = true;
    addCall(specialisation);
  }
  if (!isBound)
    throw refuse("no specialisation of entry " + settings.entry + " fits --dim " +
                 formatDims(settings.dims) + "; there are: " + all);
  if (calls.empty()) {
    const Argument *ids = findIds(plan.getEntry(settings.entry).specialisations.front());
    throw refuse("no specialisation of the plan takes " + std::to_string(batch) +
                 (batch == 1 ? " prompt" : " prompts") + " at once; it takes " + describe(*ids) +
                 "; compile it with --dim batch=" + std::to_string(batch));
  }
  std::stable_sort(calls.begin(), calls.end(),
                   [](const auto &a, const auto &b) { return a.length > b.length; });
  grows = !calls.front().caches.empty();
  cached |= grows;
  capacity = getCapacity(plan);
  for (const DecoderCall &call : calls)
    for (const GrowingCache &cache : call.caches)
      if (cache.past->shape[cache.dim] != capacity)
        throw refuse("input " + describe(*cache.past) +
                     " has another length in another specialisation; caches that go in and out "
                     "have one: choose with --dim");
}

/// The token ids: integers [batch, sequence] that are neither positions nor a mask.
const Argument *Decoder::findIds(const EntrySpecialisation &specialisation) const {
  std::vector<const Argument *> found;
  for (const Argument &input : specialisation.inputs)
    if (settings.ids.empty()
            ? input.shape.size() == 2 && !isFloat(input.type) && input.type != DataType::Bool &&
                  !isPosition(input) && !isMask(input) && !settings.inputs.count(input.name)
            : input.name == settings.ids)
      found.push_back(&input);
  // Among several candidates, such as token types, prefer the name of ids.
  auto isNamed = [](const Argument *input) {
    return input->name == "input_ids" || input->name == "ids" || input->name == "tokens";
  };
  if (auto named = std::find_if(found.begin(), found.end(), isNamed); named != found.end())
    return *named;
  if (found.size() == 1 && found.front()->shape.size() == 2)
    return found.front();
  std::string inputs;
  for (const Argument &input : specialisation.inputs) {
    if (isNamed(&input) && settings.inputs.count(input.name))
      throw refuse("--input " + input.name + " would replace --tokens; leave it out");
    inputs += (inputs.empty() ? "" : ", ") + describe(input);
  }
  throw refuse((settings.ids.empty()
                    ? std::string("no one input takes token ids, integers of [batch, sequence]; "
                                  "name it with --ids")
                    : "there is no input '" + settings.ids + "' of shape [batch, sequence]") +
               "; the plan takes " + inputs);
}

const Argument *Decoder::findLogits(const EntrySpecialisation &specialisation,
                                    int64_t length) const {
  std::vector<const Argument *> found;
  std::string outputs;
  for (const Argument &output : specialisation.outputs) {
    outputs += (outputs.empty() ? "" : ", ") + describe(output);
    bool isRows = output.shape.size() == 3 && output.shape[0] == batch &&
                  (output.shape[1] == length || output.shape[1] == 1);
    bool isLast = output.shape.size() == 2 && output.shape[0] == batch;
    if (isFloat(output.type) && (isRows || isLast) &&
        (settings.logits.empty() || output.name == settings.logits))
      found.push_back(&output);
  }
  for (const Argument *output : found)
    if (output->name == "logits")
      return output;
  if (found.size() == 1)
    return found.front();
  throw refuse("no one output is the logits, floats of [batch, sequence, vocabulary]; name it with "
               "--logits; the plan makes " +
               outputs);
}

void Decoder::addCall(const EntrySpecialisation &specialisation) {
  DecoderCall call{&specialisation, findIds(specialisation), nullptr, 0, {}};
  if (call.ids->shape[0] != batch)
    return;
  call.length = call.ids->shape[1];
  call.logits = findLogits(specialisation, call.length);
  if (!cached || grows)
    findCaches(call);
  checkInputs(call);
  calls.push_back(call);
}

/// The length of the longest common suffix.
static std::ptrdiff_t countSharedEnd(const std::string &a, const std::string &b) {
  return std::mismatch(a.rbegin(), a.rend(), b.rbegin(), b.rend()).first - a.rbegin();
}

/// Pairs 4-D float inputs with outputs that are longer by the call's tokens along one dimension: by
/// the ends of their names, such as past.0.key and present.0.key, else in order. Keeps the pairs
/// only if there is a mask, to hide unfilled entries, and positions are inputs; otherwise
/// checkInputs refuses the inputs.
void Decoder::findCaches(DecoderCall &call) const {
  const std::vector<Argument> &inputs = call.specialisation->inputs;
  auto find = [&](const Argument &past, const Argument &present) -> std::optional<size_t> {
    if (past.shape.size() != 4 || present.shape.size() != 4 || past.type != present.type ||
        !isFloat(past.type) || settings.inputs.count(past.name))
      return std::nullopt;
    std::vector<int64_t> shape = past.shape;
    for (size_t dim = 1; dim < 3; ++dim) {
      shape[dim] += call.length;
      if (shape == present.shape)
        return dim;
      shape[dim] -= call.length;
    }
    return std::nullopt;
  };
  std::set<const Argument *> used;
  std::vector<GrowingCache> pairs;
  for (const Argument &past : inputs) {
    GrowingCache cache{&past, nullptr, 0};
    std::ptrdiff_t shared = -1;
    for (const Argument &present : call.specialisation->outputs)
      if (std::optional<size_t> dim = find(past, present);
          dim && !used.count(&present) && countSharedEnd(past.name, present.name) > shared) {
        shared = countSharedEnd(past.name, present.name);
        cache.present = &present;
        cache.dim = *dim;
      }
    if (!cache.present)
      continue;
    used.insert(cache.present);
    pairs.push_back(cache);
  }
  if (pairs.empty())
    return;
  int64_t window = pairs.front().past->shape[pairs.front().dim];
  bool isMasked = std::any_of(inputs.begin(), inputs.end(), [&](const Argument &input) {
    return isMask(input) && input.shape[1] == window + call.length;
  });
  if (isMasked && std::any_of(inputs.begin(), inputs.end(), isPosition))
    call.caches = std::move(pairs);
}

/// Throws unless every input is known or given.
void Decoder::checkInputs(const DecoderCall &call) const {
  for (const auto &[name, value] : settings.inputs)
    if (!call.specialisation->findInput(name))
      throw refuse("there is no input " + name);
  for (const Argument &input : call.specialisation->inputs) {
    auto isInput = [&](const GrowingCache &cache) { return cache.past == &input; };
    if (&input == call.ids || settings.inputs.count(input.name) || isMask(input) ||
        std::any_of(call.caches.begin(), call.caches.end(), isInput))
      continue;
    int64_t count = 1;
    for (int64_t size : input.shape)
      count *= size;
    if (isPosition(input) && (count == 1 || input.shape.back() == call.length))
      continue;
    if (hasPart(input, "past"))
      throw refuse("input " + describe(input) +
                   " is a cache that the caller keeps; compile the plan with --state "
                   "'past_*=present_*', which needs a model whose cache has a fixed size; one that "
                   "grows by concatenation needs an attention_mask over the cache and the new "
                   "tokens, and position_ids");
    throw refuse("input " + describe(input) +
                 " is neither token ids, positions nor a mask; give its value with --input " +
                 input.name + "=VALUE");
  }
}

/// The capacity in tokens: the mask's length, else the longer inner dimension of a cache [batch,
/// heads, positions, size]; without a cache the sequence length.
int64_t Decoder::getCapacity(const Plan &plan) const {
  if (grows)
    return calls.front().caches.front().past->shape[calls.front().caches.front().dim];
  int64_t longest = cached ? 0 : calls.front().length;
  for (const DecoderCall &call : calls)
    for (const Argument &input : call.specialisation->inputs)
      if (cached && isMask(input) && input.shape[1] != call.length)
        return input.shape[1];
  for (int stage = 0; cached && stage < plan.getNumStages(); ++stage)
    for (const schema::State &state : plan.getStage(stage).states())
      for (int i = 1; state.shape_size() == 4 && i < 3; ++i) {
        int64_t size = state.shape(i);
        if (i < state.sharding().dims_size()) {
          const auto &axes = state.sharding().dims(i).axes();
          size *= plan.getMesh().getSize(std::vector<std::string>(axes.begin(), axes.end()));
        }
        longest = std::max(longest, size);
      }
  return longest;
}

//===----------------------------------------------------------------------===//
// Calls
//===----------------------------------------------------------------------===//

const DecoderCall &Decoder::choose(int64_t position, int64_t pending) const {
  if (!cached) {
    auto shortest = std::find_if(calls.rbegin(), calls.rend(), [&](const DecoderCall &call) {
      return call.length >= position + pending;
    });
    return shortest == calls.rend() ? calls.front() : *shortest;
  }
  auto longest = std::find_if(calls.begin(), calls.end(),
                              [&](const DecoderCall &call) { return call.length <= pending; });
  if (longest == calls.end())
    throw refuse("no specialisation takes " + std::to_string(pending) +
                 (pending == 1 ? " token" : " tokens") + ", the shortest takes " +
                 std::to_string(calls.back().length) +
                 "; compile the plan with a size of 1 too, "
                 "as --dim sequence=" +
                 std::to_string(calls.front().length) + ",1");
  return *longest;
}

void Decoder::check(const TokenRows &prompts, int64_t generated) const {
  int64_t prompt = int64_t(prompts.front().size()), vocabulary = calls.front().logits->shape.back();
  for (const std::vector<int64_t> &row : prompts)
    for (int64_t token : row)
      if (token >= vocabulary)
        throw refuse("token " + std::to_string(token) + " is outside of the vocabulary of " +
                     std::to_string(vocabulary));
  // The last token is generated but not read.
  int64_t needed = prompt + std::max<int64_t>(generated - 1, 0);
  if (capacity > 0 && needed > capacity)
    throw refuse(std::to_string(prompt) + " tokens and " + std::to_string(generated) +
                 " more are too many: the " + (cached ? "cache" : "sequence") + " holds " +
                 std::to_string(capacity) + "; lower --max-tokens" +
                 (cached ? "" : ", or compile the plan for a longer sequence"));
  for (int64_t position = 0; cached && position < prompt;)
    position += choose(position, prompt - position).length;
  if (cached && generated > 1)
    choose(prompt, 1);
}

HostArray Decoder::makeIds(const DecoderCall &call, const TokenRows &rows, int64_t position) const {
  HostArray ids = HostArray::allocate(call.ids->type, call.ids->shape);
  for (size_t row = 0; row < rows.size(); ++row)
    for (int64_t i = 0; i < call.length; ++i) {
      // Fill positions after the last token, which are ignored, with that valid token.
      size_t at = std::min(size_t(position + i), rows[row].size() - 1);
      setElement(ids, int64_t(row) * call.length + i, double(rows[row][at]));
    }
  return ids;
}

/// Makes the mask or positions for a call that reads tokens `begin` to `end`.
HostArray Decoder::makeInput(const DecoderCall &call, const Argument &input, int64_t begin,
                             int64_t end) const {
  HostArray array = HostArray::allocate(input.type, input.shape);
  int64_t width = input.shape.empty() ? 1 : input.shape.back();
  // A mask for only this call's tokens has their length; a growing cache is filled from its end.
  int64_t kept = cached && width == call.length ? width : grows ? width : end;
  int64_t hidden = grows && width != call.length ? capacity - begin : 0;
  for (int64_t i = 0; i < array.getNumElements(); ++i) {
    int64_t at = i % width;
    setElement(array, i, isMask(input) ? double(at >= hidden && at < kept) : double(begin + at));
  }
  return array;
}

void Decoder::bind(Session &session, const DecoderCall &call, const TokenRows &rows,
                   int64_t position, HostCaches &caches) const {
  int64_t begin = cached ? position : 0;
  int64_t end = cached ? begin + call.length : int64_t(rows.front().size());
  for (const Argument &input : call.specialisation->inputs) {
    auto isInput = [&](const GrowingCache &cache) { return cache.past == &input; };
    if (auto given = settings.inputs.find(input.name); given != settings.inputs.end()) {
      std::optional<Generator> generator = Generator::parse(given->second);
      session.bind(input.name, generator ? generate(*generator, input.name, input.type, input.shape,
                                                    settings.seed)
                                         : adaptInput(readInput(given->second), given->second,
                                                      input.name, input.type, input.shape));
    } else if (&input == call.ids) {
      session.bind(input.name, makeIds(call, rows, begin));
    } else if (std::any_of(call.caches.begin(), call.caches.end(), isInput)) {
      HostArray &cache = caches[input.name];
      if (cache.isNull())
        cache = HostArray::allocate(input.type, input.shape);
      session.bind(input.name, cache);
    } else {
      session.bind(input.name, makeInput(call, input, begin, end));
    }
  }
}

void Decoder::keep(Session &session, const DecoderCall &call, HostCaches &caches) const {
  for (const GrowingCache &cache : call.caches) {
    HostArray present = session.gatherOutputToAll(cache.present->name);
    HostArray past = HostArray::allocate(cache.past->type, cache.past->shape);
    // Drop the oldest tokens of the window; dimensions after `dim` are copied as one block.
    size_t inner = sizeOf(cache.past->type), outer = 1;
    for (size_t dim = 0; dim < 4; ++dim)
      (dim < cache.dim ? outer : inner) *= dim == cache.dim ? 1 : size_t(cache.past->shape[dim]);
    size_t kept = size_t(capacity) * inner, whole = kept + size_t(call.length) * inner;
    for (size_t i = 0; i < outer; ++i)
      std::memcpy(past.getMutableData() + i * kept,
                  present.getData() + i * whole + size_t(call.length) * inner, kept);
    caches[cache.past->name] = past;
  }
}

std::vector<std::vector<float>> Decoder::getLast(const DecoderCall &call, const HostArray &whole,
                                                 int64_t position, int64_t count) const {
  const std::vector<int64_t> &shape = whole.getShape();
  int64_t vocabulary = shape.back(), width = shape.size() == 3 ? shape[1] : 1;
  int64_t last = (cached ? call.length : count) - 1;
  if (width == 1)
    last = 0;
  if (width == 1 && !cached && count != call.length)
    throw refuse("output " + describe(*call.logits) + " is of the last of " +
                 std::to_string(call.length) + " positions, and " + std::to_string(count) +
                 " tokens are there; compile the plan with --state");
  std::vector<std::vector<float>> rows;
  for (int64_t row = 0; row < batch; ++row) {
    std::vector<float> &logits = rows.emplace_back();
    for (int64_t i = 0; i < vocabulary; ++i)
      logits.push_back(float(getElement(whole, (row * width + last) * vocabulary + i)));
  }
  return rows;
}

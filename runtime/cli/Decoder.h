//===- Decoder.h - a plan as a language model -------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Finds a plan's inputs for token ids, positions and masks, and the calls that read a prompt and
// decode. A plan with states (`compile --state`) reads the prompt in the largest pieces that it has
// specialisations for, then decodes one token per call. So does a plan whose cache is an input and
// a longer output, if it takes a mask and positions: unfilled entries are at the front and masked,
// and the caches pass through the host. A plan without a cache recomputes the whole sequence for
// each token.
//
//===----------------------------------------------------------------------===//
#ifndef GRIDLOOM_RUNTIME_CLI_DECODER_H
#define GRIDLOOM_RUNTIME_CLI_DECODER_H

#include "runtime/cli/Tokens.h"
#include "runtime/core/HostArray.h"
#include "runtime/core/Plan.h"

#include <map>
#include <string>
#include <vector>

namespace gridloom::rt {

class Session;

struct DecoderSettings {
  std::string entry = "main";
  std::map<std::string, int64_t> dims;
  std::string ids, logits;                   ///< names; empty: found by type, shape and name
  std::map<std::string, std::string> inputs; ///< values of other inputs, see Generator.h
  uint64_t seed = 0;                         ///< for generated inputs
};

/// An input `past` that the previous call's output `present` updates, longer along `dim`.
struct GrowingCache {
  const Argument *past = nullptr, *present = nullptr;
  size_t dim = 0;
};

/// A specialisation and how to call it.
struct DecoderCall {
  const EntrySpecialisation *specialisation = nullptr;
  const Argument *ids = nullptr, *logits = nullptr;
  int64_t length = 0; ///< tokens per call
  std::vector<GrowingCache> caches;
};

/// Caches that pass through the host, by input name.
using HostCaches = std::map<std::string, HostArray>;

class Decoder {
public:
  /// For `batch` prompts. Throws InvalidArgument, saying what is missing, if the plan cannot be run
  /// as a language model.
  Decoder(const Plan &plan, DecoderSettings settings, int64_t batch);

  /// Whether tokens already read are cached, by the session or in HostCaches.
  bool hasCache() const { return cached; }
  /// Checks that `prompts` can be read and `generated` tokens added. Throws InvalidArgument if no
  /// specialisation takes them, they exceed the cache or the sequence, or a token is outside of the
  /// vocabulary.
  void check(const TokenRows &prompts, int64_t generated) const;
  /// The next call, with `position` tokens read and `pending` to read: with a cache the longest
  /// that fits, else the shortest that holds all tokens.
  const DecoderCall &choose(int64_t position, int64_t pending) const;
  /// Binds a call's inputs: `rows` are all tokens so far, of which `position` have been read.
  void bind(Session &session, const DecoderCall &call, const TokenRows &rows, int64_t position,
            HostCaches &caches) const;
  /// Collective. Copies a call's caches to `caches` for the next call.
  void keep(Session &session, const DecoderCall &call, HostCaches &caches) const;
  /// The logits of each row's last token, [batch, vocabulary], after a call that read up to `count`
  /// tokens. `whole` is the logits output.
  std::vector<std::vector<float>> getLast(const DecoderCall &call, const HostArray &whole,
                                          int64_t position, int64_t count) const;

private:
  void addCall(const EntrySpecialisation &specialisation);
  const Argument *findIds(const EntrySpecialisation &specialisation) const;
  const Argument *findLogits(const EntrySpecialisation &specialisation, int64_t length) const;
  void findCaches(DecoderCall &call) const;
  void checkInputs(const DecoderCall &call) const;
  HostArray makeInput(const DecoderCall &call, const Argument &input, int64_t begin,
                      int64_t end) const;
  int64_t getCapacity(const Plan &plan) const;
  HostArray makeIds(const DecoderCall &call, const TokenRows &rows, int64_t position) const;

  DecoderSettings settings;
  int64_t batch;
  bool cached = false, grows = false;
  int64_t capacity = 0;           ///< in tokens; 0: unknown
  std::vector<DecoderCall> calls; ///< by length, the longest first
};

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_CLI_DECODER_H

//===- Decoder.h - a plan as a language model -------------------*- C++ -*-===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Finds a plan's inputs for token ids, positions and masks, and the calls that read a prompt and
// decode. A plan with states (`compile --state`) reads the prompt in the largest pieces it has
// specialisations for and then one token a call. So does a plan whose cache goes in and comes out
// longer, where it takes a mask and positions: what is not filled yet lies masked in front, and the
// caches go through the host. A plan without a cache computes the whole sequence for each token.
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
  uint64_t seed = 0;                         ///< of these
};

/// An input that is an output of the previous call, longer along `dim` by the tokens of a call.
struct GrowingCache {
  const Argument *past = nullptr, *present = nullptr;
  size_t dim = 0;
};

/// Calls of one specialisation.
struct DecoderCall {
  const EntrySpecialisation *specialisation = nullptr;
  const Argument *ids = nullptr, *logits = nullptr;
  int64_t length = 0; ///< tokens of a call
  std::vector<GrowingCache> caches;
};

/// Caches that go through the host, by the name of the input.
using HostCaches = std::map<std::string, HostArray>;

class Decoder {
public:
  /// For `batch` prompts. Throws InvalidArgument, in a line that says what is missing, when the
  /// plan is no language model that can be run so.
  Decoder(const Plan &plan, DecoderSettings settings, int64_t batch);

  /// Whether what has been read is kept, by the session or in HostCaches.
  bool hasCache() const { return cached; }
  /// That `prompts` can be read and `generated` more tokens made. Throws InvalidArgument when no
  /// specialisation takes them, they are more than the cache or the sequence holds, or a token is
  /// outside of the vocabulary.
  void check(const TokenRows &prompts, int64_t generated) const;
  /// The next call where `position` tokens are read and `pending` are not: the longest that fits
  /// with a cache, else the shortest that holds all tokens.
  const DecoderCall &choose(int64_t position, int64_t pending) const;
  /// Binds the inputs of a call: `rows` are all tokens so far, `position` of which are read.
  void bind(Session &session, const DecoderCall &call, const TokenRows &rows, int64_t position,
            HostCaches &caches) const;
  /// Collective. Takes the caches that a call has made, for the next one.
  void keep(Session &session, const DecoderCall &call, HostCaches &caches) const;
  /// Logits of the last token of each row, after a call that read up to `count` tokens: [batch,
  /// vocabulary] of floats. `whole` is the output.
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
  int64_t capacity = 0;           ///< tokens that fit; 0: unknown
  std::vector<DecoderCall> calls; ///< by length, the longest first
};

} // namespace gridloom::rt

#endif // GRIDLOOM_RUNTIME_CLI_DECODER_H

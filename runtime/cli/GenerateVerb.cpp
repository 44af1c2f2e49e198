//===- GenerateVerb.cpp - gridloom generate -------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "runtime/cli/Verbs.h"

#include "runtime/cli/Decoder.h"
#include "runtime/cli/Job.h"
#include "runtime/cli/Sampler.h"
#include "runtime/core/Error.h"
#include "support/OutputFormat.h"
#include "support/Usage.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <optional>

using namespace gridloom;
using namespace gridloom::rt;
namespace fs = std::filesystem;

static const char *const examples = R"(
Examples:
  gridloom compile gpt2.onnx --dim batch=1 --dim sequence=16,1 --state 'past_*=present_*'
  gridloom generate gpt2.plan --tokens 464,3290,318 --max-tokens 32
      the likeliest tokens after these; the plan reads the prompt 16 tokens at a time, what is left
      one by one, and keeps keys and values in the session
  gridloom generate gpt2.plan --tokens prompt.npy --top-k 40 --temperature 0.8 --seed 7 --stop 50256
      drawn among the 40 likeliest; ends with token 50256

Tokens are numbers; a tokenizer makes them of text. Inputs are found by their names: token ids are
integers of [batch, sequence]; position, position_ids, cache_position and attention_mask are made.
A cache that goes in and comes out longer needs an attention_mask and position_ids, and goes through
the host; --state is faster. A plan without a cache computes the whole sequence for each token, and
needs a causal model.)";

namespace {

struct GenerateSettings {
  JobSettings job;
  DecoderSettings decoder;
  SamplingSettings sampling;
  std::optional<double> temperature; // as given
  std::string tokens, output;
  bool force = false;
  std::vector<int64_t> stop;
  int64_t most = 16;
};

/// Generates tokens on one rank and times it.
class Generation {
public:
  Generation(const GenerateSettings &settings, const Decoder &decoder, const TokenRows &prompts,
             Session &session)
      : made(prompts.size()), prompt(int64_t(prompts.front().size())), settings(settings),
        decoder(decoder), session(session), rows(prompts) {}

  /// Collective: all ranks get the logits and choose the same tokens.
  void run(bool isTeller);

  TokenRows made;
  int64_t prompt;                   // tokens of each prompt
  double reading = 0, decoding = 0; // seconds

private:
  /// Reads the unread tokens; returns the logits of the last one.
  std::vector<std::vector<float>> read();
  bool isOver() const;

  const GenerateSettings &settings;
  const Decoder &decoder;
  Session &session;
  TokenRows rows; // prompts and generated tokens
  HostCaches caches;
  int64_t position = 0;
};

} // namespace

static bool hasEnded(const std::vector<int64_t> &row, const GenerateSettings &settings) {
  return !row.empty() && std::count(settings.stop.begin(), settings.stop.end(), row.back());
}

bool Generation::isOver() const {
  return std::all_of(made.begin(), made.end(), [&](const std::vector<int64_t> &row) {
    return int64_t(row.size()) >= settings.most || hasEnded(row, settings);
  });
}

std::vector<std::vector<float>> Generation::read() {
  int64_t count = int64_t(rows.front().size());
  while (true) {
    const DecoderCall &call = decoder.choose(position, count - position);
    decoder.bind(session, call, rows, position, caches);
    session.run(settings.job.entry, call.specialisation->dims);
    decoder.keep(session, call, caches);
    int64_t begin = position;
    position = decoder.hasCache() ? position + call.length : count;
    if (position < count)
      continue;
    HostArray logits = session.gatherOutputToAll(call.logits->name);
    if (!decoder.hasCache())
      position = 0;
    return decoder.getLast(call, logits, begin, count);
  }
}

void Generation::run(bool isTeller) {
  using Clock = std::chrono::steady_clock;
  auto since = [](Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
  };
  for (int64_t step = 0; !isOver(); ++step) {
    Clock::time_point begin = Clock::now();
    std::vector<std::vector<float>> logits = read();
    for (size_t row = 0; row < rows.size(); ++row) {
      int64_t token = chooseToken(logits[row], settings.sampling, int64_t(row), step);
      rows[row].push_back(token);
      if (!hasEnded(made[row], settings))
        made[row].push_back(token);
    }
    (step == 0 ? reading : decoding) += since(begin);
    if (isTeller && rows.size() == 1) // print tokens as they are generated
      std::cout << (step == 0 ? "" : ",") << made[0].back() << std::flush;
  }
  if (isTeller && rows.size() == 1)
    std::cout << "\n";
}

static std::string formatRate(int64_t tokens, double seconds, const char *verb) {
  char text[128];
  snprintf(text, sizeof text, "%lld %s in %.1f ms (%.0f tokens/s)", static_cast<long long>(tokens),
           verb, seconds * 1e3, seconds > 0 ? double(tokens) / seconds : 0);
  return text;
}

static void tell(const GenerateSettings &settings, const Generation &generation) {
  int64_t batch = int64_t(generation.made.size()), count = 0;
  for (const std::vector<int64_t> &row : generation.made) {
    count += int64_t(row.size());
    if (batch > 1)
      std::cout << formatTokens(row) << "\n";
  }
  if (!settings.output.empty())
    writeTokens(settings.output, generation.made);
  // Reading the prompt already yields the first token.
  std::cerr << formatRate(batch * generation.prompt, generation.reading, "tokens read");
  if (count > batch)
    std::cerr << " | " << formatRate(count - batch, generation.decoding, "decoded");
  std::cerr << "\n";
  flushOutput();
}

namespace {

/// What a rank prepares before it joins the job.
struct Prepared {
  TokenRows prompts;
  std::shared_ptr<const Plan> plan;
  std::optional<Decoder> decoder;
};

} // namespace

/// Refuses an output without a folder, and to replace a file without --force.
static void requireOutput(const GenerateSettings &settings) {
  if (settings.output.empty())
    return;
  if (fs::path folder = fs::absolute(settings.output).parent_path(); !fs::is_directory(folder))
    throw Error(ErrorCode::InvalidArgument,
                "--output " + settings.output + ": there is no folder " + folder.string());
  if (!settings.force && fs::is_regular_file(settings.output))
    throw Error(ErrorCode::InvalidArgument,
                settings.output + " exists; choose another --output or --force");
}

static void prepare(GenerateSettings &settings, Prepared &made) {
  made.prompts = readTokens(settings.tokens);
  settings.decoder.entry = settings.job.entry;
  settings.decoder.dims = readDims(settings.job.dims);
  settings.decoder.inputs = readInputs(settings.job.inputs);
  settings.decoder.seed = settings.sampling.seed = settings.job.seed;
  settings.sampling.temperature = settings.temperature.value_or(settings.sampling.topK ? 1.0 : 0.0);
  made.plan = loadPlan(settings.job);
  made.decoder.emplace(*made.plan, settings.decoder, int64_t(made.prompts.size()));
  made.decoder->check(made.prompts, settings.most);
  made.plan->requireOutside("--output", settings.output);
  requireOutput(settings);
}

static int runGenerate(GenerateSettings settings) {
  Prepared made;
  beforeJoining(settings.job, [&] { prepare(settings, made); });
  auto cache = std::make_shared<WeightCache>();
  return runRanks(settings.job, made.plan->getMesh().getNumRanks(),
                  [&](const World &world, Transport &transport) {
                    JobRank rank = startRank(settings.job, made.plan, cache, world, transport, {});
                    Generation generation(settings, *made.decoder, made.prompts, *rank.session);
                    generation.run(world.rank == 0);
                    if (world.rank == 0)
                      tell(settings, generation);
                  });
}

Verb gridloom::rt::addGenerate(CLI::App &app) {
  auto settings = std::make_shared<GenerateSettings>();
  CLI::App *verb =
      app.add_subcommand("generate", "Generate tokens with a plan of a language model");
  verb->footer(examples);
  addPlanOptions(*verb, settings->job);
  verb->get_option("--seed")->description("seed of the draws, and of random inputs");
  verb->get_option("--dim")->description(
      "NAME=SIZE[,NAME=SIZE]: use only specialisations of this size");
  verb->get_option("--input")->description(
      std::string("value of an input that is neither ids, positions nor mask: ") +
      verb->get_option("--input")->get_description());
  verb->add_option(
          "--tokens", settings->tokens,
          "the prompt's token ids: 1,2,3, a .npy file, or a text file with a prompt a line")
      ->required()
      ->type_name("IDS|FILE");
  verb->add_option("--max-tokens", settings->most, "most tokens to generate")
      ->check(CLI::Range(int64_t(1), int64_t(1) << 32))
      ->capture_default_str();
  verb->add_option("--top-k", settings->sampling.topK, "draw among so many of the likeliest")
      ->check(CLI::Range(int64_t(1), int64_t(1) << 32));
  verb->add_option(
          "--temperature", settings->temperature,
          "draw by softmax(logits / T); 0 takes the likeliest token; default: 1 with --top-k, "
          "else 0")
      ->check(numberWithin(0, 1e6));
  verb->add_option("--stop", settings->stop, "token that ends a prompt's output; may be repeated")
      ->check(wholeNumberFrom(0))
      ->allow_extra_args(false);
  verb->add_option("--ids", settings->decoder.ids, "the input that takes token ids")
      ->check(notEmpty());
  verb->add_option("--logits", settings->decoder.logits, "the output that is the logits")
      ->check(notEmpty());
  auto *output =
      verb->add_option("--output", settings->output,
                       "file for the generated ids: .npy, or text with a line per prompt")
          ->check(notEmpty());
  verb->add_flag("--force", settings->force, "replace an output that exists")->needs(output);
  return {verb, [settings] { return runGenerate(*settings); }};
}

//===- SolveMain.cpp - gridloom-solve -------------------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/solver/ProblemReader.h"
#include "compiler/solver/Solver.h"
#include "support/OutputFormat.h"
#include "support/Text.h"
#include "support/Usage.h"

#include <CLI/CLI.hpp>

#include <cstdio>
#include <iostream>
#include <thread>

using namespace gridloom;
using namespace gridloom::solver;

static const char *const manual = R"(
The file is JSON, plain or compressed by gzip, as in the IOPDDL contest (ASPLOS 2025):

  {"problem": {"nodes": {"intervals": [[begin, end]...],  when a node's memory is in use
                         "costs": [[...]...],             by strategy
                         "usages": [[...]...]},           by strategy
               "edges": {"nodes": [[first, second]...],
                         "costs": [[...]...]},            row-major; from 1e18 on: forbidden
               "usage_limit": ...}}                       of the usages at any time

Prints one line of JSON:
  cost         of the nodes' and edges' choices
  lower_bound  no assignment that keeps the limit costs less; equal to cost: proven to be the best
  assignment   the strategy of each node
  work         rounds of search: --work with this number prints the same line again

Examples:
  gridloom-solve problem.json.gz --time 30 --threads 2
      what is found in thirty seconds on two threads
  gridloom-solve problem.json --time 0
      the first assignment that keeps the limit, or that there is none
  gridloom-solve problem.json --work 500
      what 500 rounds find, on any machine and any number of threads

Exit codes: 0 an assignment is printed; 1 the file is wrong or no assignment can keep the limit;
2 wrong usage; 3 none was found, though there may be one.)";

namespace {

struct Settings {
  std::string path;
  std::optional<double> seconds;
  std::optional<uint64_t> work;
  unsigned threads = std::max(1u, std::min(8u, std::thread::hardware_concurrency()));
};

/// Writes a line when the cost has fallen, at most once a second.
class ProgressLines {
public:
  void write(const Progress &progress) {
    Options::Clock::time_point now = Options::Clock::now();
    if (progress.cost >= lastCost || now < next)
      return;
    lastCost = progress.cost;
    next = now + std::chrono::seconds(1);
    char text[160];
    double gap = progress.cost == 0 ? 0 : 1 - double(progress.lowerBound) / double(progress.cost);
    snprintf(text, sizeof text, "%.1f s  work %llu  cost %lld  bound %lld  gap %.3g%%\n",
             std::chrono::duration<double>(now - start).count(),
             static_cast<unsigned long long>(progress.work), static_cast<long long>(progress.cost),
             static_cast<long long>(progress.lowerBound), 100 * gap);
    std::cerr << text;
  }

private:
  Options::Clock::time_point start = Options::Clock::now(), next = start;
  Cost lastCost = infiniteCost;
};

} // namespace

/// Prints an error as one line, whatever its source.
static int report(const std::string &text, int code) {
  std::cerr << "error: " << makePrintable(text) << "\n";
  return code;
}

static void print(const Solution &solution) {
  std::cout << "{\"cost\":" << solution.progress.cost
            << ",\"lower_bound\":" << solution.progress.lowerBound << ",\"assignment\":[";
  for (size_t i = 0; i < solution.assignment.size(); ++i)
    std::cout << (i ? "," : "") << solution.assignment[i];
  std::cout << "],\"work\":" << solution.progress.work << "}\n";
}

static int run(const Settings &settings) {
  Options::Clock::time_point start = Options::Clock::now();
  Problem problem;
  if (std::string fault = readProblem(settings.path, problem); !fault.empty())
    return report(fault, 1);
  Options options;
  options.numThreads = settings.threads;
  options.work = settings.work.value_or(options.work);
  // With --work, all rounds are run, unless a time is given as well.
  double seconds = settings.seconds.value_or(settings.work ? 1e9 : 60);
  options.deadline = start + std::chrono::duration_cast<Options::Clock::duration>(
                                 std::chrono::duration<double>(std::min(seconds, 1e9)));
  options.isFirstEnough = seconds == 0;
  ProgressLines lines;
  options.onProgress = [&](const Progress &progress) { lines.write(progress); };
  Solution solution = solve(problem, options);
  if (!solution.fault.empty())
    return report(settings.path + ": " + solution.fault, solution.isProvenInfeasible ? 1 : 3);
  print(solution);
  if (std::string fault = tryFlushOutput(); !fault.empty())
    return report(fault, 1);
  return 0;
}

int main(int argc, char **argv) {
  prepareFiles();
  Settings settings;
  CLI::App app("Chooses a strategy for each node of a graph: least cost within a limit of memory.",
               "gridloom-solve");
  app.footer(manual);
  app.add_option("problem", settings.path, "the problem, .json or .json.gz")
      ->required()
      ->type_name("FILE");
  app.add_option("--time", settings.seconds,
                 "seconds until the best assignment so far is printed, reading included; 0: the "
                 "first one is enough; default 60, or no limit with --work")
      ->check(numberWithin(0, 1e9))
      ->type_name("S");
  app.add_option("--work", settings.work, "rounds of search; the same number has the same result")
      ->check(numberWithin(0, 1e15))
      ->type_name("N");
  app.add_option("--threads", settings.threads, "threads; default: the machine's, at most 8")
      ->check(numberWithin(1, 256))
      ->type_name("N");
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success &done) {
    return app.exit(done);
  } catch (const CLI::ParseError &error) {
    return report(describeUsageError(app, error, "gridloom-solve"), 2);
  }
  try {
    return run(settings);
  } catch (const std::bad_alloc &) {
    return report(settings.path + ": the machine has too little memory for this problem", 1);
  } catch (const std::exception &error) {
    return report(settings.path + ": " + error.what(), 1);
  }
}

//===- TrialSizes.cpp - sizes that a model compiles with --------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/driver/TrialSizes.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

#include <optional>
#include <set>

using namespace gridloom;

/// The most trials of a search: each imports the model.
static constexpr int kMaxTrials = 60;

//===----------------------------------------------------------------------===//
// Likely sizes of a dimension
//===----------------------------------------------------------------------===//

namespace {
/// Sizes to try one after the other, and steps to further sizes that models of the kind take.
struct Guess {
  std::vector<int64_t> sizes, steps;
};
} // namespace

static const Guess pictures = {{224, 256, 512, 800, 64, 32}, {32, 64, 288}};
static const Guess recordings = {{16000, 1024, 80000}, {320, 1600, 16000}};
static const Guess lengths = {{16, 64, 256, 8, 1024}, {1, 8, 16, 64}};

static bool hasWord(llvm::StringRef name, std::initializer_list<const char *> words) {
  return llvm::any_of(words, [&](const char *word) { return name.contains_insensitive(word); });
}

/// Whether dimension `i` of an input is a side of a picture: [batch, channels, height, width] and
/// the like. A cache of keys, with one open dimension after the batch, has none.
static bool isSide(const BriefValue &input, size_t i) {
  const std::vector<BriefDim> &dims = input.dims;
  auto isOpen = [&](size_t at) { return at < dims.size() && dims[at].isOpen(); };
  auto isChannels = [&](size_t at) {
    return at < dims.size() && !dims[at].isOpen() && dims[at].size <= 4;
  };
  if (!llvm::StringRef(input.type).contains("float"))
    return false;
  if (dims.size() == 3 && isChannels(0)) // [3, height, width]
    return i > 0 && isOpen(1) && isOpen(2);
  if (dims.size() == 4 && isChannels(3)) // [batch, height, width, 3]
    return (i == 1 || i == 2) && isOpen(1) && isOpen(2);
  return dims.size() >= 4 && i + 2 >= dims.size() && isOpen(dims.size() - 1) &&
         isOpen(dims.size() - 2);
}

static Guess guess(const ModelBrief &brief, llvm::StringRef name, int64_t batch) {
  if (hasWord(name, {"batch"}))
    return {{batch, 2 * batch, batch}, {batch, 2 * batch}};
  if (hasWord(name, {"height", "width"}) || name.equals_insensitive("h") ||
      name.equals_insensitive("w"))
    return pictures;
  if (hasWord(name, {"sample", "audio", "wave"}))
    return recordings;
  bool isFirst = !hasWord(name, {"seq", "len", "time", "tok", "frame", "past", "total"});
  for (const BriefValue &input : brief.inputs)
    for (auto [i, dim] : llvm::enumerate(input.dims)) {
      if (dim.name != name)
        continue;
      if (isSide(input, i))
        return pictures;
      isFirst &= i == 0 && input.dims.size() > 1;
    }
  return isFirst ? Guess{{batch, 2 * batch, batch}, {batch, 2 * batch}} : lengths;
}

/// The size of `past + sequence` or `past + 1`, as exporters name sums; nullopt if a part has no
/// size.
static std::optional<int64_t> addParts(llvm::StringRef dim, const Sizes &sizes) {
  int64_t sum = 0;
  for (llvm::StringRef part : llvm::split(dim, " + ")) {
    int64_t size = 0;
    if (auto known = sizes.find(part.str()); known != sizes.end())
      size = known->second;
    else if (part.getAsInteger(10, size))
      return std::nullopt;
    sum += size;
  }
  return sum;
}

//===----------------------------------------------------------------------===//
// The search
//===----------------------------------------------------------------------===//

namespace {
class Search {
public:
  Search(const ModelBrief &brief, const Sizes &given, int64_t batch, const TrialCompile &trial)
      : brief(brief), given(given), trial(trial) {
    for (const std::string &name : brief.dims) {
      if (given.count(name))
        continue;
      open.push_back(name);
      if (!isSum(name))
        guesses[name] = guess(brief, name, batch);
    }
  }

  TrialResult run();

private:
  static bool isSum(llvm::StringRef name) { return name.contains(" + "); }
  /// Sizes of all dimensions, given those that are chosen.
  Sizes complete(const Sizes &chosen) const;
  /// Errors of a trial; each is run once.
  std::string attempt(const Sizes &chosen);
  bool works(const Sizes &chosen) { return trials < limit && attempt(chosen).empty(); }
  Sizes chooseLevel(size_t level) const;
  std::optional<Sizes> findWorking();
  std::optional<Sizes> findSum(const Sizes &start);
  std::optional<Sizes> findBaked(const Sizes &start);

  /// Whether `sizes` still work with all of `names` grown by one of their steps.
  bool grows(const Sizes &sizes, llvm::ArrayRef<std::string> names);
  std::vector<std::string> findPartners(const Sizes &sizes, const std::string &name);
  void describeFreedom(const Sizes &sizes, std::vector<std::string> &remarks);
  std::string describeGroup(const Sizes &sizes, llvm::ArrayRef<std::string> names) const;
  std::string describeFixed(const Sizes &sizes, const std::string &name);

  const ModelBrief &brief;
  const Sizes &given;
  const TrialCompile &trial;
  std::vector<std::string> open;
  std::map<std::string, Guess> guesses; // of dimensions that are no sums
  std::map<Sizes, std::string> tried;
  int trials = 0, limit = kMaxTrials;
  bool isOfSizes = false;
};
} // namespace

Sizes Search::complete(const Sizes &chosen) const {
  Sizes all = given;
  all.insert(chosen.begin(), chosen.end());
  for (const std::string &name : open)
    if (isSum(name))
      all[name] = addParts(name, all).value_or(lengths.sizes.front());
  return all;
}

std::string Search::attempt(const Sizes &chosen) {
  Sizes all = complete(chosen);
  auto [found, isNew] = tried.try_emplace(all);
  if (isNew) {
    ++trials;
    found->second = trial(all);
  }
  return found->second;
}

Sizes Search::chooseLevel(size_t level) const {
  Sizes sizes;
  for (const auto &[name, guess] : guesses)
    sizes[name] = guess.sizes[std::min(level, guess.sizes.size() - 1)];
  return sizes;
}

/// A mask or a total is as long as two other dimensions together, or as a dimension and the fixed
/// number of new tokens in an input of integers.
std::optional<Sizes> Search::findSum(const Sizes &start) {
  std::set<int64_t> fixed = {1};
  for (const BriefValue &input : brief.inputs)
    if (llvm::StringRef(input.type).contains("int") && !input.dims.empty() &&
        !input.dims.back().isOpen())
      fixed.insert(input.dims.back().size);
  Sizes all = complete(start);
  for (const auto &[total, _] : start)
    for (const auto &[part, size] : all) {
      if (part == total)
        continue;
      std::set<int64_t> others = fixed;
      for (const auto &[other, otherSize] : all)
        if (other != total && other != part)
          others.insert(otherSize);
      for (int64_t other : others) {
        Sizes sizes = start;
        sizes[total] = size + other;
        if (works(sizes))
          return sizes;
      }
    }
  return std::nullopt;
}

/// Tries the numbers in errors: they may name a size that the exporter fixed.
std::optional<Sizes> Search::findBaked(const Sizes &start) {
  std::string errors = attempt(start);
  std::set<int64_t> numbers;
  for (llvm::StringRef rest = errors; !rest.empty();) {
    int64_t number = 0;
    rest = rest.drop_until([](char c) { return llvm::isDigit(c); });
    if (!rest.consumeInteger(10, number) && number > 0 && number <= 4096)
      numbers.insert(number);
  }
  // It is seldom the batch, whose sizes are the smallest.
  std::vector<std::string> names;
  for (const auto &[name, _] : start)
    names.push_back(name);
  llvm::stable_sort(names, [&](const std::string &a, const std::string &b) {
    return guesses[a].sizes.front() > guesses[b].sizes.front();
  });
  for (int64_t number : numbers)
    for (const std::string &name : names) {
      Sizes sizes = start;
      sizes[name] = number;
      if (works(sizes))
        return sizes;
    }
  return std::nullopt;
}

std::optional<Sizes> Search::findWorking() {
  Sizes start = chooseLevel(0);
  std::string errors = attempt(start);
  if (errors.empty())
    return start;
  // Errors that other sizes do not change are not about sizes.
  if (start.empty() || attempt(chooseLevel(1)) == errors)
    return std::nullopt;
  isOfSizes = true;
  if (attempt(chooseLevel(1)).empty())
    return chooseLevel(1);
  if (std::optional<Sizes> found = findSum(start))
    return found;
  for (size_t level = 2; level < pictures.sizes.size(); ++level)
    if (works(chooseLevel(level)))
      return chooseLevel(level);
  Sizes equal = start;
  for (auto &[name, size] : equal)
    size = lengths.sizes.front();
  if (works(equal))
    return equal;
  return findBaked(start);
}

bool Search::grows(const Sizes &sizes, llvm::ArrayRef<std::string> names) {
  // Several sizes together may work by chance, e.g. if a reshape divides their product.
  int wanted = names.size() == 1 ? 1 : 2;
  for (int64_t step : guesses[names.front()].steps) {
    Sizes grown = sizes;
    for (const std::string &name : names)
      grown[name] += step;
    if (works(grown) && --wanted == 0)
      return true;
  }
  return false;
}

/// "s10 = s86", "total = past + sequence", or another relation between their sizes.
std::string Search::describeGroup(const Sizes &sizes, llvm::ArrayRef<std::string> names) const {
  std::vector<std::string> equal, sums;
  int64_t least = sizes.at(names.front());
  for (const std::string &name : names)
    least = std::min(least, sizes.at(name));
  for (const std::string &name : names)
    if (sizes.at(name) == least)
      equal.push_back(name);
  for (const std::string &name : names) {
    int64_t size = sizes.at(name);
    if (size == least)
      continue;
    if (equal.size() == 2 && names.size() == 3 && size == 2 * least) {
      return name + " = " + equal[0] + " + " + equal[1];
    }
    sums.push_back(name + " = " + equal.front() + " + " + std::to_string(size - least));
  }
  std::string text = equal.size() > 1 ? llvm::join(equal, " = ") : "";
  return text + (text.empty() || sums.empty() ? "" : ", ") + llvm::join(sums, ", ");
}

std::string Search::describeFixed(const Sizes &sizes, const std::string &name) {
  std::string others, errors;
  for (int64_t step : guesses[name].steps) {
    Sizes grown = sizes;
    grown[name] += step;
    others += (others.empty() ? "" : ", ") + std::to_string(grown[name]);
    if (errors.empty())
      errors = attempt(grown);
  }
  if (trials >= limit) // too few trials to know
    return name + "=" + std::to_string(sizes.at(name)) + " works";
  llvm::StringRef first = llvm::StringRef(errors).split('\n').first;
  first.consume_front("error: ");
  return name + "=" + std::to_string(sizes.at(name)) + " works and " + others +
         " do not: the exporter fixed this size (" + first.str() + ")";
}

/// The fewest dimensions that grow together with `name`; only itself if nothing lets it grow.
std::vector<std::string> Search::findPartners(const Sizes &sizes, const std::string &name) {
  std::vector<std::string> all = {name};
  for (const auto &[other, _] : sizes) {
    if (other == name)
      continue;
    if (grows(sizes, {name, other}))
      return {name, other};
    all.push_back(other);
  }
  if (all.size() < 3 || !grows(sizes, all))
    return {name};
  // One may be needed only by another that is not needed.
  for (size_t before = 0; before != all.size();) {
    before = all.size();
    for (size_t i = all.size() - 1; i > 0; --i) {
      std::vector<std::string> fewer = all;
      fewer.erase(fewer.begin() + i);
      if (grows(sizes, fewer))
        all = std::move(fewer);
    }
  }
  return all;
}

/// Tries a second size of each dimension: alone, or, if that fails, together with others.
void Search::describeFreedom(const Sizes &sizes, std::vector<std::string> &remarks) {
  std::vector<std::set<std::string>> groups;
  std::vector<std::string> free, fixed;
  limit = trials + kMaxTrials;
  for (const auto &[name, size] : sizes) {
    if (llvm::any_of(groups, [&](const auto &group) { return group.count(name); }))
      continue;
    if (grows(sizes, name)) {
      free.push_back(name);
      continue;
    }
    std::vector<std::string> found = findPartners(sizes, name);
    if (found.size() == 1) {
      fixed.push_back(name);
      continue;
    }
    std::set<std::string> group(found.begin(), found.end());
    llvm::erase_if(groups, [&](const std::set<std::string> &other) {
      bool shares = llvm::any_of(other, [&](const std::string &one) { return group.count(one); });
      if (shares)
        group.insert(other.begin(), other.end());
      return shares;
    });
    groups.push_back(std::move(group));
  }
  for (const std::set<std::string> &group : groups) {
    std::string values;
    for (const std::string &name : group)
      values += (values.empty() ? "" : ", ") + name + "=" + std::to_string(sizes.at(name));
    remarks.push_back(values + " work; they change together: " +
                      describeGroup(sizes, std::vector<std::string>(group.begin(), group.end())));
  }
  for (const std::string &name : free)
    if (llvm::none_of(groups, [&](const auto &group) { return group.count(name); }))
      remarks.push_back(name + "=" + std::to_string(sizes.at(name)) + " works, and so do others");
  for (const std::string &name : fixed)
    remarks.push_back(describeFixed(sizes, name));
}

TrialResult Search::run() {
  TrialResult result;
  std::optional<Sizes> found = findWorking();
  Sizes chosen = found.value_or(chooseLevel(0));
  if (found)
    describeFreedom(chosen, result.remarks);
  else
    result.errors = attempt(chosen);
  Sizes all = complete(chosen);
  for (const std::string &name : open) {
    result.sizes[name] = all[name];
    if (isSum(name) && found)
      result.remarks.push_back(name + "=" + std::to_string(all[name]) + " follows");
  }
  result.trials = trials;
  result.isOfSizes = isOfSizes;
  return result;
}

TrialResult gridloom::findSizes(const ModelBrief &brief, const Sizes &given, int64_t batch,
                                const TrialCompile &trial) {
  return Search(brief, given, batch, trial).run();
}

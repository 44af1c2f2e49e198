//===- NamePatterns.cpp - names with stars, and lists folded into them ----===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "passes/shard/NamePatterns.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"

using namespace gridloom;
using llvm::ArrayRef;
using llvm::SmallVector;
using llvm::StringRef;

/// The length of a pattern's text besides stars.
static size_t countLiterals(StringRef pattern) { return pattern.size() - pattern.count('*'); }

//===----------------------------------------------------------------------===//
// NameTable
//===----------------------------------------------------------------------===//

NameTable::NameTable(ArrayRef<StringRef> given) : keys(given), unused(given.size(), true) {
  for (auto [i, key] : llvm::enumerate(keys)) {
    exact.try_emplace(key, i);
    if (size_t star = key.find('*'); star != StringRef::npos)
      patterns[key.take_front(star)].push_back(i);
  }
}

void NameTable::addPatterns(StringRef name, llvm::SmallVectorImpl<unsigned> &found) {
  auto visit = [&](ArrayRef<unsigned> list) {
    for (unsigned i : list)
      if (matchesPattern(keys[i], name)) {
        found.push_back(i);
        unused.reset(i);
      }
  };
  // Loops over whichever is shorter, the patterns' prefixes or the name.
  if (patterns.size() < name.size()) {
    for (const auto &entry : patterns)
      if (name.starts_with(entry.getKey()))
        visit(entry.getValue());
  } else {
    for (size_t length = 0; length <= name.size(); ++length)
      if (auto list = patterns.find(name.take_front(length)); list != patterns.end())
        visit(list->getValue());
  }
  size_t most = 0;
  for (unsigned i : found)
    most = std::max(most, countLiterals(keys[i]));
  llvm::erase_if(found, [&](unsigned i) { return countLiterals(keys[i]) < most; });
  llvm::sort(found);
}

SmallVector<unsigned, 2> NameTable::find(StringRef full, StringRef base) {
  SmallVector<unsigned, 2> tiers[4];
  for (auto [tier, name] : {std::pair(0, full), std::pair(1, base)}) {
    if (auto key = exact.find(name); key != exact.end()) {
      tiers[tier].push_back(key->second);
      unused.reset(key->second);
    }
    if (tier == 0 || base != full)
      addPatterns(name, tiers[2 + tier]);
  }
  for (auto &tier : tiers)
    if (!tier.empty())
      return tier;
  return {};
}

//===----------------------------------------------------------------------===//
// Folding
//===----------------------------------------------------------------------===//

/// Longer names, and those with more numbers, are not folded.
static constexpr size_t kMaxFolded = 512;
static constexpr size_t kMaxNumbers = 8;

/// `name` with a star for each of its numbers in turn, and with stars for all of them.
static SmallVector<std::string> starNumbers(StringRef name) {
  SmallVector<std::pair<size_t, size_t>> numbers;
  for (size_t i = 0; i < name.size(); ++i) {
    if (!llvm::isDigit(name[i]))
      continue;
    if (i > 0 && llvm::isDigit(name[i - 1]))
      ++numbers.back().second;
    else
      numbers.push_back({i, i + 1});
  }
  SmallVector<std::string> result;
  if (numbers.empty() || numbers.size() > kMaxNumbers)
    return result;
  std::string all = name.str();
  for (auto [begin, end] : llvm::reverse(numbers)) {
    result.push_back((name.take_front(begin) + "*" + name.drop_front(end)).str());
    all.replace(begin, end - begin, "*");
  }
  if (numbers.size() > 1)
    result.push_back(all);
  return result;
}

/// The patterns that a name may be folded into.
static SmallVector<std::string> listPatterns(const NamedText &name, FoldStyle style) {
  if (name.full.size() > kMaxFolded || StringRef(name.full).contains('*'))
    return {};
  SmallVector<std::string> patterns;
  if (style == FoldStyle::Prefixes) {
    StringRef base = name.base;
    for (size_t i = 1; i + 1 < base.size(); ++i)
      if (base[i] == '/' || base[i] == '.')
        patterns.push_back((base.take_front(i + 1) + "*").str());
    return patterns;
  }
  patterns = starNumbers(name.full);
  // An operation inside a node: "NODE:broadcast#2".
  if (size_t colon = name.full.rfind(':'); colon != std::string::npos) {
    StringRef node = StringRef(name.full).take_front(colon + 1);
    patterns.push_back((node + "*").str());
    for (const std::string &stars : starNumbers(node))
      patterns.push_back(stars + "*");
  }
  return patterns;
}

namespace {
struct Pattern {
  std::string key, text;
  size_t agree = 0; ///< names whose text it gives
};

/// Names sorted forwards and backwards, so that a pattern is compared only with the names that
/// begin, or end, as it does.
class NameIndex {
public:
  explicit NameIndex(ArrayRef<NamedText> names);
  /// The names that a pattern matches, in order; each with whether its full name matches.
  SmallVector<std::pair<size_t, bool>> match(StringRef pattern) const;

private:
  struct Entry {
    StringRef text;
    size_t name;
    bool isFull;
  };
  std::vector<Entry> forward, backward;
};

class Folder {
public:
  Folder(ArrayRef<NamedText> names, FoldStyle style) : names(names), style(style), index(names) {}
  std::vector<std::pair<std::string, std::string>> run();

private:
  std::vector<Pattern> rankPatterns() const;
  void choose(const std::string &key, const std::string &text);
  bool isRight(size_t index) const;
  void addExceptions();

  /// The text that the chosen patterns with the most literals give a name.
  struct Cover {
    bool any = false, mixed = false;
    size_t literals = 0;
    StringRef text;
    void add(StringRef key, StringRef more) {
      size_t now = countLiterals(key);
      if (any && now < literals)
        return;
      mixed = any && now == literals && (mixed || text != more);
      any = true;
      literals = now;
      text = more;
    }
    bool says(StringRef what) const { return any && !mixed && text == what; }
  };

  ArrayRef<NamedText> names;
  FoldStyle style;
  NameIndex index;
  std::vector<Cover> full, base; ///< by patterns that match the full name, or only its base
  llvm::StringMap<StringRef> exact;
  /// Keys with their texts and the first name they are for.
  std::vector<std::tuple<size_t, std::string, StringRef>> lines;
};
} // namespace

/// Orders texts by their reversals.
static bool isBeforeBackward(StringRef a, StringRef b) {
  return std::lexicographical_compare(a.rbegin(), a.rend(), b.rbegin(), b.rend());
}

NameIndex::NameIndex(ArrayRef<NamedText> names) {
  for (auto [i, name] : llvm::enumerate(names)) {
    forward.push_back({name.full, i, true});
    if (name.base != name.full)
      forward.push_back({name.base, i, false});
  }
  backward = forward;
  llvm::sort(forward, [](const Entry &a, const Entry &b) { return a.text < b.text; });
  llvm::sort(backward,
             [](const Entry &a, const Entry &b) { return isBeforeBackward(a.text, b.text); });
}

SmallVector<std::pair<size_t, bool>> NameIndex::match(StringRef pattern) const {
  StringRef first = pattern.take_front(pattern.find('*'));
  StringRef last = pattern.drop_front(pattern.rfind('*') + 1);
  auto [beginFirst, endFirst] = std::pair(
      llvm::lower_bound(forward, first, [](const Entry &e, StringRef t) { return e.text < t; }),
      llvm::partition_point(
          forward, [&](const Entry &e) { return e.text.take_front(first.size()) <= first; }));
  auto [beginLast, endLast] = std::pair(
      llvm::lower_bound(backward, last,
                        [](const Entry &e, StringRef t) { return isBeforeBackward(e.text, t); }),
      llvm::partition_point(backward, [&](const Entry &e) {
        return !isBeforeBackward(last, e.text.take_back(last.size()));
      }));
  auto range = endFirst - beginFirst < endLast - beginLast ? llvm::make_range(beginFirst, endFirst)
                                                           : llvm::make_range(beginLast, endLast);
  SmallVector<std::pair<size_t, bool>> matched;
  for (const Entry &entry : range)
    if (matchesPattern(pattern, entry.text))
      matched.push_back({entry.name, entry.isFull});
  // A match of the full name takes precedence over one of the base.
  llvm::sort(matched, [](auto a, auto b) {
    return std::pair(a.first, !a.second) < std::pair(b.first, !b.second);
  });
  matched.erase(std::unique(matched.begin(), matched.end(),
                            [](auto a, auto b) { return a.first == b.first; }),
                matched.end());
  return matched;
}

/// The patterns with a text that two or more names share; those with the most such names first.
std::vector<Pattern> Folder::rankPatterns() const {
  llvm::MapVector<StringRef, llvm::MapVector<StringRef, size_t>> families;
  llvm::StringSet<> pool;
  for (const NamedText &name : names) {
    // Names that need no line do not suggest patterns.
    if (!name.needed)
      continue;
    for (const std::string &pattern : listPatterns(name, style))
      ++families[pool.insert(pattern).first->getKey()][name.text];
  }
  std::vector<Pattern> ranked;
  for (const auto &[pattern, texts] : families) {
    const auto *most =
        llvm::max_element(texts, [](const auto &a, const auto &b) { return a.second < b.second; });
    if (most->second > 1)
      ranked.push_back({pattern.str(), most->first.str(), most->second});
  }
  // Of equals the longer one, which matches fewer other names.
  llvm::stable_sort(ranked, [](const Pattern &a, const Pattern &b) {
    return std::tuple(a.agree, a.key.size()) > std::tuple(b.agree, b.key.size());
  });
  return ranked;
}

/// Takes the pattern if it adds the text of two or more names and breaks at most a quarter as many.
void Folder::choose(const std::string &key, const std::string &text) {
  SmallVector<std::pair<size_t, bool>> matched = index.match(key);
  size_t gain = 0, loss = 0;
  std::optional<size_t> first;
  for (auto [i, isFull] : matched) {
    const NamedText &name = names[i];
    if (full[i].any && !isFull)
      continue; // patterns for the full name decide
    const Cover &before = full[i].any ? full[i] : base[i];
    Cover after = (isFull ? full : base)[i];
    after.add(key, text);
    bool was = before.any ? before.says(name.text) : !name.needed, is = after.says(name.text);
    loss += !is && (was || !before.any);
    if (!is || was || !name.needed)
      continue;
    ++gain;
    first = first ? first : i;
  }
  if (gain < 2 || 4 * loss > gain)
    return;
  StringRef said = names[*first].text;
  lines.emplace_back(*first, key, said);
  for (auto [i, isFull] : matched)
    (isFull ? full : base)[i].add(key, said);
}

/// Whether the lines so far give a name its text.
bool Folder::isRight(size_t at) const {
  const NamedText &name = names[at];
  for (StringRef key : {name.full, name.base})
    if (auto found = exact.find(key); found != exact.end())
      return found->second == name.text;
  const Cover &cover = full[at].any ? full[at] : base[at];
  return cover.any ? cover.says(name.text) : !name.needed;
}

/// Adds a line for each name that patterns do not give its text.
void Folder::addExceptions() {
  // A line for a base name applies to all that are called so. If the base is itself a full name,
  // the line has that name's text.
  llvm::StringMap<StringRef> texts;
  for (const NamedText &name : names)
    texts.try_emplace(name.base, name.text);
  for (const NamedText &name : names)
    if (name.full == name.base)
      texts[name.base] = name.text;
  for (bool changed = true; changed;) {
    changed = false;
    for (auto [i, name] : llvm::enumerate(names)) {
      if (isRight(i))
        continue;
      bool forAll = texts[name.base] == name.text && !exact.contains(name.base);
      const std::string &key = forAll ? name.base : name.full;
      exact[key] = name.text;
      lines.emplace_back(i, key, name.text);
      changed = true;
      // A name with a star also acts as a pattern.
      if (StringRef(key).contains('*'))
        for (auto [at, isFull] : index.match(key))
          (isFull ? full : base)[at].add(key, name.text);
    }
  }
}

std::vector<std::pair<std::string, std::string>> Folder::run() {
  full.resize(names.size());
  base.resize(names.size());
  // Twice, since a pattern that was wrong for many may fit after others were chosen.
  std::vector<Pattern> patterns = rankPatterns();
  for (int round = 0; round < 2; ++round)
    for (const Pattern &pattern : patterns)
      choose(pattern.key, pattern.text);
  addExceptions();
  llvm::stable_sort(lines,
                    [](const auto &a, const auto &b) { return std::get<0>(a) < std::get<0>(b); });
  std::vector<std::pair<std::string, std::string>> result;
  for (const auto &[order, key, text] : lines)
    result.emplace_back(key, text.str());
  return result;
}

std::vector<std::pair<std::string, std::string>> gridloom::foldNames(ArrayRef<NamedText> names,
                                                                     FoldStyle style) {
  return Folder(names, style).run();
}

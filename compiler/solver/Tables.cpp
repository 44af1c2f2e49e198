//===- Tables.cpp - costs of two nodes' strategies ------------------------===//
//
// Part of Gridloom, under the Apache License v2.0. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
#include "compiler/solver/Tables.h"

using namespace gridloom::solver;

Table Tables::add(std::vector<Cost> costs) {
  size_t hash = std::hash<std::string_view>()(
      {reinterpret_cast<const char *>(costs.data()), costs.size() * sizeof(Cost)});
  std::weak_ptr<const std::vector<Cost>> &entry = known[hash];
  if (Table table = entry.lock(); table && *table == costs)
    return table;
  auto table = std::make_shared<const std::vector<Cost>>(std::move(costs));
  entry = table;
  return table;
}

/// The same costs with rows and columns swapped.
static std::vector<Cost> transpose(const std::vector<Cost> &costs, size_t rows, size_t columns) {
  std::vector<Cost> transposed(costs.size());
  for (size_t i = 0; i < rows; ++i)
    for (size_t j = 0; j < columns; ++j)
      transposed[j * rows + i] = costs[i * columns + j];
  return transposed;
}

std::shared_ptr<const TableView> Tables::getView(const Table &table, size_t size, bool isFirst) {
  return views.get({getNumber(table), int64_t(size), isFirst}, table->size(), [&] {
    auto view = std::make_shared<TableView>();
    view->source = table;
    view->columns = size == 0 ? 0 : table->size() / size;
    view->costs = isFirst ? table : add(transpose(*table, view->columns, size));
    for (size_t k = 0; k < size; ++k) {
      std::span<const Cost> row = view->getRow(k);
      view->least.push_back(size_t(std::min_element(row.begin(), row.end()) - row.begin()));
      view->allowsAll = view->allowsAll && view->allows(k);
    }
    return std::shared_ptr<const TableView>(std::move(view));
  });
}

static std::vector<Cost> filter(const std::vector<Cost> &costs, bool isFirst,
                                const std::vector<bool> &isKept) {
  size_t own = isKept.size(), others = costs.size() / own;
  size_t rows = isFirst ? own : others, columns = isFirst ? others : own;
  std::vector<Cost> filtered(costs.size());
  Cost *to = filtered.data();
  const Cost *from = costs.data();
  for (size_t i = 0; i < rows; ++i, from += columns) {
    if (!isFirst)
      for (size_t j = 0; j < columns; ++j) // the next value overwrites a dropped one
        *to = from[j], to += isKept[j] ? 1 : 0;
    else if (isKept[i])
      to = std::copy(from, from + columns, to);
  }
  filtered.resize(static_cast<size_t>(to - filtered.data()));
  return filtered;
}

Table Tables::keep(const Table &table, bool isFirst, const std::vector<bool> &isKept) {
  std::vector<int64_t> key{getNumber(table), isFirst};
  for (size_t k = 0; k < isKept.size(); ++k) {
    if (k % 62 == 0)
      key.push_back(1);
    key.back() = 2 * key.back() + isKept[k];
  }
  return kept
      .get(std::move(key), 2 * table->size(),
           [&] { return Made{add(filter(*table, isFirst, isKept)), {table}}; })
      .result;
}

Table Tables::select(const Table &table, size_t size, bool isFirst,
                     const std::vector<uint32_t> &strategies) {
  std::vector<int64_t> key{getNumber(table), int64_t(size), isFirst};
  key.insert(key.end(), strategies.begin(), strategies.end());
  return selected
      .get(std::move(key), 2 * table->size(),
           [&] {
             std::shared_ptr<const TableView> view = getView(table, size, isFirst);
             std::vector<Cost> rows;
             rows.reserve(strategies.size() * view->columns);
             for (uint32_t k : strategies) {
               std::span<const Cost> row = view->getRow(k);
               rows.insert(rows.end(), row.begin(), row.end());
             }
             return Made{add(std::move(rows)), {table}};
           })
      .result;
}

Table Tables::sum(const Table &table, const Table &other, size_t columns, bool isSwapped) {
  std::vector<int64_t> key{getNumber(table), getNumber(other), int64_t(columns), isSwapped};
  return sums
      .get(std::move(key), 3 * table->size(),
           [&] {
             std::vector<Cost> added =
                 isSwapped ? transpose(*other, other->size() / columns, columns) : *other;
             for (size_t i = 0; i < added.size(); ++i)
               added[i] = addCosts((*table)[i], added[i]);
             return Made{add(std::move(added)), {table, other}};
           })
      .result;
}

'use strict';
// Tables of any length: sorted and searched over their columns, a page of rows at a time in the document.

const numberFormats = {
  count: formatCount,
  bytes: formatBytes,
  us: (value) => formatMs(value / 1e3),
  ms: formatMs,
};

// `columns`: {key, title, format, kind, help}. A format of numbers is one of the above; `kind` is a class of cells, or
// 'sharding' or 'axes', which are drawn with their colours.
class Table {
  constructor(table, columns, {sort, descending = true, label, open} = {}) {
    this.table = table;
    this.columns = columns;
    this.label = label;
    this.open = open;
    this.size = 25;
    this.page = 0;
    this.sortKey = sort || null;
    this.descending = descending;
    this.query = '';
    this.build();
    this.update();
    printing.before.push(() => this.print());
    printing.after.push(() => {
      [this.size, this.page] = this.kept;
      this.update();
    });
  }

  build() {
    this.search = el('input', {type: 'search', placeholder: 'Filter rows', 'aria-label': `Filter ${this.label}`, oninput: () => {
      this.query = this.search.value;
      this.page = 0;
      this.update();
    }});
    this.previous = el('button', {onclick: () => this.turn(-1), 'aria-label': 'Previous rows'}, '‹');
    this.next = el('button', {onclick: () => this.turn(1), 'aria-label': 'Next rows'}, '›');
    this.sizes = el('select', {'aria-label': 'Rows on a page', onchange: () => {
      this.size = Number(this.sizes.value);
      this.page = 0;
      this.update();
    }}, [25, 100, 500].map((size) => el('option', {value: size}, `${size} rows`)));
    this.count = el('span', {class: 'count', 'aria-live': 'polite'});
    this.heads = this.columns.map((column) => el('th', {scope: 'col', class: column.format ? 'num' : null, title: column.help},
      el('button', {'data-key': column.key, onclick: () => this.sortBy(column)}, column.title)));
    this.body = el('tbody');
    const isShort = this.table.rows <= this.size;
    this.element = el('div', {},
      isShort ? null : el('div', {class: 'table-tools'}, this.search, this.sizes, this.previous, this.next, this.count),
      el('div', {class: 'scroll', tabindex: 0, role: 'group', 'aria-label': this.label, onkeydown: (event) => this.press(event)},
        el('table', {'aria-label': this.label}, el('thead', {}, el('tr', {}, this.heads)), this.body)));
  }

  value(row, column) {
    return this.table.columns[column.key][row];
  }

  sortBy(column) {
    this.descending = this.sortKey === column.key ? !this.descending : Boolean(column.format);
    this.sortKey = column.key;
    this.page = 0;
    this.update();
  }

  turn(by) {
    this.page += by;
    this.update();
  }

  press(event) {
    const by = {PageDown: 1, PageUp: -1}[event.key];
    if (!by || this.table.rows <= this.size) return;
    event.preventDefault();
    this.turn(by);
  }

  matches(row, words) {
    const text = this.columns.map((column) => this.value(row, column) ?? '').join('\n').toLowerCase();
    return words.every((word) => text.includes(word) || expandsTo(text, word));
  }

  select() {
    const words = this.query.toLowerCase().split(/\s+/).filter(Boolean);
    const rows = [];
    for (let row = 0; row < this.table.rows; ++row) if (!words.length || this.matches(row, words)) rows.push(row);
    const column = this.columns.find((one) => one.key === this.sortKey);
    if (!column) return rows;
    const values = this.table.columns[column.key], sign = this.descending ? -1 : 1;
    // What is unknown comes last, both ways.
    return rows.sort((a, b) => {
      const left = values[a], right = values[b];
      if (left === null || right === null) return (left === null) - (right === null) || a - b;
      const order = typeof left === 'number' ? left - right : String(left).localeCompare(String(right), 'en', {numeric: true});
      return sign * order || a - b;
    });
  }

  cell(row, column) {
    const value = this.value(row, column);
    if (value === null || value === undefined) return el('td', {class: column.format ? 'num muted' : null}, column.format ? '–' : '');
    if (column.format) return el('td', {class: 'num', 'data-value': value}, numberFormats[column.format](value));
    if (column.kind === 'sharding')
      return el('td', {class: 'code tight'}, value && el('i', {class: 'dot', style: {background: axesColor(axesOf(value)), 'margin-right': '6px'}}), value);
    if (column.kind === 'axes') return el('td', {class: 'tight'}, value ? axesChip(value.split('.').join('+')) : '');
    const text = String(value), short = shortenNodes(text);
    return el('td', {class: column.kind, title: short === text ? null : text}, short);
  }

  update() {
    const rows = this.select();
    const pages = Math.max(1, Math.ceil(rows.length / this.size));
    this.page = Math.min(Math.max(0, this.page), pages - 1);
    const from = this.page * this.size, shown = rows.slice(from, from + this.size);
    this.body.replaceChildren(...shown.map((row) => el('tr', this.open ? {ondblclick: () => this.open(row)} : {},
      this.columns.map((column) => this.cell(row, column)))));
    this.columns.forEach((column, i) => this.heads[i].setAttribute('aria-sort',
      this.sortKey !== column.key ? 'none' : this.descending ? 'descending' : 'ascending'));
    this.previous.disabled = this.page === 0;
    this.next.disabled = this.page + 1 >= pages;
    const range = rows.length > shown.length ? `${formatCount(from + 1)}–${formatCount(from + shown.length)} of ` : '';
    const all = rows.length < this.table.rows ? ` (of ${formatCount(this.table.rows)})` : '';
    this.count.textContent = `${range}${plural(rows.length, 'row')}${all}`;
  }

  print() {
    this.kept = [this.size, this.page];
    this.size = 50;
    this.page = 0;
    this.update();
  }
}

// Whether a whole number from `first` to `last` has these digits in it, at its start or its end where it has to. A number is
// high * shift * unit + value * unit + low, and a file may claim any range: the least possible one is looked at, no list of them.
function hasDigits(first, last, digits, atStart, atEnd) {
  const value = Number(digits), shift = 10 ** digits.length;
  for (let unit = 1; unit === 1 || unit <= Math.min(last, 1e15); unit *= 10) {
    const isLeading = digits === '0' && unit === 1 || !digits.startsWith('0');
    const high = Math.max(isLeading ? 0 : 1, Math.ceil((first - value * unit - unit + 1) / (shift * unit)));
    if ((!atStart || high === 0) && high * shift * unit + value * unit <= last) return true;
    if (atEnd) break;
  }
  return false;
}

// Whether 'h.{0-11}.attn' stands for a name with the word 'h.7.at'.
function expandsTo(text, word) {
  const fold = /^([^\n]*)\{([\d,-]+)\}([^\n]*)/m.exec(text);
  if (!fold) return false;
  const [, before, list, after] = fold;
  const ranges = list.split(',').map((range) => range.split('-').map(Number));
  // Of the word, the digits from `i` to `j` are the number's.
  for (let i = 0; i < word.length; ++i) {
    if (!before.endsWith(word.slice(0, i))) continue;
    for (let j = i + 1; j <= word.length && /\d/.test(word[j - 1]); ++j)
      if (after.startsWith(word.slice(j)) && ranges.some(([first, last = first]) => hasDigits(first, last, word.slice(i, j), i > 0, j < word.length))) return true;
  }
  return false;
}

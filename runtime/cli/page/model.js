'use strict';
// The model's operations in boxes of their name scopes, coloured by the axes that split them.

const modelTexts = data.model.texts;
const isNode = (scope) => scope.ops !== undefined;
const totalModelMs = data.model.tree.shares.reduce((sum, [, , ms]) => sum + ms, 0);
const rowOfCollective = new Map((collectives.columns.id || []).map((id, row) => [id, row]));

function formatNumbers(numbers) {
  const sorted = [...numbers].sort((a, b) => a - b), parts = [];
  for (let i = 0; i < sorted.length;) {
    let last = i;
    while (last + 1 < sorted.length && sorted[last + 1] === sorted[last] + 1) ++last;
    parts.push(last > i ? `${sorted[i]}–${sorted[last]}` : `${sorted[i]}`);
    i = last + 1;
  }
  return parts.join(', ');
}

function countCollectives(scope) {
  let count = (scope.collectives || []).length;
  for (const child of scope.children || []) count += countCollectives(child);
  return count;
}

function drawShares(scope) {
  const byTime = scope.shares.some((one) => one[2] > 0), total = scope.shares.reduce((sum, [, nodes, ms]) => sum + (byTime ? ms : nodes), 0);
  const text = scope.shares.map(([axes, nodes, ms]) => `${axesName(modelTexts[axes])}: ${plural(nodes, 'node')}${ms ? `, ${formatMs(ms)}` : ''}`);
  return el('span', {class: 'shares', role: 'img', 'aria-label': text.join('; '), onmousemove: (event) => showTip(event, ['Split over', ...text]), onmouseleave: hideTip},
    total ? [...scope.shares].sort((a, b) => modelTexts[a[0]].localeCompare(modelTexts[b[0]])).map(([axes, nodes, ms]) =>
      el('i', {style: {width: `${100 * (byTime ? ms : nodes) / total}%`, background: axesColor(modelTexts[axes])}})) : null);
}

function describeCollective(id) {
  const row = rowOfCollective.get(id);
  if (row === undefined) return null;
  const at = (name) => collectives.columns[name][row];
  return {kind: at('kind'), over: at('over'), bytes: at('bytes'), us: at('us'), because: at('because'), times: at('times'), id};
}

// 'tensor<4x6xf32>' as 'f32 [4, 6]'.
function shortenType(type) {
  const parts = /^tensor<((?:\d+x)*)([^x]\S*)>$/.exec(type);
  return parts ? `${parts[2]} [${parts[1].split('x').filter(Boolean).join(', ')}]` : type;
}

function inspectNode(node) {
  const distinct = new Map();
  for (const id of node.collectives || []) {
    const one = describeCollective(id);
    if (!one) continue;
    const line = `${one.kind} over ${one.over || 'stages'}, ${formatBytes(one.bytes)}${one.us === null ? '' : `, ${formatMs(one.us / 1e3)}`}`;
    const known = distinct.get(line) || {count: 0, because: one.because};
    known.count += one.times;
    distinct.set(line, known);
  }
  const facts = [['time', node.shares[0][2] ? `${formatMs(node.shares[0][2])} (simulated; what is computed together is with its first node)` : '']];
  for (const [op, type, sharding, reason] of node.ops) {
    facts.push(['operation', el('span', {class: 'mono'}, `${modelTexts[op]}: ${shortenType(modelTexts[type])}`)]);
    facts.push(['sharding', el('span', {class: 'mono'}, modelTexts[sharding])], ['decided by', modelTexts[reason]]);
  }
  for (const [line, {count, because}] of distinct) facts.push(['communicates', `${count > 1 ? `${formatCount(count)} × ` : ''}${line}`], ['because', because]);
  inspect(node.path, facts);
}

function drawNode(node) {
  const sharding = modelTexts[node.ops[node.ops.length - 1][2]], axes = modelTexts[node.shares[0][0]], ms = node.shares[0][2];
  const kinds = new Map();
  for (const id of node.collectives || []) {
    const one = describeCollective(id);
    if (one) kinds.set(one.kind, (kinds.get(one.kind) || 0) + 1);
  }
  return el('button', {class: 'node', style: {'--c': axesColor(axes, '180deg')}, title: `${node.path}: ${axesName(axes)}`, onclick: () => inspectNode(node)},
    el('b', {}, node.name), el('span', {}, sharding || ' '),
    kinds.size ? el('span', {class: 'moves'}, [...kinds.keys()].join(', ')) : el('span', {}, ms ? formatMs(ms) : ' '));
}

// A scope draws its inside when it is opened for the first time.
class ScopeBox {
  constructor(scope, depth) {
    this.scope = scope;
    this.depth = depth;
    this.shown = 0;
    this.boxes = [];
    const ms = scope.shares.reduce((sum, one) => sum + one[2], 0), nodes = scope.shares.reduce((sum, one) => sum + one[1], 0), moves = countCollectives(scope);
    this.sign = el('span', {class: 'fold', 'aria-hidden': 'true'}, '▸');
    const name = scope.numbers ? scope.name.replace(/\d+/, `{${formatNumbers(scope.numbers)}}`) : scope.name;
    this.title = el('button', {class: 'title', 'aria-expanded': 'false', onclick: () => this.toggle()}, this.sign,
      el('span', {class: 'name'}, name), scope.numbers ? el('span', {class: 'times'}, `× ${scope.numbers.length}`) : null,
      el('span', {class: 'sum'}, drawShares(scope), el('span', {}, plural(nodes, 'node')),
        el('span', {}, moves ? `⇄ ${formatCount(moves)}` : ''), el('span', {}, ms ? formatMs(ms) : ''), el('span', {}, ms && totalModelMs ? formatPercent(ms / totalModelMs) : '')));
    this.body = el('div', {class: 'body', hidden: true});
    const isSmall = this.isSmall = depth > 0 && (scope.children || []).length <= 3 && (scope.children || []).every(isNode);
    this.element = el('div', {class: isSmall ? 'scope small' : 'scope', 'data-scope': name}, this.title, this.body);
  }

  toggle(open = this.body.hidden) {
    this.body.hidden = !open;
    this.sign.textContent = open ? '▾' : '▸';
    this.title.setAttribute('aria-expanded', String(open));
    if (open && !this.shown) this.showMore();
  }

  showMore() {
    const most = 120, children = this.scope.children || [];
    this.body.querySelector(':scope > .next')?.remove();
    for (const child of children.slice(this.shown, this.shown + most)) {
      if (isNode(child)) {
        this.body.append(drawNode(child));
      } else {
        const box = new ScopeBox(child, this.depth + 1);
        this.boxes.push(box);
        this.body.append(box.element);
      }
    }
    this.shown = Math.min(children.length, this.shown + most);
    const left = children.length - this.shown;
    if (left) this.body.append(el('button', {class: 'next', onclick: () => this.showMore()}, `show ${formatCount(Math.min(most, left))} of ${formatCount(left)} more`));
    else if (this.scope.left) this.body.append(el('span', {class: 'more next'}, `and ${plural(this.scope.left, 'node')} that the page leaves out`));
  }

  // Opens scopes level by level while there are few tiles; of scopes that differ in numbers alone the first.
  openWide(budget, isFirstOnly) {
    let boxes = [this];
    while (boxes.length) {
      const next = [];
      for (const box of boxes) {
        const cost = Math.min(120, (box.scope.children || []).length);
        if (cost > budget) continue;
        budget -= cost;
        box.toggle(true);
        const kinds = box.boxes.map((inner) => inner.scope.name.replace(/\d+/g, '#'));
        next.push(...box.boxes.filter((inner, i) => !isFirstOnly || inner.isSmall || kinds.indexOf(kinds[i]) === i));
      }
      boxes = next;
    }
  }

  setAll(open) {
    this.toggle(open || this.depth === 0);
    for (const box of this.boxes) box.setAll(open);
  }
}

function showModel() {
  if (!data.model.tree.children) return;
  const section = makeSection('model', 'Model', 'Nodes by the scopes of their ONNX names, coloured by the axes that split their result; layers that are alike are one box. Times are simulated, of all stages, programs and micro-batches together. Click a node for its reasons.');
  const used = new Set();
  for (const [axes] of data.model.tree.shares) used.add(modelTexts[axes]);
  const root = new ScopeBox(data.model.tree, 0);
  section.querySelector('.head').append(el('div', {class: 'tools'},
    el('button', {onclick: () => root.setAll(false)}, 'Close all'), el('button', {onclick: () => root.openWide(1500, false)}, 'Open all')));
  section.append(el('p', {class: 'legend'}, [...used].sort().map((axes) => key(axesColor(axes), axesName(axes))), el('span', {class: 'key'}, '⇄ communicates')), root.element);
  root.openWide(140, true);
}

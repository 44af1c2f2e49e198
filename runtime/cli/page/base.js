'use strict';
// What all parts of the page share: the plan's data, elements, units, colours, the tooltip. Texts of the plan become text
// nodes, never markup.

const data = JSON.parse(document.getElementById('data').textContent);

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === 'style' && typeof value === 'string') node.style.cssText = value;
    else if (name === 'style') for (const [key, text] of Object.entries(value)) node.style.setProperty(key, text);
    else if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? '' : value);
  }
  for (const child of children.flat(Infinity)) if (child !== null && child !== undefined) node.append(child);
  return node;
}

const el = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes, ...children) => fill(document.createElementNS('http://www.w3.org/2000/svg', tag), attributes, children);

// Units.

function digits(value) {
  const size = Math.abs(value);
  return size >= 100 ? value.toFixed(0) : size >= 10 ? value.toFixed(1) : value.toFixed(2);
}

function formatBytes(bytes) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
  let unit = 0, size = bytes;
  for (; size >= 1024 && unit + 1 < units.length; ++unit) size /= 1024;
  return unit ? `${size.toFixed(1)} ${units[unit]}` : `${Math.round(size)} B`;
}

function formatMs(ms) {
  if (!ms) return '0';
  if (ms >= 1000) return `${digits(ms / 1000)} s`;
  if (ms >= 1) return `${digits(ms)} ms`;
  if (ms >= 1e-3) return `${digits(ms * 1e3)} µs`;
  return `${digits(ms * 1e6)} ns`;
}

const formatPercent = (share) => `${share >= 0.1 || share === 0 ? (100 * share).toFixed(0) : share < 1e-3 ? '< 0.1' : (100 * share).toFixed(1)} %`;
// A plan without elements takes no time.
const shareOf = (part, whole) => (whole > 0 ? part / whole : 0);
const formatCount = (count) => count.toLocaleString('en-US');
const plural = (count, noun) => `${formatCount(count)} ${noun}${count === 1 ? '' : /(x|ch)$/.test(noun) ? 'es' : 's'}`;

// Marks of a time axis alike, in the unit of its end.
function formatTicks(ticks, step, end) {
  const [unit, factor] = end >= 1000 ? ['s', 1e-3] : end >= 1 ? ['ms', 1] : ['µs', 1e3];
  const places = Math.max(0, -Math.floor(Math.log10(step * factor) + 1e-9));
  return ticks.map((ms) => `${(ms * factor).toFixed(places)} ${unit}`);
}

// '/a/MatMul + /a/Add + /a/Erf' as '/a/MatMul + 2 more'.
function shortenNodes(text) {
  const names = text.split(' + ');
  return names.length > 2 ? `${names[0]} + ${names.length - 1} more` : text;
}

// Round numbers between two others, about as many as `wanted`, as [numbers, step].
function makeTicks(from, to, wanted) {
  const rough = (to - from) / wanted || 1, power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= rough * 0.999);
  const ticks = [];
  for (let n = Math.ceil(from / step - 1e-9); n * step <= to + step * 1e-9; ++n) ticks.push(n * step);
  return [ticks, step];
}

// The same for bytes, in powers of two.
function makeByteTicks(to, wanted) {
  let step = 1;
  while (to / step > wanted) step *= 2;
  const ticks = [];
  for (let at = 0; at <= to; at += step) ticks.push(at);
  return ticks;
}

// Colours: each axis of the mesh has one, everywhere.

const axisNames = data.mesh.axes.map((axis) => axis.name);
const numColors = 6;

function axisColor(name) {
  const index = axisNames.indexOf(name);
  return index < 0 ? 'var(--whole)' : `var(--axis-${index % numColors})`;
}

// 'data+model' as stripes of its axes, 'data' as a colour.
function axesColor(axes, direction = '135deg') {
  const names = axes ? axes.split('+') : [];
  if (names.length < 2) return names.length ? axisColor(names[0]) : 'var(--whole)';
  const width = 4, stops = names.map((name, i) => `${axisColor(name)} ${i * width}px ${(i + 1) * width}px`);
  return `repeating-linear-gradient(${direction}, ${stops.join(', ')})`;
}

const axesName = (axes) => (axes ? `split over ${axes.split('+').join(' and ')}` : 'whole');

// Of '[data.model*64, -] + pipe': 'data+model'.
function axesOf(sharding) {
  const names = new Set();
  for (const part of sharding.split(']')[0].replace('[', '').split(','))
    for (const name of part.split('*')[0].split('.')) if (axisNames.includes(name.trim())) names.add(name.trim());
  return [...names].sort().join('+');
}

function axesChip(axes, text) {
  return el('span', {class: 'chip'}, el('i', {class: 'dot', style: {background: axesColor(axes)}}), text || axes.split('+').join(' + ') || 'whole');
}

const key = (color, text) => el('span', {class: 'key'}, el('i', {style: {background: color}}), text);

function cssColor(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

// A colour that a canvas takes, of what axisColor returns.
const plainColor = (color) => cssColor(color.replace(/^var\(|\)$/g, ''));

// What is drawn with plain colours is drawn again when these change.
const redraws = [];
const redrawAll = () => redraws.forEach((redraw) => redraw());
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redrawAll);

// On paper: light colours, and a good part of each table.
const printing = {before: [], after: []};
addEventListener('beforeprint', () => {
  document.documentElement.setAttribute('data-print', '');
  printing.before.forEach((prepare) => prepare());
  redrawAll();
});
addEventListener('afterprint', () => {
  document.documentElement.removeAttribute('data-print');
  printing.after.forEach((restore) => restore());
  redrawAll();
});

// The tooltip and the inspector.

const tip = document.getElementById('tip');

function showTip(event, lines) {
  tip.replaceChildren(...lines.filter(Boolean).map((line, i) => (i ? el('div', {}, line) : el('b', {}, line))));
  tip.hidden = false;
  const box = tip.getBoundingClientRect(), gap = 14;
  const left = event.clientX + gap + box.width > innerWidth ? event.clientX - gap - box.width : event.clientX + gap;
  const top = event.clientY + gap + box.height > innerHeight ? event.clientY - gap - box.height : event.clientY + gap;
  tip.style.left = `${Math.max(4, left)}px`;
  tip.style.top = `${Math.max(4, top)}px`;
}

function hideTip() {
  tip.hidden = true;
}

const inspector = document.getElementById('inspector');
let inspectedFrom = null;

// Shows facts, [name, text or element] each, until it is closed.
function inspect(title, facts, more) {
  inspectedFrom = document.activeElement;
  inspector.replaceChildren(
    el('div', {class: 'head'}, el('h2', {}, title), el('button', {onclick: closeInspector, 'aria-label': 'Close'}, '✕')),
    el('dl', {}, facts.filter(([, value]) => value !== '' && value !== null && value !== undefined)
      .map(([name, value]) => [el('dt', {}, name), el('dd', {}, value)])),
    more || '');
  inspector.hidden = false;
}

function closeInspector() {
  if (inspector.hidden) return;
  inspector.hidden = true;
  if (inspectedFrom) inspectedFrom.focus();
}

addEventListener('keydown', (event) => {
  if (event.key === 'Escape') closeInspector();
});

// Tables come as columns; repeated texts as numbers.

function unpack(table) {
  const columns = {};
  for (const [name, column] of Object.entries(table.columns))
    columns[name] = Array.isArray(column) ? column : column.at.map((at) => column.texts[at]);
  return {rows: table.rows, columns};
}

// Objects with the same keys as such columns.
function toColumns(list, names) {
  const columns = {};
  for (const name of names) columns[name] = list.map((row) => row[name] ?? null);
  return {rows: list.length, columns};
}

const collectives = unpack(data.collectives);
const nameProgram = (program) => (program.dims ? `${program.entry} ${program.dims}` : program.entry);
const isPipeline = data.summary.stages > 1;

function makeSection(id, title, about, ...content) {
  const section = el('section', {id, 'aria-labelledby': `${id}-title`},
    el('div', {class: 'head'}, el('h2', {id: `${id}-title`}, title), about && el('div', {class: 'about'}, about)), content);
  document.getElementById('page').append(section);
  document.getElementById('nav').append(el('a', {href: `#${id}`}, title));
  return section;
}

'use strict';
// What each stream does when: simulated, and beside it a run's trace. Drawn on a canvas, since there may be many blocks.

// Lanes come as five numbers a block; times in ms.
function unpackLane(stream) {
  const numbers = stream.blocks, count = numbers.length / 5;
  const lane = {name: stream.name, begin: new Float64Array(count), end: new Float64Array(count), step: new Int32Array(count), turn: new Int32Array(count), steps: new Int32Array(count)};
  let at = 0;
  for (let i = 0; i < count; ++i) {
    lane.begin[i] = (at + numbers[5 * i]) / 1e6;
    at += numbers[5 * i] + numbers[5 * i + 1];
    lane.end[i] = at / 1e6;
    [lane.step[i], lane.turn[i], lane.steps[i]] = [numbers[5 * i + 2], numbers[5 * i + 3], numbers[5 * i + 4]];
  }
  return lane;
}

// The first block that ends after `ms`.
function findBlock(lane, ms) {
  let low = 0, high = lane.end.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (lane.end[middle] > ms) high = middle;
    else low = middle + 1;
  }
  return low;
}

// The collective of a step, by what numbers it in its stage.
const collectiveRows = new Map();
for (let row = 0; row < collectives.rows; ++row) {
  const {stage, kind, sequence, onnx_node: node} = collectives.columns;
  collectiveRows.set([stage[row], `${kind[row]} #${sequence[row]}`, node[row]].join('\n'), row);
}

const stepKinds = {compute: 'computation', communication: 'collective', transfer: 'transfer between stages'};

// One group of lanes: a stage as simulated, or a rank as measured; `duration` is that of its run, in ms.
function makeGroup(title, note, source, steps, stage, duration) {
  const lanes = source.streams.map(unpackLane).map((lane) => {
    const kinds = new Set(Array.from(lane.step, (step) => steps[step][2]));
    return {...lane, isCompute: kinds.has('compute'), isTransfer: kinds.has('transfer')};
  });
  lanes.sort((a, b) => b.isCompute - a.isCompute);
  return {title, note, lanes, steps, stage, duration, exposed: findExposed(lanes, steps)};
}

const unite = (intervals) => {
  const joined = [];
  for (const [begin, end] of intervals.sort((a, b) => a[0] - b[0]))
    if (joined.length && begin <= joined[joined.length - 1][1]) joined[joined.length - 1][1] = Math.max(end, joined[joined.length - 1][1]);
    else joined.push([begin, end]);
  return joined;
};

// When a collective was under way and nothing was computed.
function findExposed(lanes, steps) {
  const of = (kind) => unite(lanes.flatMap((lane) => Array.from(lane.step, (step, i) => [step, i]).filter(([step]) => steps[step][2] === kind).map(([, i]) => [lane.begin[i], lane.end[i]])));
  const busy = of('compute'), exposed = [];
  let next = 0;
  for (const [begin, end] of of('communication')) {
    let from = begin;
    while (next < busy.length && busy[next][1] <= begin) ++next;
    for (let i = next; i < busy.length && busy[i][0] < end; ++i) {
      if (busy[i][0] > from) exposed.push([from, busy[i][0]]);
      from = Math.max(from, busy[i][1]);
    }
    if (from < end) exposed.push([from, end]);
  }
  return exposed;
}

class Timeline {
  constructor(groups, endMs) {
    this.groups = groups;
    this.end = endMs;
    this.from = 0;
    this.to = endMs;
    this.fitsEach = false;
    this.canvas = el('canvas', {tabindex: 0, role: 'img', 'aria-label': 'Timeline of streams; arrow keys move, plus and minus zoom, Home shows all'});
    this.element = el('div', {class: 'pic'}, this.canvas);
    this.layOut();
    this.listen();
    redraws.push(() => this.draw());
    new ResizeObserver(() => this.draw()).observe(this.canvas);
  }

  layOut() {
    this.gutter = 152;
    let y = 26;
    this.rows = [];
    for (const group of this.groups) {
      group.top = y;
      y += 5;
      for (const lane of group.lanes) {
        const height = lane.isCompute ? 22 : lane.isTransfer ? 7 : 15;
        this.rows.push({group, lane, y, height});
        y += height + 3;
      }
      group.exposedTop = y;
      if (group.exposed.length) y += 5;
      y = Math.max(y, group.top + 36) + 5;
      group.bottom = y;
    }
    this.height = y + 2;
    this.canvas.style.height = `${this.height}px`;
  }

  // By how much a run's times are stretched: to the end, where each run is drawn in its own time.
  stretch(group) {
    return this.fitsEach && group.duration > 0 ? this.end / group.duration : 1;
  }

  fitEach(on) {
    this.fitsEach = on;
    this.draw();
  }

  x(ms) {
    return this.gutter + (this.width - this.gutter - 8) * (ms - this.from) / (this.to - this.from);
  }

  msAt(x) {
    return this.from + (this.to - this.from) * (x - this.gutter) / (this.width - this.gutter - 8);
  }

  setRange(from, to) {
    const span = Math.min(this.end, Math.max(this.end * 1e-5, to - from));
    this.from = Math.max(0, Math.min(this.end - span, from));
    this.to = this.from + span;
    this.draw();
  }

  zoom(factor, at = (this.from + this.to) / 2) {
    this.setRange(at - (at - this.from) * factor, at + (this.to - at) * factor);
  }

  color(group, lane, i) {
    const [name, node, kind] = group.steps[lane.step[i]];
    if (kind === 'compute') return lane.turn[i] % 2 ? this.colors.odd : this.colors.compute;
    // A receive mostly waits for its sender.
    if (kind === 'transfer') return name.startsWith('recv') ? this.colors.waiting : this.colors.transfer;
    const row = collectiveRows.get([group.stage, name, node].join('\n'));
    const axis = row === undefined ? '' : collectives.columns.over[row].split('.')[0];
    if (!(axis in this.colors.axes)) this.colors.axes[axis] = plainColor(axisColor(axis));
    return this.colors.axes[axis];
  }

  draw() {
    const width = this.canvas.clientWidth;
    if (!width) return;
    const scale = document.documentElement.hasAttribute('data-print') ? 3 : devicePixelRatio || 1;
    this.width = width;
    this.canvas.width = Math.round(width * scale);
    this.canvas.height = Math.round(this.height * scale);
    const pen = this.pen = this.canvas.getContext('2d');
    pen.scale(scale, scale);
    this.colors = {axes: {}};
    for (const [name, variable] of [['compute', '--compute'], ['odd', '--compute-odd'], ['transfer', '--transfer'], ['waiting', '--waiting'], ['exposed', '--exposed'], ['text', '--text'], ['muted', '--muted'], ['line', '--line'], ['sunken', '--sunken'], ['on', '--on-color'], ['surface', '--surface']])
      this.colors[name] = cssColor(variable);
    pen.font = '11px system-ui, "Segoe UI", "Noto Sans", "DejaVu Sans", sans-serif';
    pen.textBaseline = 'middle';
    this.drawAxis(pen);
    for (const group of this.groups) this.drawGroup(pen, group);
    for (const row of this.rows) this.drawLane(pen, row);
  }

  drawAxis(pen) {
    const wanted = Math.max(3, Math.floor((this.width - this.gutter) / 130)), unit = this.fitsEach ? this.end / 100 : 1;
    const [numbers, step] = makeTicks(this.from / unit, this.to / unit, wanted), ticks = numbers.map((number) => number * unit);
    const texts = this.fitsEach ? numbers.map((number) => `${Number(number.toFixed(3))} %`) : formatTicks(ticks, step, this.to);
    for (const [i, ms] of ticks.entries()) {
      const x = Math.round(this.x(ms)) + 0.5;
      pen.fillStyle = this.colors.line;
      pen.fillRect(x - 0.5, 20, 1, this.height);
      pen.fillStyle = this.colors.muted;
      const text = texts[i], half = pen.measureText(text).width / 2;
      pen.fillText(text, Math.min(Math.max(x - half, this.gutter - 4), this.width - 2 * half - 4), 11);
    }
  }

  drawGroup(pen, group) {
    pen.fillStyle = this.colors.line;
    pen.fillRect(0, group.top - 1, this.width, 1);
    pen.fillStyle = this.colors.sunken;
    pen.fillRect(0, group.top, this.gutter - 6, group.bottom - group.top - 1);
    pen.fillStyle = this.colors.text;
    pen.font = `600 ${pen.font.replace(/^600 /, '')}`;
    pen.fillText(group.title, 10, group.top + 13, this.gutter - 20);
    pen.font = pen.font.replace(/^600 /, '');
    pen.fillStyle = this.colors.muted;
    pen.fillText(group.note, 10, group.top + 28, this.gutter - 20);
    pen.fillStyle = this.colors.exposed;
    for (const [begin, end] of group.exposed.map((both) => both.map((ms) => ms * this.stretch(group)))) {
      if (end < this.from || begin > this.to) continue;
      const left = Math.max(this.gutter, this.x(begin));
      pen.fillRect(left, group.exposedTop, Math.max(0.7, this.x(Math.min(end, this.to)) - left), 3);
    }
  }

  drawLane(pen, {group, lane, y, height}) {
    let drawnTo = -1;
    const stretch = this.stretch(group);
    for (let i = findBlock(lane, this.from / stretch); i < lane.begin.length && lane.begin[i] * stretch < this.to; ++i) {
      const left = Math.max(this.gutter, this.x(lane.begin[i] * stretch)), right = Math.min(this.x(this.to), this.x(lane.end[i] * stretch));
      if (right - left < 0.4 && right < drawnTo + 0.4) continue;
      const wide = Math.max(0.7, right - left - (right - left > 3 ? 0.7 : 0));
      pen.fillStyle = this.color(group, lane, i);
      pen.fillRect(left, y, wide, height);
      drawnTo = left + wide;
      if (wide > 34 && height > 12) this.drawLabel(pen, this.label(group, lane, i), left, y + height / 2, wide);
    }
  }

  label(group, lane, i) {
    const [name, node, kind] = group.steps[lane.step[i]];
    if (lane.steps[i] > 1) return `${lane.steps[i]} steps`;
    if (kind !== 'compute') return name;
    const parts = (node || name).split(' + ')[0].split('/').filter(Boolean);
    return parts.slice(-2).join('/');
  }

  drawLabel(pen, text, left, y, wide) {
    const room = Math.floor((wide - 8) / 5.6);
    if (room < 4) return;
    pen.save();
    pen.beginPath();
    pen.rect(left, y - 11, wide - 2, 22);
    pen.clip();
    pen.fillStyle = this.colors.on;
    pen.fillText(text.length > room ? `${text.slice(0, room - 1)}…` : text, left + 4, y + 0.5);
    pen.restore();
  }

  // The block under the pointer, as [row, number].
  hit(event) {
    const box = this.canvas.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
    const row = this.rows.find((one) => y >= one.y - 1 && y <= one.y + one.height + 1);
    if (!row || x < this.gutter) return null;
    const stretch = this.stretch(row.group), slack = (this.to - this.from) / (this.width - this.gutter) / stretch, ms = this.msAt(x) / stretch;
    const i = findBlock(row.lane, ms - slack);
    return i < row.lane.begin.length && row.lane.begin[i] <= ms + slack ? [row, i] : null;
  }

  facts([{group, lane}, i]) {
    const [name, node, kind, bytes] = group.steps[lane.step[i]];
    const row = kind === 'communication' ? collectiveRows.get([group.stage, name, node].join('\n')) : undefined;
    return [
      ['step', lane.steps[i] > 1 ? `${name} and ${lane.steps[i] - 1} more, drawn together` : name], ['kind', stepKinds[kind]],
      ['ONNX node', node], ['from', `${formatMs(lane.begin[i])}, for ${formatMs(lane.end[i] - lane.begin[i])}`],
      ['stream', `${lane.name}, ${group.title}`], ['micro-batch', data.summary.microbatches > 1 ? `${lane.turn[i]}` : ''],
      ['bytes', kind === 'compute' ? '' : formatBytes(bytes)], ['over', row === undefined ? '' : collectives.columns.over[row].split('.').join(' and ')],
      ['because', row === undefined ? '' : collectives.columns.because[row]],
    ].filter(([, text]) => text !== '');
  }

  listen() {
    const canvas = this.canvas;
    let dragged = null;
    canvas.addEventListener('wheel', (event) => {
      if (!event.ctrlKey && !event.shiftKey && !event.metaKey) return;
      event.preventDefault();
      this.zoom(1.0015 ** (event.deltaY || event.deltaX), this.msAt(event.clientX - canvas.getBoundingClientRect().left));
    }, {passive: false});
    canvas.addEventListener('pointerdown', (event) => {
      dragged = {x: event.clientX, from: this.from, to: this.to, moved: false};
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener('pointermove', (event) => {
      if (dragged) {
        const by = (event.clientX - dragged.x) * (dragged.to - dragged.from) / (this.width - this.gutter);
        dragged.moved ||= Math.abs(event.clientX - dragged.x) > 3;
        if (dragged.moved) this.setRange(dragged.from - by, dragged.to - by);
        return;
      }
      const hit = this.hit(event);
      if (hit) showTip(event, this.facts(hit).map(([name, text], n) => (n ? `${name}: ${text}` : text)));
      else hideTip();
    });
    canvas.addEventListener('pointerup', (event) => {
      const hit = dragged && !dragged.moved && this.hit(event);
      dragged = null;
      if (hit) inspect(hit[0].group.steps[hit[0].lane.step[hit[1]]][0], this.facts(hit).slice(1));
    });
    canvas.addEventListener('pointerleave', hideTip);
    canvas.addEventListener('dblclick', () => this.setRange(0, this.end));
    canvas.addEventListener('keydown', (event) => {
      const step = (this.to - this.from) / 8;
      const action = {
        ArrowLeft: () => this.setRange(this.from - step, this.to - step), ArrowRight: () => this.setRange(this.from + step, this.to + step),
        '+': () => this.zoom(0.6), '=': () => this.zoom(0.6), '-': () => this.zoom(1 / 0.6), Home: () => this.setRange(0, this.end),
      }[event.key];
      if (!action) return;
      event.preventDefault();
      action();
    });
  }
}

function describeStats(one, stepMs) {
  const parts = [`compute ${formatPercent(shareOf(one.compute_ms, stepMs))}`];
  if (one.comm_ms > 0) parts.push(`comm ${formatPercent(shareOf(one.comm_ms, stepMs))}`);
  return parts.join(', ');
}

function stageRanks(stage) {
  const index = axisNames.indexOf(data.mesh.stage_axis), list = [];
  if (ranks > 4096) return `${formatCount(ranks / data.summary.stages)} ranks`;
  for (let rank = 0; rank < ranks; ++rank) if (index < 0 || coordinatesOf(rank)[index] === stage) list.push(rank);
  return list.length > 1 && list[list.length - 1] - list[0] === list.length - 1 ? `ranks ${list[0]}–${list[list.length - 1]}` : list.length > 3 ? `${list.length} ranks` : `${list.length > 1 ? 'ranks' : 'rank'} ${list.join(', ')}`;
}

function makeTimeline(program, index) {
  const trace = data.trace && data.trace.program === index ? data.trace : null;
  const most = 24, groups = [];
  for (const stage of program.stages.slice(0, most)) {
    groups.push(makeGroup(isPipeline ? `Stage ${stage.stage}, ${stageRanks(stage.stage)}` : 'Each rank', trace ? 'simulated' : describeStats(stage, program.step_ms), stage, stage.steps, stage.stage, program.step_ms));
    for (const rank of trace ? trace.ranks : [])
      if (rank.stage === stage.stage) groups.push(makeGroup(`Rank ${rank.rank}`, 'measured', rank, trace.steps, stage.stage, trace.step_ms));
  }
  const end = Math.max(program.step_ms, trace ? trace.step_ms : 0);
  const drawn = new Set(program.stages.slice(0, most).map((stage) => stage.stage)), left = program.stages.length - most;
  for (const rank of trace && !drawn.size ? trace.ranks : []) groups.push(makeGroup(`Rank ${rank.rank}`, 'measured', rank, trace.steps, rank.stage, trace.step_ms));
  return [new Timeline(groups, end || 1e-6), left > 0 ? `Stages ${most} to ${program.stages.length - 1} are not drawn.` : ''];
}

function showTimeline(program, index) {
  const [timeline, left] = makeTimeline(program, index);
  const axes = [...new Set((collectives.columns.over || []).filter((over, row) => !['send', 'recv'].includes(collectives.columns.kind[row])).map((over) => over.split('.')[0]))].filter(Boolean).sort();
  const hasExposed = timeline.groups.some((group) => group.exposed.length);
  // A first run takes many times as long as one that is simulated.
  const trace = timeline.groups.some((group) => group.duration !== program.step_ms), isFar = trace && program.step_ms > 0 && program.step_ms * 4 < timeline.end;
  timeline.fitsEach = isFar;
  const fit = el('input', {type: 'checkbox', checked: isFar, onchange: () => timeline.fitEach(fit.checked)});
  const button = (text, label, action) => el('button', {onclick: action, 'aria-label': label, title: label}, text);
  return [
    el('div', {class: 'head'},
      el('div', {class: 'legend about'},
        data.summary.microbatches > 1 ? [key('var(--compute)', 'computation, even'), key('var(--compute-odd)', 'and odd micro-batches')] : key('var(--compute)', 'computation'),
        axes.map((axis) => key(axisColor(axis), `collective over ${axis}`)), isPipeline ? [key('var(--transfer)', 'send to another stage'), key('var(--waiting)', 'receive, with waiting for it')] : null,
        hasExposed ? el('span', {class: 'key'}, el('i', {style: {background: 'var(--exposed)', height: '3px', width: '16px'}}), 'collective that nothing hides') : null),
      el('div', {class: 'tools'}, trace && program.step_ms > 0 ? el('label', {}, fit, ' each run in its own time') : null, el('span', {class: 'muted'}, 'Ctrl + wheel zooms, drag moves'),
        button('−', 'Zoom out', () => timeline.zoom(1 / 0.6)), button('+', 'Zoom in', () => timeline.zoom(0.6)), button('All', 'Show all', () => timeline.setRange(0, timeline.end)))),
    timeline.element, left ? el('p', {class: 'muted'}, left) : null];
}

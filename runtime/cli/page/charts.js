'use strict';
// Memory over time, and candidates by time and memory.

// The width of pictures that fill the page, in pixels at load; later they scale.
const roomWidth = () => Math.max(480, document.getElementById('page').clientWidth - 86);

// The live bytes of a stage; `seconds` of all stages, so that their pictures line up.
function drawMemory(stage, stepMs, limit, width) {
  const height = width > 600 ? 190 : 150, left = 58, right = 8, top = 12, bottom = 24;
  const points = stage.memory, end = stepMs * 1e6;
  const top1 = Math.max(stage.allocated_bytes, stage.peak_bytes, 1);
  const showLimit = limit > 0 && limit < 1.6 * top1;
  const most = Math.max(top1, showLimit ? limit : 0) * 1.06;
  const x = (ns) => left + (width - left - right) * Math.min(1, ns / (end || 1));
  const y = (bytes) => height - bottom - (height - top - bottom) * bytes / most;
  let line = '', peakAt = 0, peak = 0;
  for (let i = 0; i < points.length; i += 2) {
    line += `${i ? `H${x(points[i]).toFixed(1)}V` : `M${x(points[i]).toFixed(1)},`}${y(points[i + 1]).toFixed(1)}`;
    if (points[i + 1] > peak) [peakAt, peak] = [points[i], points[i + 1]];
  }
  line += `H${x(end)}`;
  const base = y(stage.kept_bytes), rule = (bytes, attributes) =>
    svg('line', {x1: left, x2: width - right, y1: y(bytes), y2: y(bytes), ...attributes});
  const [ticks, step] = makeTicks(0, stepMs, width / 80), texts = formatTicks(ticks, step, stepMs);
  return el('div', {class: 'chart', 'data-stage': stage.stage, 'data-peak': stage.peak_bytes},
    el('div', {class: 'title'}, el('b', {}, isPipeline ? `Stage ${stage.stage}` : 'Each device'),
      el('span', {class: 'muted'}, `peak ${formatBytes(stage.peak_bytes)} · allocated ${formatBytes(stage.allocated_bytes)}`)),
    svg('svg', {viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': `Memory of stage ${stage.stage} over time`},
      makeByteTicks(most, 4).map((bytes) => [rule(bytes, {class: 'grid'}),
        svg('text', {x: left - 6, y: y(bytes) + 4, 'text-anchor': 'end'}, formatBytes(bytes))]),
      ticks.map((ms, i) => svg('text', {x: Math.min(x(ms * 1e6), width - right - 16), y: height - 8, 'text-anchor': 'middle'}, texts[i])),
      svg('rect', {x: left, width: width - left - right, y: base, height: Math.max(0, y(0) - base), style: 'fill:var(--compute);opacity:.35'}),
      svg('path', {d: `${line}V${base}H${left}Z`, style: 'fill:var(--accent);opacity:.28'}),
      svg('path', {d: line, style: 'fill:none;stroke:var(--accent);stroke-width:1.5', 'stroke-linejoin': 'round'}),
      rule(stage.allocated_bytes, {style: 'stroke:var(--text);stroke-width:1;stroke-dasharray:5 4;opacity:.6'}),
      showLimit ? rule(limit, {class: 'limit', style: 'stroke:var(--exposed);stroke-width:1.5'}) : null,
      svg('circle', {cx: x(peakAt), cy: y(peak), r: 3.5, style: 'fill:var(--accent);stroke:var(--surface);stroke-width:1.5'}),
      svg('line', {x1: left, x2: width - right, y1: y(0), y2: y(0), class: 'rim'})));
}

function showMemory(program) {
  const most = 16;
  const stages = program.stages.slice(0, most);
  const box = el('div', {class: stages.length < 2 ? 'charts single' : 'charts'}, stages.map((stage) => drawMemory(stage, program.step_ms, data.limit_bytes, stages.length < 2 ? roomWidth() - 22 : 400)));
  const left = program.stages.length - stages.length;
  return [el('p', {class: 'legend'},
    key('color-mix(in srgb, var(--compute) 35%, transparent)', 'weights, states, inputs and outputs'),
    key('color-mix(in srgb, var(--accent) 45%, transparent)', 'activations that are live'),
    el('span', {class: 'key'}, '┄ allocated'),
    !data.limit_bytes ? null : box.querySelector('.limit')
      ? el('span', {class: 'key'}, el('i', {style: {background: 'var(--exposed)', height: '2px'}}), `limit ${formatBytes(data.limit_bytes)}`)
      : el('span', {class: 'key'}, `the limit, ${formatBytes(data.limit_bytes)}, is far above`)),
  box, left > 0 ? el('p', {class: 'muted'}, `${plural(left, 'more stage')} in the table below.`) : null];
}

// Candidates.

// Most are only summed: all that they compute and send, one after another.
const candidates = data.candidates.map((one) => ({
  strategy: one.strategy, verdict: one.reason, ms: one.simulated_ms > 0 ? one.simulated_ms : one.sum_ms > 0 ? one.sum_ms : null,
  by: one.simulated_ms > 0 ? 'simulated' : one.sum_ms > 0 ? 'summed' : '',
  bytes: one.memory_bytes > 0 ? one.memory_bytes : one.estimated_memory_bytes > 0 ? one.estimated_memory_bytes : null,
}));
for (const one of candidates) one.chosen = one.verdict.startsWith('chosen') || candidates.length === 1;

// Those to which no other is at once as fast and as small.
function findFront(points) {
  const sorted = [...points].sort((a, b) => a.ms - b.ms || a.bytes - b.bytes), front = [];
  for (const point of sorted) if (!front.length || point.bytes < front[front.length - 1].bytes) front.push(point);
  return front;
}

// A scale of numbers above 0: by logarithm where they are far apart. `steps` gives the marks of the plain one.
function makeScale(values, from, to, steps) {
  const low = Math.min(...values), high = Math.max(...values);
  if (high / low > 12) {
    const a = Math.log(low / 1.25), b = Math.log(high * 1.25);
    const marks = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high) + 1; ++power)
      for (const digit of high / low > 300 ? [1] : [1, 3]) marks.push(digit * 10 ** power);
    return {at: (v) => from + (to - from) * (Math.log(v) - a) / (b - a), marks: marks.filter((v) => Math.log(v) >= a && Math.log(v) <= b), isLog: true};
  }
  // Small differences look small: the picture spans a fifth of the values at least.
  const span = Math.max(1.24 * (high - low), 0.2 * high), middle = (low + high) / 2, a = Math.max(0, middle - span / 2), b = a + span;
  return {at: (v) => from + (to - from) * (v - a) / (b - a), marks: steps(a, b), isLog: false};
}

function drawPareto() {
  const points = candidates.filter((one) => one.ms !== null && one.bytes !== null);
  if (points.length < 2) return null;
  const width = roomWidth(), height = 380, left = 96, right = 24, top = 16, bottom = 44;
  const x = makeScale(points.map((p) => p.ms), left, width - right, (a, b) => makeTicks(a, b, 8)[0]);
  const y = makeScale(points.map((p) => p.bytes), height - bottom, top, (a, b) => {
    let step = 1;
    while ((b - a) / step > 5) step *= 2;
    const marks = [];
    for (let at = Math.ceil(a / step) * step; at <= b; at += step) marks.push(at);
    return marks;
  });
  const front = findFront(points), taken = [];
  const path = front.map((p, i) => (i ? `H${x.at(p.ms)}V${y.at(p.bytes)}` : `M${x.at(p.ms)},${y.at(p.bytes)}`)).join('');
  // Labels of the chosen one and of the front, where there is room.
  const labels = [...points.filter((p) => p.chosen), ...front.filter((p) => !p.chosen)].map((p) => {
    const text = p.strategy.length > 46 ? `${p.strategy.slice(0, 45)}…` : p.strategy, wide = text.length * 5.9;
    for (const [dx, dy, anchor] of [[9, -8, 'start'], [9, 15, 'start'], [-9, -8, 'end'], [-9, 15, 'end'], [9, -22, 'start']]) {
      const px = x.at(p.ms) + dx, py = y.at(p.bytes) + dy, x0 = anchor === 'start' ? px : px - wide;
      const box = [x0, py - 11, x0 + wide, py + 3];
      const hits = (b) => box[0] < b[2] && b[0] < box[2] && box[1] < b[3] && b[1] < box[3];
      const onPoint = points.some((q) => hits([x.at(q.ms) - 6, y.at(q.bytes) - 6, x.at(q.ms) + 6, y.at(q.bytes) + 6]));
      if (box[0] < left || box[2] > width || box[1] < 0 || box[3] > height - bottom || taken.some(hits) || onPoint) continue;
      taken.push(box);
      return svg('text', {x: px, y: py, 'text-anchor': anchor, class: p.chosen ? 'strong' : null}, text);
    }
    return null;
  });
  const pointStyle = (colour, isFilled) => isFilled ? `fill:${colour};stroke:var(--surface);stroke-width:1.5` : `fill:var(--surface);stroke:${colour};stroke-width:2`;
  const mark = (p) => {
    const lines = [p.strategy, `${formatMs(p.ms)} ${p.by} · ${formatBytes(p.bytes)} each device`, p.verdict];
    const shape = p.chosen
      ? svg('path', {d: 'M0,-9L2.6,-3L9,-2.6L4,1.6L5.6,8L0,4.4L-5.6,8L-4,1.6L-9,-2.6L-2.6,-3Z', transform: `translate(${x.at(p.ms)},${y.at(p.bytes)})`, style: 'fill:var(--accent);stroke:var(--surface);stroke-width:1.5'})
      : svg('circle', {cx: x.at(p.ms), cy: y.at(p.bytes), r: 5, style: pointStyle(front.includes(p) ? 'var(--axis-2)' : 'var(--compute)', p.by === 'simulated')});
    return svg('g', {tabindex: 0, role: 'img', 'aria-label': lines.join(', '), onmousemove: (event) => showTip(event, lines), onmouseleave: hideTip,
      onfocus: (event) => showTip({clientX: event.target.getBoundingClientRect().right, clientY: event.target.getBoundingClientRect().bottom}, lines), onblur: hideTip}, shape);
  };
  return el('div', {class: 'pareto'},
    el('p', {class: 'legend'}, el('span', {class: 'key'}, el('span', {style: {color: 'var(--accent)'}}, '★'), 'chosen'),
      key('var(--axis-2)', 'on the front: none is faster and smaller'), key('var(--compute)', 'others'),
      points.every((p) => p.by === 'simulated') ? null : el('span', {class: 'key'}, 'hollow: summed, not simulated')),
    svg('svg', {viewBox: `0 0 ${width} ${height}`, 'aria-label': 'Candidates by time and memory'},
      x.marks.map((ms) => [svg('line', {x1: x.at(ms), x2: x.at(ms), y1: top, y2: height - bottom, class: 'grid'}),
        svg('text', {x: x.at(ms), y: height - bottom + 16, 'text-anchor': 'middle'}, formatMs(ms).replace(/\.0+(?= )/, ''))]),
      y.marks.map((bytes) => [svg('line', {x1: left, x2: width - right, y1: y.at(bytes), y2: y.at(bytes), class: 'grid'}),
        svg('text', {x: left - 8, y: y.at(bytes) + 4, 'text-anchor': 'end'}, formatBytes(bytes))]),
      svg('line', {x1: left, x2: width - right, y1: height - bottom, y2: height - bottom, class: 'rim'}),
      svg('line', {x1: left, x2: left, y1: top, y2: height - bottom, class: 'rim'}),
      svg('text', {x: (left + width) / 2, y: height - 6, 'text-anchor': 'middle'}, `estimated time of a step${x.isLog ? ' (logarithmic)' : ''}`),
      svg('text', {transform: `translate(16,${(height - bottom + top) / 2}) rotate(-90)`, 'text-anchor': 'middle'}, `memory of a device${y.isLog ? ' (logarithmic)' : ''}`),
      svg('path', {d: path, style: 'fill:none;stroke:var(--axis-2);stroke-width:1.5;stroke-dasharray:4 3'}),
      [...points].sort((a, b) => a.chosen - b.chosen).map(mark), labels));
}

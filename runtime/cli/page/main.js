'use strict';
// Puts the page together.

function tile(name, label, value, text, note, meter) {
  return el('div', {class: 'tile', 'data-key': name, 'data-value': value}, el('div', {class: 'label'}, label), el('div', {class: 'value'}, text),
    note ? el('div', {class: 'note'}, note) : null,
    meter === undefined ? null : el('div', {class: 'meter'}, el('i', {style: {width: `${Math.min(100, 100 * meter)}%`}})));
}

function makeTiles() {
  const tiles = [], summary = data.summary, programs = data.estimates;
  const first = programs[0];
  if (first) {
    const all = programs.reduce((sum, one) => sum + one.step_ms, 0), of = programs.length > 1 ? `of ${nameProgram(first)}` : 'simulated';
    tiles.push(tile('step_ms', 'Time of a step', first.step_ms, formatMs(first.step_ms), programs.length > 1 ? `${of}; all ${programs.length}: ${formatMs(all)}` : of));
    tiles.push(tile('compute_ms', 'Computation', first.compute_ms, formatMs(first.compute_ms), `${formatPercent(shareOf(first.compute_ms, first.step_ms))} of the step`, shareOf(first.compute_ms, first.step_ms)));
    tiles.push(tile('comm_ms', 'Communication', first.comm_ms, formatMs(first.comm_ms), first.comm_ms ? `${formatMs(first.exposed_ms)} of it exposed` : 'none between ranks of a stage', first.comm_ms ? shareOf(first.comm_ms, first.step_ms) : undefined));
    if (isPipeline) tiles.push(tile('bubble', 'Bubble', first.bubble, formatPercent(first.bubble), `${summary.stages} stages, ${plural(summary.microbatches, 'micro-batch')}`, first.bubble));
  }
  const ofRank = data.memory.memory_of_a_rank, most = ofRank.reduce((a, b) => (b.total > a.total ? b : a));
  tiles.push(tile('memory', 'Memory of a device', most.total, formatBytes(most.total), data.limit_bytes ? `of ${formatBytes(data.limit_bytes)}` : isPipeline ? `stage ${most.stage}, the largest` : 'as allocated', data.limit_bytes ? most.total / data.limit_bytes : undefined));
  tiles.push(tile('weight_bytes', 'Weights of the model', summary.weight_bytes, formatBytes(summary.weight_bytes), `${plural(summary.weights, 'tensor')}; ${formatBytes(most.weights)} on a device`));
  let moves = 0;
  for (let row = 0; row < collectives.rows; ++row) moves += collectives.columns.kind[row] === 'recv' ? 0 : collectives.columns.times[row];
  tiles.push(tile('communications', 'Collectives, transfers', moves, formatCount(moves), `${plural(collectives.rows, 'row')} in the table`));
  return el('div', {class: 'tiles'}, tiles);
}

const factNames = {microbatches: 'micro-batches', weight_bytes: 'bytes of weights'};
const factTexts = {weight_bytes: formatBytes};

function makeFacts() {
  const facts = Object.entries(data.summary).filter(([, value]) => !Array.isArray(value)).map(([name, value]) => [name, factNames[name] || name.replaceAll('_', ' '), value]);
  for (const name of ['strategy', 'machine', 'cluster']) if (data[name]) facts.push([name, name, data[name]]);
  return el('dl', {class: 'facts'}, facts.map(([name, label, value]) =>
    el('div', {}, el('dt', {}, label), el('dd', {'data-key': name, 'data-value': value}, factTexts[name] ? factTexts[name](value) : typeof value === 'number' ? formatCount(value) : value || '–'))));
}

function makeNotes(title, lines, open) {
  const distinct = [...new Set(lines.filter((line) => typeof line === 'string'))], most = 50;
  if (!distinct.length) return null;
  return el('details', {class: 'notes', open}, el('summary', {}, `${title} (${distinct.length})`),
    el('ul', {}, distinct.slice(0, most).map((line) => el('li', {}, line)), distinct.length > most ? el('li', {}, `and ${distinct.length - most} more in report.json`) : null));
}

function showSummary() {
  makeSection('summary', 'Summary', [data.summary.model, data.summary.mesh && `mesh ${data.summary.mesh}`, data.summary.target].filter(Boolean).join(' · '),
    makeTiles(), makeFacts(), makeNotes('What this page leaves out', data.notes, true), makeNotes('Warnings of the compiler', data.warnings, true), makeNotes('Remarks of the compiler', data.remarks, data.remarks.length < 4));
}

// Of several programs the reader chooses one.
function showPrograms() {
  // Without a simulated program a trace stands for itself.
  const isSimulated = data.programs.length > 0, programs = isSimulated ? data.programs : data.trace ? [{entry: '', dims: '', step_ms: 0, stages: []}] : [];
  if (!programs.length) return;
  const about = [isSimulated && 'A step as simulated, one rank for each stage.', data.trace && `${data.trace.file} took ${formatMs(data.trace.step_ms)}.`].filter(Boolean).join(' ');
  const times = makeSection('timeline', 'Timeline', about), memory = isSimulated && makeSection('memory', 'Memory over time', 'Bytes of a device during the simulated step.');
  const draw = (index) => {
    for (const [section, content] of [[times, showTimeline(programs[index], index)], ...(memory ? [[memory, showMemory(programs[index])]] : [])]) {
      section.querySelector('.content')?.remove();
      section.append(el('div', {class: 'content'}, content));
    }
  };
  const start = data.trace ? data.trace.program : 0;
  if (programs.length > 1) {
    const choice = el('select', {'aria-label': 'Program', onchange: () => draw(Number(choice.value))}, programs.map((one, i) => el('option', {value: i, selected: i === start}, `${nameProgram(one)}: ${formatMs(one.step_ms)}`)));
    times.querySelector('.head').append(el('label', {class: 'tools'}, 'Program', choice));
  }
  draw(start);
}

function showMemoryTable() {
  let section = document.getElementById('memory');
  const bytes = (key1, title) => ({key: key1, title, format: 'bytes'});
  if (!section) section = makeSection('memory', 'Memory', '');
  section.append(el('h3', {}, 'As allocated'), new Table(toColumns(data.memory.memory_of_a_rank, ['stage', 'weights', 'states', 'arena', 'registered', 'inputs', 'outputs', 'total']),
    [{key: 'stage', title: 'stage', format: 'count'}, bytes('weights', 'weights'), bytes('states', 'states'), {...bytes('arena', 'arena'), help: 'intermediate values'}, {...bytes('registered', 'registered'), help: 'what communication reads and writes'}, bytes('inputs', 'inputs'), bytes('outputs', 'outputs'), bytes('total', 'total')],
    {label: 'memory of a rank'}).element);
}

function showCandidates() {
  if (!candidates.length) return;
  const section = makeSection('candidates', 'Candidates', candidates.length > 1 ? 'Plans that the planner weighed, by the time of a step and the memory of a device.' : `${candidates[0].strategy}; ${data.why}.`);
  if (candidates.length < 2) return;
  section.append(drawPareto() || '', new Table(toColumns(candidates, ['strategy', 'ms', 'by', 'bytes', 'verdict']), [
    {key: 'strategy', title: 'strategy', kind: 'name'}, {key: 'ms', title: 'estimated step', format: 'ms', help: 'of all programs together'}, {key: 'by', title: 'by', kind: 'text', help: 'simulated, or the sum of all that it computes and sends'}, {key: 'bytes', title: 'memory of a device', format: 'bytes'}, {key: 'verdict', title: 'verdict', kind: 'text'},
  ], {label: 'candidates', sort: 'ms', descending: false}).element);
}

function showTables() {
  makeSection('collectives', 'Collectives', 'Every collective and transfer with what causes it. Bytes are those that a rank reads, each time; “time each” is estimated alone, “time in all” is of the simulated step.',
    collectives.rows ? new Table(collectives, [
      {key: 'id', title: 'id', format: 'count', help: 'gridloom explain PLAN --collective ID'}, {key: 'kind', title: 'kind', kind: 'tight'}, {key: 'over', title: 'over', kind: 'axes'}, {key: 'ranks', title: 'ranks', format: 'count'},
      ...(isPipeline ? [{key: 'stage', title: 'stage', format: 'count'}] : []), ...(data.programs.length > 1 ? [{key: 'program', title: 'program', kind: 'tight'}] : []),
      {key: 'bytes', title: 'bytes', format: 'bytes'}, {key: 'times', title: 'times', format: 'count'}, {key: 'us', title: 'time each', format: 'us'}, {key: 'us_in_all', title: 'time in all', format: 'us', help: 'of all times together, as simulated; the estimate where that has no time'},
      ...((collectives.columns.exposed_us || []).some((us) => us !== null) ? [{key: 'exposed_us', title: 'exposed', format: 'us', help: 'of all times together, as simulated: what no computation hides'}] : []),
      {key: 'onnx_node', title: 'ONNX node', kind: 'code name'}, {key: 'because', title: 'because', kind: 'text'},
    ], {label: 'collectives', sort: 'us_in_all'}).element : el('p', {class: 'muted'}, 'No rank communicates.'));

  const tensors = unpack(data.tensors);
  makeSection('tensors', 'Tensors', 'Weights, inputs, outputs and the values in between, and how they are split; a dimension is split over the axes that stand for it, “-” is whole. {0-11} stands for the layers that are alike.',
    new Table(tensors, [
      {key: 'name', title: 'name', kind: 'code wide'}, {key: 'count', title: 'alike', format: 'count'}, {key: 'kind', title: 'kind', kind: 'tight'}, {key: 'type', title: 'type and shape', kind: 'code tight'}, {key: 'sharding', title: 'sharding', kind: 'sharding'},
      {key: 'bytes', title: 'bytes', format: 'bytes', help: 'of each, over all devices'}, {key: 'device_bytes', title: 'on a device', format: 'bytes', help: 'of each'},
      ...(isPipeline ? [{key: 'stage', title: 'stage', format: 'count', help: 'of weights'}] : []), {key: 'decided_by', title: 'decided by', kind: 'text'},
    ], {label: 'tensors', sort: 'bytes'}).element);

  const steps = data.programs.flatMap((program) => program.stages.flatMap((stage) => stage.steps.map(([step, node, kind, bytes, times, ms]) => ({program: nameProgram(program), stage: stage.stage, step, node, kind: stepKinds[kind] || kind, bytes: kind === 'compute' ? null : bytes, times, ms}))));
  if (steps.length)
    makeSection('steps', 'Steps', 'What the streams run: kernels, library calls and communication, with the simulated time of all micro-batches, without waiting for peers.',
      new Table(toColumns(steps, ['ms', 'times', 'step', 'kind', 'program', 'stage', 'bytes', 'node']), [
        {key: 'ms', title: 'time in all', format: 'ms'}, {key: 'times', title: 'times', format: 'count'}, {key: 'step', title: 'step', kind: 'code'}, {key: 'kind', title: 'kind', kind: 'tight'},
        ...(isPipeline ? [{key: 'stage', title: 'stage', format: 'count'}] : []), ...(data.programs.length > 1 ? [{key: 'program', title: 'program', kind: 'tight'}] : []),
        {key: 'bytes', title: 'bytes', format: 'bytes', help: 'that communication moves, each time'}, {key: 'node', title: 'ONNX nodes', kind: 'code name'},
      ], {label: 'steps', sort: 'ms'}).element);
}

showSummary();
showCluster();
showPrograms();
showMemoryTable();
showCandidates();
showModel();
showTables();
document.documentElement.setAttribute('data-ready', Math.round(performance.now())); // ms since the browser began to load

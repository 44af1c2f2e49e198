'use strict';
// The devices inside the links that join them, and the mesh's axes on these links.

const ranks = data.mesh.ranks;
const strides = data.mesh.axes.map((axis, i) => data.mesh.axes.slice(i + 1).reduce((product, later) => product * later.size, 1));
const coordinatesOf = (rank) => data.mesh.axes.map((axis, i) => Math.floor(rank / strides[i]) % axis.size);

function drawDevice(rank, devices) {
  const coordinates = coordinatesOf(rank);
  const light = (event, on) => {
    devices.root.classList.toggle('devices-dim', on);
    for (const [other, tile] of devices.tiles) {
      const place = coordinatesOf(other), differs = place.map((c, i) => c !== coordinates[i]);
      const along = differs.filter(Boolean).length === 1 ? differs.indexOf(true) : -1;
      tile.classList.toggle('self', on && other === rank);
      tile.classList.toggle('peer', on && along >= 0);
      if (along >= 0) tile.style.setProperty('--peer', axisColor(axisNames[along]));
    }
  };
  const tile = el('button', {class: 'device', 'data-rank': rank, 'aria-label': `rank ${rank}, ${axisNames.map((name, i) => `${name} ${coordinates[i]}`).join(', ')}`,
    onmouseenter: (event) => light(event, true), onmouseleave: (event) => light(event, false), onfocus: (event) => light(event, true), onblur: (event) => light(event, false)},
  el('b', {}, rank), axisNames.map((name, i) => el('span', {class: 'at', style: {'--c': axisColor(name)}}, `${name} ${coordinates[i]}`)));
  devices.tiles.set(rank, tile);
  return tile;
}

// The axes whose outermost level this is.
function axesOn(level) {
  return data.mesh.axes.filter((axis) => axis.levels.length && Math.max(...axis.levels) === level);
}

function drawLevel(level, from, to, devices) {
  if (level < 0) {
    const most = 16, shown = [];
    for (let rank = from; rank < Math.min(to, from + most); ++rank) shown.push(drawDevice(rank, devices));
    return [shown, to - from > most ? el('span', {class: 'more'}, `and ranks ${from + most}–${to - 1}`) : null];
  }
  const link = data.mesh.levels[level], inner = level ? data.mesh.levels[level - 1].block : 0, inside = [];
  if (!inner || inner >= to - from) {
    inside.push(drawLevel(level - 1, from, to, devices));
  } else {
    const groups = Math.ceil((to - from) / inner), most = groups > 6 ? 4 : groups;
    for (let group = 0; group < most; ++group) inside.push(drawLevel(level - 1, from + group * inner, Math.min(to, from + (group + 1) * inner), devices));
    if (groups > most) inside.push(el('span', {class: 'more'}, `and ${groups - most} more like these, up to rank ${to - 1}`));
  }
  const axes = from === 0 ? axesOn(level) : [];
  return el('div', {class: 'level'},
    el('div', {class: 'wire'}, el('b', {}, `${digits(link.gigabytes_per_second)} GB/s`), el('span', {class: 'muted'}, `each way and device, ${formatMs(link.latency_us / 1e3)}`),
      axes.map((axis) => axesChip(axis.name, `${axis.name} = ${axis.size}`))),
    el('div', {class: 'inside'}, inside));
}

function describeAxis(axis) {
  const index = axisNames.indexOf(axis.name), links = axis.levels.map((level) => data.mesh.levels[level]).filter(Boolean);
  const sent = collectives.columns.over || [];
  let calls = 0, us = 0, bytes = 0;
  for (let row = 0; row < collectives.rows; ++row)
    if (sent[row].split('.').includes(axis.name)) {
      calls += collectives.columns.times[row];
      bytes += collectives.columns.bytes[row] * collectives.columns.times[row];
      us += collectives.columns.us_in_all[row] || 0;
    }
  const isStages = axis.name === data.mesh.stage_axis;
  return {
    axis: axis.name, size: axis.size, stride: strides[index],
    links: links.map((link) => `${digits(link.gigabytes_per_second)} GB/s, ${formatMs(link.latency_us / 1e3)}`).join('; ') || 'none: one device',
    use: isStages ? 'pipeline stages' : 'splits tensors', calls: isStages ? null : calls, bytes: isStages ? null : bytes, us: isStages ? null : us,
  };
}

function showCluster() {
  const name = [data.machine, data.cluster].filter(Boolean).join(' on ');
  const section = makeSection('cluster', 'Cluster and mesh', `${plural(ranks, 'device')}${name ? `, estimated as ${name}` : ''}. A box is what links of one speed join; a colour is an axis of the mesh, named at the slowest links that it crosses.`);
  const devices = {root: null, tiles: new Map()};
  devices.root = el('div', {});
  const levels = data.mesh.levels.length;
  devices.root.append(levels && ranks > 1 ? drawLevel(levels - 1, 0, ranks, devices) : el('div', {class: 'level'}, el('div', {class: 'inside'}, drawLevel(-1, 0, ranks, devices))));
  section.append(devices.root);
  if (data.mesh.axes.length)
    section.append(el('h3', {}, 'Axes'), new Table(toColumns(data.mesh.axes.map(describeAxis), ['axis', 'size', 'stride', 'use', 'links', 'calls', 'bytes', 'us']), [
      {key: 'axis', title: 'axis', kind: 'axes'}, {key: 'size', title: 'size', format: 'count'}, {key: 'stride', title: 'ranks apart', format: 'count'},
      {key: 'use', title: 'use', kind: 'tight'}, {key: 'links', title: 'links that it crosses', kind: 'tight'},
      {key: 'calls', title: 'collectives', format: 'count', help: 'of all stages and programs, micro-batches counted'}, {key: 'bytes', title: 'bytes of a rank', format: 'bytes'},
      {key: 'us', title: 'time', format: 'us', help: 'as simulated, one after another, without what is hidden behind computation'},
    ], {label: 'axes of the mesh'}).element);
}

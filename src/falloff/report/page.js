"use strict";
// Adds to a page that can be read without it: sorting and search of tables, the place in the contents, the panel.

// --- tables ---

function sortKey(cell) {
  const stated = cell.dataset.sort ?? cell.textContent.trim();
  const number = Number(stated.replace(/[,%\u00a0\u202f★<]/g, "").split(" ")[0].replace("–", "-1e99"));
  return stated !== "" && Number.isFinite(number) ? number : stated.toLowerCase();
}

function compared(a, b) {
  if (typeof a === typeof b) return typeof a === "number" ? a - b : a.localeCompare(b);
  return typeof a === "number" ? -1 : 1;
}

function makeSortable(table) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const descending = head.getAttribute("aria-sort") === "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", descending ? "descending" : "ascending");
      const rows = [...table.tBodies[0].rows].map((row) => [sortKey(row.cells[column]), row]);
      rows.sort(([a], [b]) => (descending ? -compared(a, b) : compared(a, b)));
      table.tBodies[0].append(...rows.map(([, row]) => row));
    });
  });
}

function makeSearchable(table) {
  const what = table.dataset.search;
  const box = document.createElement("p");
  box.className = "search";
  const label = document.createElement("label");
  label.textContent = `Search ${what}`;
  label.htmlFor = `search-${what}`;
  const input = document.createElement("input");
  input.type = "search";
  input.id = label.htmlFor;
  const told = document.createElement("span");
  told.setAttribute("role", "status");
  box.append(label, input, told);
  table.parentElement.before(box);
  const rows = [...table.tBodies[0].rows];
  const show = () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
      if (!row.hidden) shown += 1;
    }
    told.textContent = words.length ? `${shown} of ${rows.length}` : "";
  };
  input.addEventListener("input", show);
  // a link to a row that the search hides shows all rows again
  window.addEventListener("hashchange", () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (target && rows.includes(target) && target.hidden) {
      input.value = "";
      show();
      target.scrollIntoView();
    }
  });
}

// On a phone rows are cards (display: block), which takes the roles of a table from its elements.
function keepRoles(table) {
  const roles = { TABLE: "table", THEAD: "rowgroup", TBODY: "rowgroup", TR: "row", TD: "cell" };
  for (const part of [table, ...table.querySelectorAll("thead, tbody, tr, td, th")])
    part.setAttribute("role", roles[part.tagName] ?? (part.scope === "row" ? "rowheader" : "columnheader"));
}

document.querySelectorAll("table.cards").forEach(keepRoles);
document.querySelectorAll("table[data-sortable]").forEach(makeSortable);
document.querySelectorAll("table[data-search]").forEach(makeSearchable);

// --- contents: which part is being read ---

function followReading() {
  const links = new Map([...document.querySelectorAll("nav a")].map((a) => [a.hash.slice(1), a]));
  const watcher = new IntersectionObserver(
    (seen) => {
      for (const entry of seen.filter((one) => one.isIntersecting)) {
        links.forEach((link) => link.removeAttribute("aria-current"));
        links.get(entry.target.id).setAttribute("aria-current", "true");
      }
    },
    { rootMargin: "-15% 0px -80% 0px" },
  );
  links.forEach((_, name) => {
    const target = document.getElementById(name);
    if (target) watcher.observe(target);
  });
}
followReading();

// --- the panel: looks up what analysis/what_if.py packed ---

const AXES = ["network", "cluster", "gpus", "layout", "local_batch", "recompute"];
const MANTISSAS = 9000;
const GIB = 2 ** 30;

async function unpacked(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

function readGrid(data, bytes) {
  const states = bytes.subarray(0, data.num_cells);
  const places = new Int32Array(data.num_cells); // of a job among the jobs
  let count = 0;
  states.forEach((state, cell) => {
    places[cell] = state < 2 ? count++ : -1;
  });
  const columns = {};
  data.columns.forEach((column, index) => {
    const start = data.num_cells + 2 * index * data.num_jobs;
    const high = bytes.subarray(start, start + data.num_jobs);
    const low = bytes.subarray(start + data.num_jobs, start + 2 * data.num_jobs);
    columns[column.name] = (place) => {
      const code = 256 * high[place] + low[place];
      if (!code) return 0;
      const mantissa = ((code - 1) % MANTISSAS) + 1000;
      return Number(`${mantissa}e${Math.floor((code - 1) / MANTISSAS) + column.lowest - 3}`);
    };
  });
  // Returns the step at places of the axes, or why there is none.
  return (chosen) => {
    const cell = AXES.reduce((sum, axis) => sum * data.axes[axis].length + chosen[axis], 0);
    const state = states[cell];
    if (state >= 2) return { reason: data.reasons[state - 2] };
    const step = { fits: state === 0 };
    for (const [name, read] of Object.entries(columns)) step[name] = read(places[cell]);
    return step;
  };
}

const inWords = (value, digits) => value.toLocaleString("en-US", { maximumSignificantDigits: digits });
const digits = (value, count) =>
  value.toLocaleString("en-US", { minimumSignificantDigits: count, maximumSignificantDigits: count });
const fixed = (value, digits) =>
  value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

function tile(name, id, value, ...more) {
  return element("div", {}, element("dt", {}, name), element("dd", { id: `what-if-${id}` }, value,
    ...more.map((words) => element("small", {}, words))));
}

function commandOf(data, choice, places) {
  const layout = choice.layout.options[places.gpus];
  return `falloff predict --network ${choice.network.value} --hardware ${choice.cluster.value} ` +
    `--gpus ${choice.gpus.value} --seq ${data.seq} --local-batch ${choice.local_batch.value} ` +
    `${layout ? `--layout ${layout} ` : ""}--recompute ${choice.recompute.value}`;
}

function tilesOf(step, choice, price, priceWords, stepSeconds) {
  const rate = step.tokens_per_gpu_s;
  const mfu = (choice.network.flops_per_token * rate) / choice.cluster.peak_flops;
  const cost = price > 0 ? `$${fixed((price / 3600 / rate) * 1e9, 0)}` : "–";
  return element("dl", { class: "tiles" },
    tile("tokens/s per GPU", "tokens", inWords(rate, 4),
      `90 %: ${inWords(step.low_tokens_per_gpu_s, 3)} to ${inWords(step.high_tokens_per_gpu_s, 3)}`),
    tile("MFU", "mfu", `${fixed(100 * mfu, 1)} %`, `of ${inWords(choice.cluster.peak_flops / 1e12, 4)} TFLOP/s`),
    tile("step", "step", `${inWords(stepSeconds, 4)} s`),
    tile("W per GPU", "draw", fixed(step.draw_w, 0), choice.cluster.power_evidence.split(":")[0]),
    tile("J per token", "energy", inWords(step.draw_w / rate, 3), "boards alone"),
    tile("memory a GPU", "memory", `${fixed(step.device_bytes / GIB, 1)} GiB`,
      `${step.fits ? "fits" : "DOES NOT FIT"} in ${fixed(choice.cluster.memory_gib, 0)} GiB`),
    tile("$ per billion tokens", "cost", cost, priceWords));
}

function partsOf(data, step) {
  const seconds = data.parts.map((_, place) => step[`part_${place}_s`]);
  const total = seconds.reduce((sum, value) => sum + value, 0);
  const taken = data.parts.map((name, place) => [name, seconds[place], place]).filter(([, value]) => value > 0);
  const bar = element("div", { class: "bar", "aria-hidden": "true" },
    ...taken.map(([, value, place]) => element("span", { class: `p${place}`, style: `flex-grow:${value / total}` })));
  const rows = taken.map(([name, value, place]) => element("tr", {},
    element("th", { scope: "row" }, element("span", { class: `swatch p${place}`, "aria-hidden": "true" }), name),
    element("td", { class: "num", "data-part": place }, digits(1000 * value, 3)),
    element("td", { class: "num" }, `${fixed((100 * value) / total, 1)} %`)));
  const heads = ["part of the step", "ms", "share"].map((words, place) =>
    element("th", place ? { scope: "col", class: "num" } : { scope: "col" }, words));
  return [bar, element("table", { id: "what-if-parts" },
    element("thead", {}, element("tr", {}, ...heads)), element("tbody", {}, ...rows))];
}

function svg(tag, attributes, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

// Tokens/s per GPU over GPUs for the same choice: predicted, so dashed, its interval hatched; a gap where there is no job.
function curveOf(data, find, places) {
  const counts = data.axes.gpus.map((entry) => entry.value);
  const steps = counts.map((_, gpus) => find({ ...places, gpus }));
  const made = steps.map((step, place) => [step, place]).filter(([step]) => !step.reason);
  const top = Math.max(...made.map(([step]) => step.high_tokens_per_gpu_s));
  const [width, height, left, bottom, above] = [460, 190, 8, 24, 24];
  const x = (place) => left + 22 + (place * (width - left - 52)) / Math.max(counts.length - 1, 1);
  const y = (value) => height - bottom - (value / top) * (height - bottom - above);
  const picture = svg("svg", { class: "curve", viewBox: `0 0 ${width} ${height}`, role: "img",
    "aria-label": "Predicted tokens per second per GPU over GPUs, all else as chosen, with 90 % intervals" });
  const pattern = svg("pattern", { id: "hatch", width: 5, height: 5, patternUnits: "userSpaceOnUse",
    patternTransform: "rotate(45)" });
  pattern.append(svg("path", { d: "M0 0V5", stroke: "var(--edge)", "stroke-width": 1 }));
  picture.append(pattern, svg("path", { d: `M${left} ${height - bottom}H${width - 8}`, stroke: "var(--edge)" }));
  const upper = made.map(([step, place]) => `${x(place)} ${y(step.high_tokens_per_gpu_s)}`);
  const lower = made.map(([step, place]) => `${x(place)} ${y(step.low_tokens_per_gpu_s)}`).reverse();
  picture.append(
    svg("path", { d: `M${[...upper, ...lower].join("L")}Z`, fill: "url(#hatch)", stroke: "none" }),
    svg("path", { d: `M${made.map(([step, place]) => `${x(place)} ${y(step.tokens_per_gpu_s)}`).join("L")}`, fill: "none",
      stroke: "var(--part-0)", "stroke-width": 2, "stroke-dasharray": "6 3" }));
  for (const [place, count] of counts.entries()) {
    const words = count >= 1024 ? `${count / 1024}k` : `${count}`;
    const attributes = { x: x(place), y: height - 8, "text-anchor": "middle" };
    picture.append(svg("text", place === places.gpus ? { ...attributes, class: "chosen" } : attributes, words));
  }
  const chosen = steps[places.gpus];
  for (const place of new Set([made[0][1], places.gpus, made.at(-1)[1]])) {
    const step = steps[place];
    if (step.reason) continue;
    const attributes = { x: x(place), y: y(step.tokens_per_gpu_s) - 9, "text-anchor": "middle" };
    picture.append(svg("text", step === chosen ? { ...attributes, class: "chosen" } : attributes,
      inWords(step.tokens_per_gpu_s, 3)));
    if (step === chosen)
      picture.append(svg("circle", { cx: x(place), cy: y(step.tokens_per_gpu_s), r: 4, fill: "var(--wash)",
        stroke: "var(--part-0)", "stroke-width": 2 }));
  }
  return [element("p", { class: "aside" }, "Tokens/s per GPU over GPUs, all else as chosen: predicted, with 90 % intervals."),
    picture];
}

async function startPanel() {
  const holder = document.getElementById("what-if-data");
  if (!holder) return;
  const data = JSON.parse(holder.textContent);
  const form = document.getElementById("what-if-form");
  const result = document.getElementById("what-if-result");
  const price = document.getElementById("what-if-price");
  form.hidden = false;
  document.getElementById("what-if-without").hidden = true;
  form.addEventListener("submit", (event) => event.preventDefault());
  if (typeof DecompressionStream === "undefined") {
    result.textContent = "This browser cannot unpack the grid (DecompressionStream, in all major ones since 2023).";
    return;
  }
  const find = readGrid(data, await unpacked(data.packed));
  let isOwnPrice = false;
  const show = () => {
    const places = {};
    const choice = {};
    for (const axis of AXES) {
      places[axis] = document.getElementById(`what-if-${axis}`).selectedIndex;
      choice[axis] = data.axes[axis][places[axis]];
    }
    const known = data.prices[choice.cluster.value];
    if (!isOwnPrice) price.value = known ? known.usd.toFixed(2) : "";
    const priceWords = isOwnPrice ? "at your price" : known ? known.words : "no price known: give one above";
    const step = find(places);
    if (step.reason) {
      result.replaceChildren(element("p", { class: "refusal" }, `No such step: ${step.reason}.`));
      return;
    }
    const stepSeconds = data.parts.reduce((sum, _, place) => sum + step[`part_${place}_s`], 0);
    const [bar, parts] = partsOf(data, step);
    const assumed = choice.cluster.assumption ? [element("p", { class: "aside" }, `Assumed of this cluster: ${choice.cluster.assumption}`)] : [];
    const command = element("code", { id: "what-if-command" }, commandOf(data, choice, places));
    result.replaceChildren(tilesOf(step, choice, Number(price.value), priceWords, stepSeconds), bar,
      element("div", { class: "below" }, parts, element("div", {}, ...curveOf(data, find, places))), ...assumed, command);
  };
  price.addEventListener("input", () => {
    isOwnPrice = price.value !== "";
    show();
  });
  form.addEventListener("change", show);
  show();
}
startPanel();

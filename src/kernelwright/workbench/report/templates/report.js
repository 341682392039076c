"use strict";
const by = (id) => document.getElementById(id);
const DATA = JSON.parse(by("rows").textContent);

// Sections: compressed on the page, expanded when they are opened.

async function unpacked(text) {
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).text();
}

async function expand(part) {
  const body = part.querySelector(":scope > .body");
  if (body.firstChild) return;
  body.innerHTML = await unpacked(part.querySelector(":scope > script").textContent);
  const pick = body.querySelector('[data-pick="machine"]');
  if (pick) choose(pick, body, "machine", by("machine").value);
}

// Shows the template chosen by a select element, which lets the user choose another one.
function choose(pick, parent, kind, first) {
  const shown = parent.querySelector(`:scope > [data-shown="${kind}"]`);
  const show = () => {
    const chosen = parent.querySelector(`:scope > template[data-${kind}="${CSS.escape(pick.value)}"]`);
    shown.replaceChildren(chosen.content.cloneNode(true));
    const inner = shown.querySelector('[data-pick="case"]');
    if (inner) choose(inner, shown, "case", inner.value);
    const place = shown.querySelector(":scope > [data-table]");
    if (place) place.append(tabular(figures(shown.closest(".body"))[place.dataset.table]));
  };
  if ([...pick.options].some((o) => o.value === first)) pick.value = first;
  pick.addEventListener("change", show);
  show();
}

const figures = (body) => JSON.parse(body.querySelector(":scope > script").textContent);

// A ladder's table on one case, from the section's figures.
function tabular(found) {
  const columns = [
    ["verified", (r) => r.verified], ["cold", (r) => span(r.cold_us), "n strong"],
    ["95% interval", (r) => r.cold_interval_us ? interval(r.cold_interval_us) : "", "n"],
    ["warm", (r) => span(r.warm_us), "n"], ["host", (r) => span(r.host_us), "n"],
    ["rate", (r) => r.rate, "n"], ["of roof", (r) => r.of_roof ? percent(r.of_roof) : "", "n strong"],
    ["over below", (r) => r.over_below ? times(r.over_below) : "", "n"],
    ["over best peer", (r) => r.over_best_peer ? times(r.over_best_peer) : "", "n"],
    ["limit", (r) => r.bound], ["source", (r) => r.source],
  ];
  const table = make("table"), head = table.createTHead().insertRow(), body = table.createTBody();
  for (const name of ["rung", ...columns.map(([name]) => name)]) {
    head.append(make("th", name));
    head.lastChild.scope = "col";
  }
  for (const r of found.rows) {
    const row = body.insertRow();
    row.append(make("th", r.name.replace("peer:", "") + (r.name === found.dispatched ? " \u25c0" : "")));
    row.lastChild.scope = "row";
    if (!r.cold_us) {
      row.append(make("td", r.status ?? "", "missing"));
      row.lastChild.colSpan = columns.length;
    } else for (const [, text, kind] of columns) row.append(make("td", text(r) ?? "", kind));
  }
  return table;
}

for (const part of document.querySelectorAll(".part")) {
  part.addEventListener("toggle", () => part.open && expand(part));
}

// A link opens the section, and the rung in it.
async function follow() {
  const name = decodeURIComponent(location.hash.slice(1));
  const parts = [...document.querySelectorAll(".part")];
  const part = parts.filter((p) => name === p.id || name.startsWith(`${p.id}-`))
    .sort((a, b) => b.id.length - a.id.length)[0];
  if (!part) return;
  await expand(part);
  part.open = true;
  const target = by(name) || part;
  if (target instanceof HTMLDetailsElement) target.open = true;
  target.scrollIntoView();
}
addEventListener("hashchange", follow);

// The first screen.

const mean = (values) => {
  const known = values.filter((v) => v > 0);
  return known.length ? Math.exp(known.reduce((s, v) => s + Math.log(v), 0) / known.length) : null;
};
const middle = (values) => {
  const known = values.filter((v) => v !== null).sort((a, b) => a - b);
  return known.length ? known[Math.floor(known.length / 2)] : null;
};
const times = (v) => v === null ? "" : v < 0.0995 ? `${v.toPrecision(2)}x` : v < 9.95 ? `${v.toFixed(2)}x` : `${v.toFixed(0)}x`;
const percent = (v) => v === null ? "" : v < 0.0995 ? `${(100 * v).toFixed(1)}%` : `${(100 * v).toFixed(0)}%`;
// Microseconds with three digits in a unit that fits.
const span = (us) => {
  if (us === undefined) return "";
  const [factor, unit] = [[1e-3, "ns"], [1, "us"], [1e3, "ms"]].find(([f]) => us / f < 999.5) ?? [1e6, "s"];
  const value = us / factor;
  return `${value < 9.995 ? value.toFixed(2) : value < 99.95 ? value.toFixed(1) : value.toFixed(0)} ${unit}`;
};
const interval = ([low, high]) => {
  const [from, to] = [span(low), span(high)];
  return `${from.split(" ")[1] === to.split(" ")[1] ? from.split(" ")[0] : from} .. ${to}`;
};
const size = (bytes) => {
  const units = ["B", "KiB", "MiB", "GiB"];
  let k = 0;
  for (; bytes >= 1024 && k < 3; k++) bytes /= 1024;
  return `${bytes < 10 ? bytes.toFixed(1) : bytes.toFixed(0)} ${units[k]}`;
};
const lost = (row) => row.peer !== null && row.peer < 1 - 2 * Math.max(row.noise ?? 0, 0.005);
const make = (tag, words = "", kind = "") => {
  const made = document.createElement(tag);
  made.textContent = words;
  made.className = kind;
  return made;
};
const draw = (tag, attributes) => {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
};

// Columns: title, value, text, class. "n" is for numbers; "wide" is omitted on a phone. A column
// without a value for any operator is omitted.
const COLUMNS = [
  ["operator", (o) => o.name, (o) => o.name, ""],
  ["of roof", (o) => o.roof, (o) => percent(o.roof), "n strong"],
  ["over PyTorch", (o) => o.torch, (o) => times(o.torch), "n"],
  ["over best peer", (o) => o.peer, (o) => o.rows.length && !o.judged ? "no peer" : times(o.peer), "n"],
  ["over size", (o) => o.roof, null, "wide"],
  ["lost", (o) => o.judged ? o.lost : null, (o) => o.judged ? `${o.lost} of ${o.judged}` : "", "n wide"],
  ["A/A noise", (o) => o.noise, (o) => percent(o.noise), "n wide"],
  ["source", (o) => o.source, (o) => o.source, "wide"],
];
const SPEED = "over the other";
const COMPARED = [
  [SPEED, (o) => o.speed, (o) => times(o.speed), "n"],
  ["other over PyTorch", (o) => o.there, (o) => times(o.there), "n"],
];
const order = { column: "operator", down: false };

function source(rows) {
  const here = rows.filter((r) => r.here).length;
  if (!here) return rows.length ? "shipped" : "";
  return here === rows.length ? "measured here" : `${here} measured here`;
}

function summarise(name, rows, others) {
  const there = new Map(others.map((r) => [r.case, r]));
  return {
    name, rows, others,
    roof: mean(rows.map((r) => r.roof)),
    torch: mean(rows.map((r) => r.torch)),
    peer: mean(rows.map((r) => r.peer)),
    judged: rows.filter((r) => r.peer !== null).length,
    lost: rows.filter(lost).length,
    noise: middle(rows.map((r) => r.noise)),
    source: source(rows),
    there: mean(others.map((r) => r.torch)),
    speed: mean(rows.filter((r) => there.has(r.case)).map((r) => there.get(r.case).us / r.us)),
  };
}

// One point for each size, at the mean of its cases: sizes are alike as in charts.py.
function bySize(rows) {
  const groups = [];
  for (const r of [...rows].sort((a, b) => a.bytes - b.bytes)) {
    const last = groups.at(-1);
    if (last && r.bytes < 1.05 * last[0].bytes) last.push(r);
    else groups.push([r]);
  }
  return groups.map((g) => ({ bytes: mean(g.map((r) => r.bytes)), roof: mean(g.map((r) => r.roof)) }));
}

function spark(o) {
  const width = 110, height = 26;
  const points = (rows) => bySize(rows.filter((r) => r.roof && r.bytes));
  const every = [...points(o.rows), ...points(o.others)];
  const xs = every.map((r) => Math.log(r.bytes));
  const low = Math.min(...xs), span = Math.max(...xs) - low;
  const along = (bytes) => span < Math.log(1.05) ? 0.5 : (Math.log(bytes) - low) / span;
  const top = Math.max(1.05, ...every.map((r) => r.roof));
  const place = (r) => [4 + (width - 8) * along(r.bytes), height - 2 - (height - 4) * r.roof / top];
  const line = (rows) => points(rows).map(place);
  const mine = line(o.rows);
  const ends = o.rows.filter((r) => r.roof).sort((a, b) => a.bytes - b.bytes);
  const says = ends.length
    ? `share of the roof: ${percent(ends[0].roof)} at ${size(ends[0].bytes)}, ${percent(ends.at(-1).roof)} at ${size(ends.at(-1).bytes)}`
    : "no share of the roof";
  const made = draw("svg", { class: "spark", width, height, role: "img", "aria-label": says });
  const one = height - 2 - (height - 4) / top;
  made.append(draw("line", { class: "one", x1: 0, x2: width, y1: one, y2: one }));
  made.append(draw("polyline", { class: "theirs", points: line(o.others).join(" ") }));
  made.append(draw("polyline", { class: "ours", points: mine.join(" ") }));
  for (const [cx, cy] of mine) made.append(draw("circle", { cx, cy, r: 2 }));
  return made;
}

function chosen(here, other) {
  const words = by("operator").value.trim().toLowerCase();
  const dtype = by("dtype").value;
  const fits = (row) => !dtype || row.dtype === dtype;
  const of = (machine, name) => (DATA.rows[machine]?.[name] ?? []).filter(fits);
  return Object.keys(DATA.operators)
    .filter((name) => `${name} ${DATA.operators[name].family}`.toLowerCase().includes(words))
    .map((name) => summarise(name, of(here, name), of(other, name)))
    .filter((o) => o.rows.length || o.others.length);
}

// Says how many results of a machine are shown, and where they are from.
function counted(machine, perOperator) {
  const rows = perOperator.flat(), here = rows.filter((r) => r.here).length;
  return `${machine}: ${perOperator.filter((of) => of.length).length} operators, ${rows.length} cases; `
    + (here ? `${here} measured here, ${rows.length - here} from shipped records.` : "all from shipped records.");
}

// Explains the factors of machines on which only PyTorch's rungs were timed.
function explain(shown) {
  const only = shown.filter(([, rows]) => rows.length && rows.every((r) => r.theirs)).map(([name]) => name);
  by("theirs").hidden = !only.length;
  by("theirs").textContent = `On ${only.join(" and ")} every timed rung is PyTorch's: the rungs written in this `
    + "package need a GPU for times. Over PyTorch: the speed of the fastest of native (PyTorch's own operator), compiled "
    + "(torch.compile) and manual (separate operations) over native; 1.00x if native is the fastest. They "
    + "have no share of the roof.";
}

function update() {
  const machine = by("machine").value, other = by("other").value;
  const found = chosen(machine, other), rows = found.flatMap((o) => o.rows);
  const every = other ? [...COLUMNS.slice(0, 4), ...COMPARED, ...COLUMNS.slice(4)] : COLUMNS;
  const columns = every.filter(([, value], k) => !k || found.some((o) => value(o) !== null));
  const judged = rows.filter((r) => r.peer !== null).length;
  by("source").textContent = counted(machine, found.map((o) => o.rows))
    + (other ? ` Beside it ${counted(other, found.map((o) => o.others))}` : "");
  explain([[machine, rows], [other, found.flatMap((o) => o.others)]]);
  by("dashes").hidden = !other;
  const own = rows.every((r) => r.theirs) ? "PyTorch's fastest rung over its own operator" : "over PyTorch's own operators";
  const cards = [
    [times(mean(rows.map((r) => r.torch))), own],
    [times(mean(rows.map((r) => r.peer))), "over the best peer"],
    [judged ? `${rows.filter(lost).length} of ${judged}` : "", "cases lost to a peer"],
    [percent(middle(rows.map((r) => r.noise))), "median A/A noise"],
  ];
  if (other) cards.push([times(mean(found.map((o) => o.speed))), `as fast as ${other}`]);
  by("cards").replaceChildren(...cards.filter(([value]) => value).map(([value, words]) => {
    const card = make("li");
    card.append(make("b", value), make("span", words));
    return card;
  }));
  const sorted = columns.find(([title]) => title === order.column);
  const [, value] = sorted ?? columns[0];
  const sign = sorted && order.down ? -1 : 1;
  found.sort((a, b) => {
    const [x, y] = [value(a), value(b)];
    if ((x === null) !== (y === null)) return (x === null) - (y === null);
    return sign * (x < y ? -1 : x > y ? 1 : 0) || (a.name < b.name ? -1 : 1);
  });
  head(columns);
  by("summary").tBodies[0].replaceChildren(...found.map((o) => line(o, columns)));
}

function head(columns) {
  const row = by("summary").tHead.rows[0];
  const focused = [...row.cells].findIndex((c) => c.contains(document.activeElement));
  row.replaceChildren(...columns.map(([title, , , kind], k) => {
    const cell = make("th", "", kind.replace("strong", ""));
    cell.scope = "col";
    if (title === order.column) cell.ariaSort = order.down ? "descending" : "ascending";
    const button = make("button", title);
    button.type = "button";
    button.addEventListener("click", () => {
      order.down = title === order.column ? !order.down : k > 0;
      order.column = title;
      update();
    });
    cell.append(button);
    return cell;
  }));
  if (focused >= 0) row.cells[Math.min(focused, row.cells.length - 1)].firstChild.focus();
}

function line(o, columns) {
  const row = document.createElement("tr");
  columns.forEach(([, , text, kind], k) => {
    const cell = make(k ? "td" : "th", k && text ? text(o) : "", kind);
    if (!k) {
      const link = make("a");
      for (const part of o.name.split(/(?<=[._])/)) link.append(part, make("wbr"));
      link.href = `#${DATA.operators[o.name].anchor}`;
      cell.scope = "row";
      cell.append(link);
    }
    if (!text && o.roof !== null) cell.append(spark(o));
    row.append(cell);
  });
  return row;
}

function options(select, values, all = "") {
  const named = values.map((v) => [v, v]);
  select.replaceChildren(...(all ? [["", all], ...named] : named).map(([value, words]) => new Option(words, value)));
}

options(by("machine"), DATA.machines);
options(by("other"), DATA.machines, "none");
[by("machine").value, by("other").value] = DATA.opening;
if (by("other").value) Object.assign(order, { column: SPEED, down: true }); // operators of both first
const every = Object.values(DATA.rows).flatMap((rows) => Object.values(rows).flat());
options(by("dtype"), [...new Set(every.map((r) => r.dtype))].filter(Boolean).sort(), "all");
for (const id of ["machine", "other", "operator", "dtype"]) by(id).addEventListener("input", update);
if (DATA.machines.length) update();

const save = by("save");
save.hidden = false;
save.addEventListener("click", async () => {
  const found = [];
  for (const part of document.querySelectorAll(".part[data-figures]")) {
    await expand(part);
    found.push(...figures(part.querySelector(":scope > .body")));
  }
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([JSON.stringify(found)], { type: "application/json" }));
  link.download = "kernelwright.json";
  link.click();
});
follow();

// Everything that is measured: tiles, acceptance, arms, requests, memory.

import { byId, count, drawing, duration, element, figure, percent, setText, speed, table } from "./dom.js";

const HISTORY = 120;
const speeds = [];

/** Draw one answer of /server_info. */
export function showFigures(info) {
  showTiles(info);
  showPositions(info.speculation);
  showArms(info.speculation.arms);
  showRequests(info.requests);
  showMemory(info.cache, info.counters);
  showEngine(info);
}

function showTiles(info) {
  const { load, speculation, model } = info;
  figure(byId("tile-speed"), speed(load.output_tokens_per_second), "tokens/s");
  speeds.push(load.output_tokens_per_second);
  if (speeds.length > HISTORY) speeds.shift();
  drawLine();
  figure(byId("tile-requests"), count(load.running), "running");
  setText(byId("tile-requests-note"), `${count(load.waiting)} waiting, ${count(model.max_sequences)} at a time`);
  const recent = speculation.recent.passes ? speculation.recent : speculation.total;
  figure(byId("tile-length"), recent.passes ? recent.accept_length.toFixed(2) : "–", `of ${speculation.max_draft_tokens + 1}`);
  setText(byId("tile-length-note"), speculation.total.passes
    ? `${speculation.total.accept_length.toFixed(2)} over ${count(speculation.total.passes)} passes`
    : "tokens a verify pass");
  showGain(speculation.arms, load.running);
}

function drawLine() {
  const top = Math.max(...speeds, 1e-9);
  const points = speeds.map((value, at) => {
    const x = 120 - (speeds.length - 1 - at) * (120 / (HISTORY - 1));
    return `${x.toFixed(1)},${(22 - 20 * (value / top)).toFixed(1)}`;
  });
  byId("speed-line").replaceChildren(drawing("polyline", { points: points.join(" ") }));
}

/** Batches that were measured, ascending, each with its arms by K. */
function batchesOf(arms) {
  const batches = new Map();
  for (const arm of arms) {
    if (!batches.has(arm.batch)) batches.set(arm.batch, new Map());
    batches.get(arm.batch).set(arm.draft_tokens, arm);
  }
  return new Map([...batches].sort(([first], [second]) => first - second));
}

const chosenOf = (row) => [...row.values()].find((arm) => arm.is_chosen);

function gainOf(row) {
  const plain = row.get(0);
  const chosen = chosenOf(row);
  return plain && chosen && plain.tokens_per_second ? chosen.tokens_per_second / plain.tokens_per_second : null;
}

function showGain(arms, running) {
  const batches = batchesOf(arms);
  const sizes = [...batches.keys()];
  const size = sizes.find((batch) => batch >= Math.max(running, 1)) ?? sizes.at(-1);
  const row = batches.get(size);
  const gain = row ? gainOf(row) : null;
  figure(byId("tile-gain"), gain === null ? "–" : gain.toFixed(2), gain === null ? "" : "×");
  setText(byId("tile-gain-note"), gain === null
    ? "not measured yet"
    : `K = ${chosenOf(row).draft_tokens} for ${size === 1 ? "one sequence" : `${size} sequences`}`);
}

function showPositions(speculation) {
  const { recent, total } = speculation;
  const rows = (recent.positions.length ? recent : total).positions;
  if (!rows.length) {
    byId("positions").replaceChildren(element("p", { class: "note" }, "No drafts yet."));
    return;
  }
  const shown = rows.map((row, at) => {
    const all = total.positions[at];
    const bar = element("span", { class: "bar-track" },
      drawing("svg", { viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" },
        drawing("rect", { class: "bar-fill", width: 100 * row.rate, height: 10 }),
        all ? drawing("rect", { class: "bar-mark", x: Math.max(0, 100 * all.rate - 0.4), width: 0.8, height: 10 }) : null));
    return element("li", {},
      element("span", { class: "position" }, String(at + 1)), bar,
      element("span", { class: "rate" }, percent(row.rate)),
      element("span", { class: "rate quiet" }, percent(row.conditional_rate)));
  });
  const passes = recent.passes ? `latest ${count(recent.passes)} passes` : `all ${count(total.passes)} passes`;
  byId("positions").replaceChildren(
    element("ol", { class: "bars positions" },
      element("li", { class: "note" }, element("span"), element("span"),
        element("span", { class: "rate" }, "of passes"), element("span", { class: "rate" }, "of reached")),
      ...shown),
    element("p", { class: "note" },
      `Passes with a draft there, and those whose drafts before it were all accepted; ${passes}. The mark is since the start.`));
}

function showArms(arms) {
  const batches = batchesOf(arms);
  if (!batches.size) {
    byId("arms").replaceChildren(element("p", { class: "note" }, "Not measured yet."));
    return;
  }
  const depths = [...new Set(arms.map((arm) => arm.draft_tokens))].sort((first, second) => first - second);
  const head = ["Sequences", ...depths.map((depth) => (depth ? `K = ${depth}` : "plain")), "gain"];
  const rows = [...batches].map(([batch, row]) => {
    const gain = gainOf(row);
    return [
      count(batch),
      ...depths.map((depth) => {
        const arm = row.get(depth);
        if (!arm) return "–";
        return element("td", arm.is_chosen ? { class: "chosen" } : {},
          speed(arm.tokens_per_second), arm.is_chosen ? element("span", { class: "unseen" }, " (in use)") : null);
      }),
      gain === null ? "–" : `${gain.toFixed(2)} ×`,
    ];
  });
  byId("arms").replaceChildren(
    table("Expected tokens a second of one sequence, by batch size and drafts", head, rows),
    element("p", { class: "note" }, "Of one sequence, from measured step times and the acceptance so far. Outlined: in use."));
}

function showRequests(requests) {
  if (!requests.length) {
    byId("requests").replaceChildren(element("p", { class: "note" }, "None."));
    return;
  }
  const rows = requests.slice(0, 32).map((request) => [
    element("th", { scope: "row", class: "id", title: request.id }, request.id),
    duration(request.age_seconds),
    request.cached_tokens ? `${count(request.prompt_tokens)} (${count(request.cached_tokens)} kept)` : count(request.prompt_tokens),
    count(request.output_tokens),
    speed(request.tokens_per_second),
    request.accept_length ? request.accept_length.toFixed(2) : "–",
    request.draft_tokens === null ? "auto" : request.draft_tokens === 0 ? "off" : `≤ ${request.draft_tokens}`,
  ]);
  const shown = [table("Requests in flight", ["Request", "Age", "Prompt", "Output", "tokens/s", "Accept length", "Drafts"], rows)];
  if (requests.length > 32) shown.push(element("p", { class: "note" }, `and ${count(requests.length - 32)} more`));
  byId("requests").replaceChildren(...shown);
}

function meter(name, used, kept, total) {
  const share = (part) => (total ? (100 * part) / total : 0);
  const told = kept ? `${count(used)} + ${count(kept)} kept of ${count(total)}` : `${count(used)} of ${count(total)}`;
  return element("li", {},
    element("span", { class: "meter-name" }, name),
    element("span", { class: "bar-track" },
      drawing("svg", { viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" },
        drawing("rect", { class: "bar-fill", width: share(used), height: 10 }),
        drawing("rect", { class: "bar-kept", x: share(used), width: share(kept), height: 10 }))),
    element("span", { class: "rate" }, told));
}

function showMemory(cache, counters) {
  const hits = cache.prefix_queried_tokens
    ? `${percent(cache.prefix_hit_tokens / cache.prefix_queried_tokens)} of ${count(cache.prefix_queried_tokens)} prompt tokens`
    : "no prompts yet";
  byId("memory").replaceChildren(
    element("ul", { class: "bars meters" },
      meter("Pages", cache.pages_used, cache.pages_cached, cache.pages_total),
      meter("Slots", cache.slots_used, 0, cache.slots_total),
      meter("Snapshots", cache.snapshots_used, 0, cache.snapshots_total)),
    facts([
      ["Found kept", hits],
      ["Put back", `${count(counters.preemptions)} sequences`],
      ["Faults", count(counters.faults)],
    ]));
}

function facts(rows) {
  return element("dl", { class: "facts" },
    ...rows.map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value))));
}

let engineShown = "";

function showEngine(info) {
  const { model, speculation, counters } = info;
  const rows = [
    ["Device", model.device],
    ["Drafter", `${speculation.drafter}, up to ${speculation.max_draft_tokens} a pass`],
    ["Context", `${count(model.max_length)} tokens, ${count(model.max_sequences)} sequences`],
    ["Output", `${count(counters.output_tokens)} tokens in ${count(counters.steps)} steps`],
    ["Running for", duration(info.uptime_seconds)],
    ["Version", info.version],
  ];
  const told = JSON.stringify([rows, model.load_lines]);
  if (told === engineShown) return;
  engineShown = told;
  const wasOpen = byId("engine").querySelector("details")?.open ?? false;
  byId("engine").replaceChildren(facts(rows));
  if (!model.load_lines.length) return;
  const lines = element("details", {}, element("summary", {}, "What loading found"),
    element("ul", { class: "lines" }, ...model.load_lines.map((line) => element("li", {}, line))));
  lines.open = wasOpen;
  byId("engine").append(lines);
}

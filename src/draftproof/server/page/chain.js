// Seven rings, drawn by state and never by colour alone, and the evidence of the one that is chosen.

import { byId, drawing, element } from "./dom.js";

const SIGNS = {
  proven: ["M2.5 8.5l3.8 3.8L13.5 4"],
  disproved: ["M3.5 3.5l9 9", "M12.5 3.5l-9 9"],
  unknown: ["M4.7 5.4a3.3 3.3 0 1 1 4.9 2.9C8.5 9 8 9.5 8 10.5", "M8 13.6v.1"],
  void: ["M3 8h10"],
  "not run": ["M3.5 8h.1", "M8 8h.1", "M12.5 8h.1"],
  live: ["M1.5 8h3l2-4.5 3 9 2-4.5h3"],
};
const CLASSES = { "not run": "absent" };
const HOLDING = new Set(["proven", "live"]);
const WORDS = { void: "does not count" };

const classOf = (state) => CLASSES[state] ?? state;
const wordOf = (state) => WORDS[state] ?? state;

let chosen = null;
let shown = "";
let drawn = "";

/** Draw the chain; what did not change stays as it is, so that focus and unfolded evidence survive. */
export function showChain(chain) {
  byId("chain-section").hidden = chain === null;
  if (chain === null) return;
  chosen = chosen ?? firstOfInterest(chain.links);
  const states = JSON.stringify([chain.links.map((link) => link.state), chosen]);
  if (states !== drawn) {
    drawn = states;
    const focused = document.activeElement?.dataset?.number;
    byId("chain").replaceChildren(...chain.links.map((link) => ring(link, chain)));
    if (focused) byId("chain").querySelector(`[data-number="${focused}"]`)?.focus();
  }
  showLink(chain.links.find((link) => link.number === chosen), chain);
}

/** The link that decides the verdict; without one the first. */
function firstOfInterest(links) {
  const deciding = links.find((link) => link.state === "disproved" || link.state === "unknown");
  return (deciding ?? links[0]).number;
}

function ring(link, chain) {
  const button = element("button",
    { type: "button", title: link.holds_when, "aria-pressed": String(link.number === chosen), "data-number": link.number },
    outline(link.state),
    element("span", { class: "name" }, element("b", {}, String(link.number)), ` ${link.name}`),
    element("span", { class: "word" }, wordOf(link.state)));
  button.addEventListener("click", () => {
    chosen = link.number;
    showChain(chain);
  });
  return element("li", { class: classOf(link.state) }, button);
}

function outline(state) {
  const parts = state === "disproved"
    ? [
        drawing("path", { class: "body", d: "M43 8H26a20 20 0 0 0 0 40h12l5-7", transform: "rotate(-7 26 28) translate(-2 0)" }),
        drawing("path", { class: "body", d: "M69 48h17a20 20 0 0 0 0-40H74l-5 7", transform: "rotate(-7 86 28) translate(2 0)" }),
      ]
    : [drawing("rect", { class: "body", x: 6, y: 8, width: 100, height: 40, rx: 20 })];
  const inner = drawing("g", { class: "inner", transform: "translate(48 20)" }, ...strokes(state));
  return drawing("svg", { class: "ring", viewBox: "0 0 112 56", "aria-hidden": "true" }, ...parts, inner);
}

const strokes = (state) => SIGNS[state].map((path) => drawing("path", { d: path }));

function sign(state) {
  return drawing("svg", { class: "sign", viewBox: "0 0 16 16", width: 14, height: 14, "aria-hidden": "true" }, ...strokes(state));
}

function showLink(link, chain) {
  const told = JSON.stringify([link, chain.command]);
  if (told === shown) return;
  const place = byId("link");
  const wasOpen = place.dataset.number === String(link.number) && (place.querySelector("details")?.open ?? false);
  shown = told;
  place.dataset.number = String(link.number);
  const summary = element("p", {}, element("b", {}, `Link ${link.number}, ${link.name}: ${wordOf(link.state)}. `), link.summary);
  place.replaceChildren(summary, ...(link.claims.length ? [evidence(link, chain, wasOpen)] : []));
}

function evidence(link, chain, isOpen) {
  const claims = link.claims.map((claim) =>
    element("li", { class: classOf(claim.state) },
      sign(claim.state),
      element("span", {}, claim.claim, element("span", { class: "observed" }, claim.observed)),
      element("span", { class: "unseen" }, claim.state)));
  const held = link.claims.filter((claim) => HOLDING.has(claim.state)).length;
  const made = element("details", {},
    element("summary", {}, `${held} of ${link.claims.length} claims hold`),
    element("ul", { class: "claims" }, ...claims));
  if (chain.command) made.append(element("p", { class: "note" }, "All of it: ", element("code", {}, chain.command)));
  made.open = isOpen;
  return made;
}


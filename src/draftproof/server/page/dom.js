// Elements and numbers. All text goes in as text, never as markup.

const SVG = "http://www.w3.org/2000/svg";

/** An element with attributes and children (elements or text). */
export function element(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

/** The same for a drawing. */
export function drawing(name, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, name), attributes, children);
}

function filled(made, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== null) made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

export const byId = (id) => document.getElementById(id);

/** Change text only where it differs, so that selections survive. */
export function setText(target, text) {
  if (target.textContent !== text) target.textContent = text;
}

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

export const count = (value) => whole.format(value);

/** A speed: three digits are enough. */
export function speed(value) {
  if (value === null || value === undefined) return "–";
  if (value >= 99.95) return whole.format(value);
  return value >= 9.995 ? value.toFixed(1) : value.toFixed(2);
}

export const percent = (value) => `${(100 * value).toFixed(value > 0 && value < 0.1 ? 1 : 0)} %`;

export function duration(seconds) {
  if (seconds < 60) return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.floor(seconds % 60)} s`;
  return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
}

/** A figure with its unit in small. */
export function figure(target, value, unit) {
  target.replaceChildren(element("span", { class: "value" }, value), unit ? ` ${unit}` : "");
}

/** A table of texts; the first cell of a row is its head. Cells may be elements. */
export function table(caption, head, rows) {
  const heads = head.map((name) => element("th", { scope: "col" }, name));
  const body = rows.map((cells) =>
    element("tr", {}, ...cells.map((cell, at) => {
      if (cell instanceof HTMLTableCellElement) return cell;
      return element(at ? "td" : "th", at ? {} : { scope: "row" }, cell);
    })));
  return element("table", {},
    element("caption", { class: "unseen" }, caption),
    element("thead", {}, element("tr", {}, ...heads)),
    element("tbody", {}, ...body));
}

// Asks the server how it does, once a second while somebody looks.

import { showChain } from "./chain.js";
import { setModel, startChat } from "./chat.js";
import { call, useKey } from "./connection.js";
import { byId, element, setText } from "./dom.js";
import { showFigures } from "./figures.js";

const SECOND = 1000;
const STATES = {
  ready: ["ready", "proven"],
  degraded: ["degraded", "unknown"],
  starting: ["starting", "unknown"],
  draining: ["draining", "unknown"],
  failed: ["failed", "disproved"],
};

function showState(word, kind) {
  setText(byId("state"), word);
  byId("state").className = `badge ${kind}`;
}

let noticed = "";

/** Lines above everything else: what an operator should look at. */
function showNotices(lines) {
  const told = JSON.stringify(lines);
  if (told === noticed) return;
  noticed = told;
  byId("notices").replaceChildren(...lines.map((line) => element("li", { class: "notice" }, line)));
}

function noticesOf(info) {
  const lines = [];
  if (info.model.simulated_accept_length !== null) {
    lines.push(`Acceptance is simulated (accept length ${info.model.simulated_accept_length}): the text of every answer means nothing.`);
  }
  const alarms = info.alarms.map((alarm) =>
    alarm.request_ids.length ? `${alarm.message} (${alarm.request_ids.join(", ")})` : alarm.message);
  const said = new Set(info.alarms.map((alarm) => alarm.message));
  return [...lines, ...alarms, ...info.health.reasons.filter((reason) => !said.has(reason))];
}

function show(info) {
  const name = info.model.names[0];
  setText(byId("model"), name);
  document.title = `${name} · draftproof`;
  setModel(name);
  showState(...(STATES[info.health.state] ?? [info.health.state, "unknown"]));
  showNotices(noticesOf(info));
  showChain(info.chain);
  showFigures(info);
}

function showFailure(error) {
  byId("key-form").hidden = error.status !== 401;
  showState(error.status === 401 ? "locked" : "no answer", error.status === 401 ? "unknown" : "disproved");
}

async function look() {
  if (!document.hidden) {
    try {
      show(await (await call("/server_info")).json());
      byId("key-form").hidden = true;
    } catch (error) {
      showFailure(error);
    }
  }
  setTimeout(look, SECOND);
}

byId("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  useKey(byId("key").value);
});
startChat();
look();

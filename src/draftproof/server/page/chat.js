// The chat box: one conversation, streamed, with what drafting did to each answer.

import { call, events } from "./connection.js";
import { byId, count, element, speed } from "./dom.js";

const messages = [];
let running = null;
let model = null;

export function setModel(name) {
  model = name;
}

/** Wire up the form; once. */
export function startChat() {
  byId("chat-form").addEventListener("submit", (event) => {
    event.preventDefault();
    send();
  });
  byId("prompt").addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    send();
  });
  byId("stop").addEventListener("click", () => running?.abort());
  byId("clear").addEventListener("click", () => {
    running?.abort();
    messages.length = 0;
    byId("conversation").replaceChildren();
  });
  byId("steps").addEventListener("change", (event) =>
    byId("conversation").classList.toggle("plain-steps", !event.target.checked));
}

async function send() {
  const text = byId("prompt").value;
  if (!text.trim() || running) return;
  byId("prompt").value = "";
  messages.push({ role: "user", content: text });
  add(element("div", { class: "message user" }, text));
  running = new AbortController();
  byId("send").hidden = true;
  byId("stop").hidden = false;
  const answer = new Answer();
  try {
    await answer.fill(running.signal);
  } catch (error) {
    answer.fail(error.name === "AbortError" ? "stopped" : error.message);
  } finally {
    if (answer.text) messages.push({ role: "assistant", content: answer.text });
    else messages.pop();
    running = null;
    byId("send").hidden = false;
    byId("stop").hidden = true;
  }
}

function add(shown) {
  const log = byId("conversation");
  log.append(shown);
  log.scrollTop = log.scrollHeight;
}

function requestBody() {
  const body = {
    model,
    messages,
    stream: true,
    stream_options: { include_usage: true, continuous_usage_stats: true },
    temperature: Number(byId("temperature").value),
    max_completion_tokens: Number(byId("max-tokens").value),
    chat_template_kwargs: { enable_thinking: byId("thinking").checked },
  };
  if (byId("drafts").value === "off") body.speculative = false;
  return body;
}

/** One answer as it comes in. */
class Answer {
  constructor() {
    this.text = "";
    this.tokens = 0;
    this.began = null;
    this.body = element("div", { class: "text" });
    this.note = element("p", { class: "note" });
    this.reasoning = null;
    this.shown = element("div", { class: "message assistant" }, this.body, this.note);
    add(this.shown);
  }

  async fill(signal) {
    const answer = await call("/v1/chat/completions", {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(requestBody()),
      signal,
    });
    for await (const event of events(answer)) {
      if (event.error) throw new Error(event.error.message);
      this.take(event);
    }
  }

  take(event) {
    const log = byId("conversation");
    const isAtEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 40;
    const choice = event.choices[0];
    const now = performance.now();
    const before = this.tokens;
    if (event.usage) this.tokens = event.usage.completion_tokens;
    if (choice) this.show(choice.delta, this.tokens - before);
    if (this.began === null && this.tokens) [this.began, this.first] = [now, this.tokens];
    this.tell(event, now);
    if (choice?.finish_reason) this.finish = choice.finish_reason;
    if (isAtEnd) log.scrollTop = log.scrollHeight;
  }

  show(delta, tokens) {
    const thought = delta.reasoning_content ?? delta.reasoning;
    if (thought) this.place().append(step(thought, tokens));
    if (delta.content) {
      this.text += delta.content;
      this.body.append(step(delta.content, tokens));
    }
    for (const called of delta.tool_calls ?? []) {
      this.body.append(step(called.function?.name ? `${called.function.name}(` : called.function?.arguments ?? "", tokens));
    }
  }

  place() {
    if (!this.reasoning) {
      this.reasoning = element("div", { class: "reasoning" });
      this.body.before(this.reasoning);
    }
    return this.reasoning;
  }

  tell(event, now) {
    const seconds = this.began === null ? 0 : (now - this.began) / 1000;
    const parts = [`${count(this.tokens)} tokens`];
    if (seconds > 0 && this.tokens > this.first) parts.push(`${speed((this.tokens - this.first) / seconds)} tokens/s`);
    const drafting = event.metrics?.speculative_decoding ?? this.drafting;
    this.drafting = drafting;
    if (drafting?.num_draft_tokens) {
      parts.push(`accept length ${drafting.mean_acceptance_length.toFixed(2)}`);
      parts.push(`${count(drafting.num_accepted_draft_tokens)} of ${count(drafting.num_draft_tokens)} drafts accepted`);
    }
    if (this.finish === "length") parts.push("cut at the token limit");
    this.note.textContent = parts.join(" · ");
  }

  fail(reason) {
    const told = this.note.textContent;
    this.note.textContent = told ? `${told} · ${reason}` : reason;
    this.shown.classList.add("ended");
  }
}

/** The text of one step; several tokens at once are accepted drafts. */
function step(text, tokens) {
  if (tokens < 2) return document.createTextNode(text);
  const named = { class: "step", title: `${tokens} tokens in one step: ${tokens - 1} drafted and accepted` };
  return element("span", named, text);
}

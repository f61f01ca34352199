// Calls to the server that the page came from, with the API key where it asks for one.

const KEY = "draftproof-key";

export const useKey = (key) => sessionStorage.setItem(KEY, key);

/** Call the server; throws an Error with the server's own words when it refuses. */
export async function call(path, options = {}) {
  const headers = { ...options.headers };
  const key = sessionStorage.getItem(KEY);
  if (key) headers.authorization = `Bearer ${key}`;
  const answer = await fetch(path, { ...options, headers, cache: "no-store" });
  if (answer.ok) return answer;
  throw Object.assign(new Error(await reasonOf(answer)), { status: answer.status });
}

async function reasonOf(answer) {
  try {
    return (await answer.json()).error.message;
  } catch {
    return `the server answered ${answer.status}`;
  }
}

/** The JSON of each event of a stream, until it says that it is done. */
export async function* events(answer) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    rest += value;
    const lines = rest.split(/\r?\n/);
    rest = lines.pop();
    for (const line of lines) {
      if (!line.startsWith("data:")) continue;
      const data = line.slice(5).trim();
      if (data === "[DONE]") return;
      yield JSON.parse(data);
    }
  }
}

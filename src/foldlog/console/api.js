// The console's HTTP API. An answer that is no success becomes a Refused with the server's own sentence.

export class Refused extends Error {
  constructor(status, answer) {
    super(answer.error ?? `The broker answered ${status}.`);
    this.status = status;
    this.answer = answer;
  }
}

async function call(path, options) {
  let response;
  try {
    response = await fetch(`/api/${path}`, { credentials: "same-origin", ...options });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(0, { error: "The broker does not answer." });
  }
  const answer = await response.json().catch(() => ({}));
  if (!response.ok) throw new Refused(response.status, answer);
  return answer;
}

const part = encodeURIComponent;

export const get = (path, query = {}, signal) => {
  const asked = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return call(asked.length ? `${path}?${new URLSearchParams(asked)}` : path, { signal });
};

export const post = (path, body) =>
  call(path, { method: "POST", headers: { "Content-Type": "application/json", "X-Foldlog": "1" }, body: JSON.stringify(body) });

export const overview = () => get("overview");
export const topic = (name) => get(`topics/${part(name)}`);
export const strip = (name, partition, query, signal) => get(`topics/${part(name)}/${partition}/strip`, query, signal);
/** Where a place is that somebody typed. The broker has the grammar; a time without a zone is one of this browser's. */
export const place = (name, text) => get(`topics/${part(name)}/place`, { place: text, zone: Intl.DateTimeFormat().resolvedOptions().timeZone });
export const record = (name, partition, offset, signal) => get(`topics/${part(name)}/${partition}/records/${offset}`, {}, signal);
export const timeAt = (name, partition, offset, signal) => get(`topics/${part(name)}/${partition}/at`, { offset }, signal);
export const produce = (name, body) => post(`topics/${part(name)}/records`, body);
export const group = (name) => get(`groups/${part(name)}`);
export const rewindGroup = (name, body) => post(`groups/${part(name)}/rewind`, body);
export const folds = () => get("folds");
export const foldRewind = (fold, partition, to, signal) => get(`folds/${part(fold)}/rewind`, { partition, to }, signal);
export const foldCommand = (fold, body) => post(`folds/${part(fold)}/commands`, body);
export const peek = (fold, query, signal) => get(`folds/${part(fold)}/peek`, query, signal);

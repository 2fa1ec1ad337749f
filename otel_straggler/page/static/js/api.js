// Questions to the collector. An answer that has not changed is not sent again (ETag).

const LONGEST_WAIT_MS = 20000;
const MOST_KEPT = 24;

/** The address of a question; what is null or undefined is not asked. Relative, for proxies. */
export function addressOf(path, query) {
  const asked = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== null && value !== undefined) asked.set(name, value);
  }
  const text = asked.toString();
  return text ? `${path}?${text}` : path;
}

/**
 * Asks, and keeps answers with their ETag.
 *
 * `get` gives `{body, isNew, problem}`; answers that are not to be asked for again need not be kept.
 * `problem` is the collector's sentence where it has no such
 * thing. It throws where nobody answers, or the collector is not able to; the error's `told` is then
 * its sentence. `needsLogin` is set where it wants to know first who asks.
 */
export function createApi(world) {
  const kept = new Map();
  return {
    forget: () => kept.clear(),
    async get(path, query, isKept = true) {
      const address = addressOf(path, query);
      const known = kept.get(address);
      const response = await askedInTime(world, address, known?.etag);
      if (response.status === 304 && known) return { body: known.body, isNew: false, problem: null };
      if (response.status === 401) throw Object.assign(new Error("no token"), { needsLogin: true });
      if (response.status >= 400 && response.status < 500) {
        return { body: null, isNew: true, problem: await problemOf(response) };
      }
      if (!response.ok) throw await refusalOf(response);
      const body = await response.json();
      const etag = response.headers.get("ETag");
      kept.delete(address);
      if (etag && isKept) kept.set(address, { etag, body });
      if (kept.size > MOST_KEPT) kept.delete(kept.keys().next().value);
      return { body, isNew: true, problem: null };
    },
    /** Has the collector keep a token in a cookie that no script reads; a sentence if it refuses. */
    async login(token) {
      try {
        const response = await world.fetch("v1/login", {
          method: "POST",
          headers: { "Content-Type": "application/json" },
          body: JSON.stringify({ token }),
          cache: "no-store",
          credentials: "same-origin",
        });
        return response.ok ? null : await problemOf(response);
      } catch {
        return "The collector does not respond.";
      }
    },
  };
}

async function askedInTime(world, address, etag) {
  const stopper = new AbortController();
  const timer = world.later(() => stopper.abort(), LONGEST_WAIT_MS);
  try {
    return await world.fetch(address, {
      headers: etag ? { "If-None-Match": etag } : {},
      cache: "no-store",
      credentials: "same-origin",
      signal: stopper.signal,
    });
  } finally {
    world.clear(timer);
  }
}

async function refusalOf(response) {
  const told = await problemOf(response);
  return Object.assign(new Error(told), { told });
}

async function problemOf(response) {
  try {
    return String((await response.json()).error);
  } catch {
    return `The collector refuses this with status ${response.status}.`;
  }
}

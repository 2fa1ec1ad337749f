// What a page needs of the browser around it; tests give their own.

const MOST_STREAMS = 3; // of the six connections that a browser opens to one address

/** The browser: its clock, its timers, its ways to ask. */
export function browserWorld() {
  return {
    fetch: (address, options) => window.fetch(address, options),
    openStream: (address) => new EventSource(address),
    queueForStream: (granted) => queueForStream(navigator.locks, granted),
    now_ms: () => Date.now(),
    later: (what, ms) => window.setTimeout(what, ms),
    clear: (timer) => window.clearTimeout(timer),
    random: () => Math.random(),
    isHidden: () => document.hidden,
    onVisible: (what) => document.addEventListener("visibilitychange", what),
  };
}

/**
 * Waits until fewer than three tabs of this browser have a stream; answers how to leave, from the
 * queue or with the stream.
 *
 * Each stream is a lock, which the browser takes back from a tab that is closed or has crashed.
 * Where there are no locks (plain http from another machine) nobody's turn ever comes.
 */
export function queueForStream(locks, granted) {
  const leaving = new AbortController();
  let isGranted = false;
  let giveBack = () => {};
  const isHeld = new Promise((resolve) => {
    giveBack = resolve;
  });
  const take = () => {
    if (isGranted || leaving.signal.aborted) return undefined; // one is enough
    isGranted = true;
    granted();
    return isHeld;
  };
  for (let number = 1; locks && number <= MOST_STREAMS; number += 1) {
    locks
      .request(`otel-straggler stream ${number}`, { signal: leaving.signal }, take)
      .catch(() => {}); // left before it was granted
  }
  return () => {
    leaving.abort();
    giveBack();
  };
}

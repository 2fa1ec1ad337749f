// How a page learns that something has changed: a stream of events tells it, or it asks.
//
// A browser opens six connections to a collector, for all its tabs together, and a stream keeps one
// of them for as long as it is open: a seventh tab would not even load. So a tab that nobody sees
// has no stream, of the others only a few have one at a time, and who has none asks now and then.
// So does who has one that says nothing: a proxy holds it back, or the collector has too many.

import { createStream } from "./stream.js";

const ASK_MS = 3000;
const TRY_AGAIN_MS = 60000;

/**
 * News of one address at a time.
 *
 * @param told `runs(news)`, `snapshot(news)` and `lost()` as of `createStream`, and `ask()`, called
 *   every three seconds while no stream speaks.
 */
export function createNews(world, told) {
  let address = null;
  let stream = null;
  let hasSpoken = false;
  let isOurTurn = false;
  let leaveQueue = null;
  let askTimer = null;
  let againTimer = null;

  function open() {
    world.clear(againTimer);
    stream = createStream(world, address, {
      opened: () => (hasSpoken = true),
      runs: told.runs,
      snapshot: told.snapshot,
      lost: failed,
    });
  }

  function failed() {
    stream = null;
    if (hasSpoken) return told.lost();
    againTimer = world.later(open, TRY_AGAIN_MS); // refused; that the collector is away, asking finds
  }

  function keepAsking() {
    askTimer = world.later(() => {
      if (hasSpoken) return;
      told.ask();
      keepAsking();
    }, ASK_MS);
  }

  function takeTurn() {
    isOurTurn = true;
    if (address !== null) open();
  }

  /** Ends stream and questions; another tab may not have our turn yet. */
  function stop() {
    stream?.close();
    stream = address = null;
    hasSpoken = false;
    world.clear(askTimer);
    world.clear(againTimer);
  }

  return {
    stop,
    listen(wanted) {
      stop();
      address = wanted;
      if (isOurTurn) open();
      else leaveQueue ??= world.queueForStream(takeTurn);
      keepAsking();
    },
    /** Nobody sees this tab: ends all, and lets another one have its stream. */
    rest() {
      stop();
      leaveQueue?.();
      leaveQueue = null;
      isOurTurn = false;
    },
  };
}

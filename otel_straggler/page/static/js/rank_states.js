// The states of ranks: how they are ordered, marked and counted. Nothing here touches a document.

import { isKnown } from "./format.js";

/** The gravest first; `tone` tells the colour, `mark` tells it without one. */
export const RANK_STATES = [
  { state: "lost", tone: "lost", mark: "✕", meaning: "no heartbeat: crashed, stopped or cut off" },
  { state: "stuck", tone: "stuck", mark: "■", meaning: "alive, with open work, but no progress" },
  { state: "late", tone: "late", mark: "▲", meaning: "no progress for half of its timeout" },
  { state: "failed", tone: "lost", mark: "!", meaning: "has reported that it failed" },
  { state: "missing", tone: "unknown", mark: "?", meaning: "expected, but never seen" },
  { state: "starting", tone: "starting", mark: "◇", meaning: "has not begun a step yet" },
  { state: "ok", tone: "ok", mark: "●", meaning: "making progress" },
  { state: "finished", tone: "finished", mark: "✓", meaning: "has reported that it ended well" },
  { state: "ended", tone: "finished", mark: "–", meaning: "was ended, or ended with its run" },
];

const OTHER_STATE = { state: "unknown", tone: "unknown", mark: "?", meaning: "no data" };
const GRAVE_STATES = 3;

/** Whether a rank in this state has ended, however. */
export function isOver(name) {
  return ["finished", "failed", "ended"].includes(name);
}

/** What is known of a state by its name. */
export function aboutState(name) {
  return RANK_STATES.find(({ state }) => state === name) || OTHER_STATE;
}

/** How many ranks are in which state, gravest first, without empty ones. Cost: O(ranks). */
export function countedStates(ranks) {
  const counts = new Array(ranks.states.length).fill(0);
  let unknown = 0;
  for (const code of ranks.state) {
    if (code >= 0 && code < counts.length) counts[code] += 1;
    else unknown += 1;
  }
  const found = ranks.states.map((name, code) => ({ ...aboutState(name), state: name, count: counts[code] }));
  if (unknown) found.push({ ...OTHER_STATE, count: unknown });
  return found.filter(({ count }) => count > 0).sort((a, b) => graveness(a.state) - graveness(b.state));
}

function graveness(name) {
  const place = RANK_STATES.findIndex(({ state }) => state === name);
  return place === -1 ? RANK_STATES.length : place;
}

/**
 * The ranks for whom the others wait, as numbers. Where all are lost, or the rest goes on, nobody is
 * seen waiting, and nobody is in the set.
 */
export function awaitedRanks(hangs) {
  return new Set((hangs || []).flatMap((hang) => (hang.victims > 0 && hang.culprits) || []));
}

/**
 * Places of the ranks to look at: lost, stuck or late; culprits first, then the longest silent or
 * stalled.
 */
export function graveRanks(ranks, most, culprits = new Set()) {
  const weights = ranks.states.map(graveness);
  const isVictim = (place) => (culprits.has(ranks.rank[place]) ? 0 : 1);
  const places = [];
  ranks.state.forEach((code, place) => {
    if (weights[code] < GRAVE_STATES) places.push(place);
  });
  places.sort(
    (a, b) =>
      isVictim(a) - isVictim(b) ||
      weights[ranks.state[a]] - weights[ranks.state[b]] ||
      waitedFor(ranks, b) - waitedFor(ranks, a),
  );
  return { places: places.slice(0, most), left_out: Math.max(0, places.length - most) };
}

function waitedFor(ranks, place) {
  return Math.max(ranks.heartbeat_age_s?.[place] ?? 0, ranks.progress_age_s?.[place] ?? 0);
}

/** Oldest and median age of what is known; null without any. Cost: O(n log n). */
export function agesOf(ages) {
  const known = Float64Array.from((ages || []).filter(isKnown)).sort();
  if (!known.length) return null;
  return { oldest: known[known.length - 1], median: known[Math.floor((known.length - 1) / 2)] };
}

/**
 * How `count` tiles fill a strip `width` wide: as large as they can be within `most_height`, in rows
 * of equal length. Lengths in pixels; a tile is as wide as the row allows, up to `WIDEST_TILE`.
 */
export function tilesOfStrip(count, width, mostHeight) {
  let height = LARGEST_TILE;
  let rows = 1;
  for (; height > 1; height -= height > 8 ? 1 : 0.5) {
    rows = Math.ceil(count / Math.max(1, Math.floor(width / height)));
    if (rows * height <= mostHeight) break;
  }
  rows = Math.ceil(count / Math.max(1, Math.floor(width / height)));
  const columns = Math.ceil(count / rows);
  const wide = Math.min(WIDEST_TILE, width / columns);
  return { width: wide, height, columns, rows, total: rows * height };
}

const LARGEST_TILE = 24;
const WIDEST_TILE = 110;

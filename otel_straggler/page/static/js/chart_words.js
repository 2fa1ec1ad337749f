// What charts say of a cell, in the same words in the tooltip, to screen readers and in tables.

import { slowdownOf } from "./bytes.js";

/** "rank 5 on node-1"; the node where it is known. */
export function rankWords(rank, node) {
  return node ? `rank ${rank} on ${node}` : `rank ${rank}`;
}

/** "1.49x its peers"; beyond the ends of the scale "3.95x its peers or more". */
export function byteWords(byte) {
  const slowdown = slowdownOf(byte);
  if (slowdown === null) return "no data";
  const times = `${slowdown.toFixed(2)}x its peers`;
  if (byte === 255) return `${times} or more`;
  return byte === 1 ? `${times} or less` : times;
}

/** "alone makes the step 1.29x as long" (as with equal workers); "no data" for null. */
export function stepTimesWords(slowdown) {
  if (slowdown === null || slowdown === undefined) return "no data";
  return `alone makes the step ${slowdown.toFixed(2)}x as long`;
}

/** "1.49x its peers" of a slowdown that was not squeezed into a byte; "no data" for null. */
export function slowdownWords(slowdown) {
  return slowdown === null || slowdown === undefined
    ? "no data"
    : `${slowdown.toFixed(2)}x its peers`;
}

/** Short enough to stand in a cell: "1.5", from 10 on "12". */
export function slowdownFigure(slowdown) {
  if (slowdown === null || slowdown === undefined) return "";
  return slowdown >= 9.95 ? slowdown.toFixed(0) : slowdown.toFixed(slowdown >= 3.95 ? 1 : 2);
}

/** "steps 240–259", "step 240"; of a window by time "until 14:03:20". */
export function stepWords(column) {
  const { first_step: first, last_step: last, at_s: at } = column;
  if (first === null) return `until ${clockWords(at)}`;
  return first === last ? `step ${first}` : `steps ${first}–${last}`;
}

/** What stands below a column: its first step, or its time if it has none. */
export function columnWords({ first_step: first, at_s: at }) {
  return first === null ? clockWords(at) : countWords(first);
}

/** "14:03:20", in the reader's time zone. */
export function clockWords(at_s) {
  if (at_s === null || at_s === undefined) return "";
  const at = new Date(at_s * 1000);
  return [at.getHours(), at.getMinutes(), at.getSeconds()]
    .map((n) => String(n).padStart(2, "0"))
    .join(":");
}

/** "10,000". */
export function countWords(count) {
  return String(count).replace(/\B(?=(\d{3})+$)/g, ",");
}

/** "1 rank", "25 ranks". */
export function ranksWords(count) {
  return `${countWords(count)} ${count === 1 ? "rank" : "ranks"}`;
}

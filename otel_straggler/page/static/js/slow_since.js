// Since when a rank is slow, in words: what the colours of a row of windows say.

import { byteOf } from "./bytes.js";
import { columnWords } from "./chart_words.js";

const SLOW_BYTE = byteOf(1.1);

/** "step 40", "step 0 or before" where it was so in all windows that are known, "not slow now". */
export function slowSinceWords(timeline, rank) {
  const place = timeline?.ranks.indexOf(rank) ?? -1;
  if (place < 0) return "unknown";
  const { columns, bytes, ranks } = timeline;
  let first = columns.length;
  while (first > 0 && bytes[(first - 1) * ranks.length + place] >= SLOW_BYTE) first -= 1;
  if (first === columns.length) return "not slow now";
  const words = columnWords(columns[first]);
  const when = columns[first].first_step === null ? words : `step ${words}`;
  return first === 0 ? `${when} or before` : when;
}

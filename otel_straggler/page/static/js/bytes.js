// Slowdowns as bytes: how `/v1/timeline` sends them, and how pieces of a timeline become one.
//
// A byte of 0 is "no data"; else slowdown = 2 ** ((byte - 128) / 64), from 0.25 to 3.95, so that
// one step of a byte is 1.09 %. A timeline holds column after column, each with a byte per rank.

export const NO_DATA_BYTE = 0;
export const EVEN_BYTE = 128;
export const MOST_TIMELINE_COLUMNS = 360;
const BYTES_PER_DOUBLING = 64;

/** The byte of a slowdown (1 = like its peers); 0 for null and what is not a number above 0. */
export function byteOf(slowdown) {
  if (!Number.isFinite(slowdown) || slowdown <= 0) return NO_DATA_BYTE;
  const byte = Math.round(EVEN_BYTE + BYTES_PER_DOUBLING * Math.log2(slowdown));
  return Math.min(255, Math.max(1, byte));
}

/** The bytes of many slowdowns; `count` of them, those left out without data. */
export function bytesOfSlowdowns(slowdowns, count = slowdowns.length) {
  const bytes = new Uint8Array(count);
  for (let i = 0; i < count; i += 1) bytes[i] = byteOf(slowdowns[i]);
  return bytes;
}

/** The slowdown of a byte; null where there is no data. */
export function slowdownOf(byte) {
  return byte === NO_DATA_BYTE ? null : 2 ** ((byte - EVEN_BYTE) / BYTES_PER_DOUBLING);
}

/**
 * An answer of `/v1/timeline` as `{run_id, group, section, first, last, ranks, columns, bytes}`.
 * Throws an Error if it is of another encoding or has not a byte for each rank and column.
 */
export function decodeTimeline(answer) {
  if (answer.encoding !== "uint8-log2") {
    throw new Error(
      `timeline: encoding is ${answer.encoding}; expected uint8-log2. Reload the page.`,
    );
  }
  const bytes = bytesOfBase64(answer.values);
  const expected = answer.ranks.length * answer.columns.length;
  if (bytes.length !== expected) {
    throw new Error(
      `timeline: ${bytes.length} bytes for ${answer.ranks.length} ranks in ` +
        `${answer.columns.length} columns; expected ${expected}. Reload the page.`,
    );
  }
  const { run_id, group, section, first, last, ranks, columns } = answer;
  return { run_id, group, section: section ?? "", first, last, ranks, columns, bytes };
}

function bytesOfBase64(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text ?? "");
  const characters = atob(text ?? "");
  const bytes = new Uint8Array(characters.length);
  for (let i = 0; i < characters.length; i += 1) bytes[i] = characters.charCodeAt(i);
  return bytes;
}

/**
 * Two decoded timelines as one, ordered by seq, with the ranks of both; `added` wins where both
 * have a column, and the newest `most` columns stay. `old` itself if there is nothing to add.
 * Of another run, group or section, or of a collector that has begun to count again: `added` alone.
 * Cost: one copy of all bytes.
 */
export function mergeTimelines(old, added, most = MOST_TIMELINE_COLUMNS) {
  if (!old || isAnotherTimeline(old, added) || hasCountedAnew(old, added)) return added;
  if (added.columns.length === 0) return old;
  const ranks = unionOfRanks(old.ranks, added.ranks);
  const columns = newestColumns(old, added, most);
  const bytes = new Uint8Array(ranks.length * columns.length);
  const places = new Map([old, added].map((each) => [each, placesIn(ranks, each.ranks)]));
  columns.forEach(({ from, index }, at) => {
    copyColumn(from, index, bytes, at * ranks.length, places.get(from));
  });
  const kept = columns.map(({ from, index }) => from.columns[index]);
  const { run_id, group, section } = added;
  const [first, last] = [kept[0].seq, kept[kept.length - 1].seq];
  return { run_id, group, section, first, last, ranks, columns: kept, bytes };
}

function isAnotherTimeline(old, added) {
  return ["run_id", "group", "section"].some((name) => old[name] !== added[name]);
}

/** Whether a seq means another window now: a known one differs, a later one has a smaller seq. */
function hasCountedAnew(old, added) {
  const [before, now] = [newestOf(old), newestOf(added)];
  if (!before || !now) return false;
  if (now.seq <= before.seq && now.at_s > before.at_s) return true;
  const known = new Map(old.columns.map((column) => [column.seq, column]));
  return added.columns.some((column) => {
    const same = known.get(column.seq);
    return same !== undefined && !isSameWindow(same, column);
  });
}

export function isSameWindow(one, other) {
  return one.seq === other.seq && one.at_s === other.at_s && one.first_step === other.first_step;
}

function newestOf(timeline) {
  return timeline.columns[timeline.columns.length - 1];
}

function unionOfRanks(one, other) {
  if (one.length === other.length && one.every((rank, i) => rank === other[i])) return one;
  return [...new Set([...one, ...other])].sort((a, b) => a - b);
}

/** Where each rank of a timeline stands among all ranks; null if they are the same. */
function placesIn(all, some) {
  if (all.length === some.length) return null;
  const place = new Map(all.map((rank, i) => [rank, i]));
  return Int32Array.from(some, (rank) => place.get(rank));
}

function newestColumns(old, added, most) {
  const bySeq = new Map();
  for (const from of [old, added]) {
    from.columns.forEach((column, index) => bySeq.set(column.seq, { from, index }));
  }
  const seqs = [...bySeq.keys()].sort((a, b) => a - b).slice(-most);
  return seqs.map((seq) => bySeq.get(seq));
}

function copyColumn(from, index, bytes, start, places) {
  const n = from.ranks.length;
  const column = from.bytes.subarray(index * n, (index + 1) * n);
  if (places === null) bytes.set(column, start);
  else for (let i = 0; i < n; i += 1) bytes[start + places[i]] = column[i];
}

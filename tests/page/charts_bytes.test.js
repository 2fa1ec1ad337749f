// Bytes of slowdowns, and timelines put together. `cases.json` comes from test_charts_maths.py.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { byteOf, decodeTimeline, mergeTimelines, slowdownOf } from "./js/bytes.js";

const cases = JSON.parse(readFileSync(new URL("cases.json", import.meta.url)));

/** A timeline of `ranks`, with a column for each seq, whose bytes are `byte(seq, rank)`. */
function timeline(ranks, seqs, byte = (seq, rank) => 100 + seq + rank, facts = {}) {
  const columns = seqs.map((seq) => ({
    seq,
    at_s: 1000 + 20 * seq,
    first_step: 20 * seq,
    last_step: 20 * seq + 19,
  }));
  const bytes = Uint8Array.from(seqs.flatMap((seq) => ranks.map((rank) => byte(seq, rank))));
  const [first, last] = [seqs[0] ?? null, seqs[seqs.length - 1] ?? null];
  return { run_id: "run", group: "", section: "", first, last, ranks, columns, bytes, ...facts };
}

const seqsOf = ({ columns }) => columns.map(({ seq }) => seq);
const column = ({ bytes, ranks }, at) => [
  ...bytes.subarray(at * ranks.length, (at + 1) * ranks.length),
];

test("a slowdown becomes the byte that the collector sends for it", () => {
  for (const [slowdown, byte] of cases.bytes) assert.equal(byteOf(slowdown), byte, `${slowdown}`);
});

test("a byte and back is the same byte, and every byte is nearer than a half step", () => {
  for (let byte = 1; byte < 256; byte += 1) assert.equal(byteOf(slowdownOf(byte)), byte);
  assert.equal(slowdownOf(128), 1);
  for (const [slowdown, byte] of cases.bytes) {
    if (byte > 1 && byte < 255)
      assert.ok(Math.abs(Math.log2(slowdownOf(byte) / slowdown)) <= 0.5 / 64 + 1e-12);
  }
});

test("no data is the byte 0 and null", () => {
  for (const nothing of [null, undefined, NaN, Infinity, 0, -1]) assert.equal(byteOf(nothing), 0);
  assert.equal(slowdownOf(0), null);
});

test("an answer of the collector is decoded", () => {
  const decoded = decodeTimeline(cases.timeline);
  assert.deepEqual([...decoded.bytes], cases.timeline_bytes);
  assert.deepEqual(decoded.columns, cases.timeline.columns);
});

test("a timeline without a byte for each cell, or of another encoding, is refused", () => {
  assert.throws(() => decodeTimeline({ ...cases.timeline, ranks: [0] }), /expected \d+/);
  assert.throws(
    () => decodeTimeline({ ...cases.timeline, encoding: "float" }),
    /expected uint8-log2/,
  );
});

test("new windows come in at the end, and nothing new is the same object", () => {
  const old = timeline([0, 1], [1, 2]);
  const merged = mergeTimelines(old, timeline([0, 1], [2, 3, 4]));
  assert.deepEqual(seqsOf(merged), [1, 2, 3, 4]);
  assert.deepEqual(column(merged, 3), [104, 105]);
  assert.deepEqual([merged.first, merged.last], [1, 4]);
  assert.equal(mergeTimelines(old, timeline([0, 1], [])), old);
  assert.equal(mergeTimelines(null, old), old);
});

test("a world that grows and shrinks keeps all ranks, each in its row", () => {
  const grown = mergeTimelines(timeline([0, 2], [1]), timeline([0, 1, 2, 3], [2]));
  assert.deepEqual(grown.ranks, [0, 1, 2, 3]);
  assert.deepEqual(column(grown, 0), [101, 0, 103, 0]);
  assert.deepEqual(column(grown, 1), [102, 103, 104, 105]);
  const shrunk = mergeTimelines(grown, timeline([3], [3]));
  assert.deepEqual(column(shrunk, 2), [0, 0, 0, 106]);
});

test("gaps stay gaps, and late and older columns go to their places", () => {
  const withGap = mergeTimelines(timeline([0], [1, 2]), timeline([0], [7]));
  assert.deepEqual(seqsOf(withGap), [1, 2, 7]);
  const filled = mergeTimelines(withGap, timeline([0], [4, 5]));
  assert.deepEqual(seqsOf(filled), [1, 2, 4, 5, 7]);
  assert.deepEqual([...filled.bytes], [101, 102, 104, 105, 107]);
  assert.deepEqual(
    seqsOf(mergeTimelines(timeline([0], [10, 11]), timeline([0], [8, 9]))),
    [8, 9, 10, 11],
  );
});

test("of a known window the newer answer counts", () => {
  const merged = mergeTimelines(
    timeline([0], [1, 2]),
    timeline([0], [2], () => 200),
  );
  assert.deepEqual([...merged.bytes], [101, 200]);
});

test("a collector that counts anew starts over: the same seq is another window", () => {
  const old = timeline([0], [5, 6, 7]);
  const anew = timeline([0], [5, 6]);
  anew.columns = anew.columns.map((each) => ({ ...each, at_s: each.at_s + 5000 }));
  assert.equal(mergeTimelines(old, anew), anew);
  const later = timeline([0], [1, 2]);
  later.columns = later.columns.map((each) => ({ ...each, at_s: each.at_s + 5000 }));
  assert.equal(mergeTimelines(old, later), later);
});

test("another run, group or section is not mixed in", () => {
  const old = timeline([0], [1]);
  for (const facts of [{ run_id: "other" }, { group: "actor" }, { section: "forward" }]) {
    const other = timeline([0], [2], undefined, facts);
    assert.equal(mergeTimelines(old, other), other);
  }
});

test("only the newest columns are kept", () => {
  const merged = mergeTimelines(timeline([0], [1, 2, 3]), timeline([0], [4, 5]), 3);
  assert.deepEqual(seqsOf(merged), [3, 4, 5]);
});

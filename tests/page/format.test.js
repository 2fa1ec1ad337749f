import assert from "node:assert/strict";
import test from "node:test";
import {
  UNKNOWN_TEXT,
  asSentence,
  formatAge,
  formatClock,
  formatCount,
  formatDuration,
  formatLostTime,
  formatNumber,
  formatPercent,
  formatSeconds,
  formatTimes,
  wordsOf,
} from "./js/format.js";

const FORMATS = [formatNumber, formatSeconds, formatDuration, formatLostTime, formatPercent, formatTimes, formatClock];

function told(format, cases) {
  for (const [value, text] of cases) assert.equal(format(value), text, `of ${value}`);
}

test("what is not known is a dash, never NaN", () => {
  for (const format of FORMATS) {
    for (const value of [null, undefined, NaN, Infinity, "7"]) assert.equal(format(value), UNKNOWN_TEXT);
  }
});

test("times within a step have three digits and the unit that fits", () => {
  told(formatSeconds, [
    [0.182, "182 ms"],
    [0.0004567, "457 µs"],
    [1.5, "1.5 s"],
    [0, "0 s"],
    [0.99999, "1 s"],
    [119, "119 s"],
    [125, "2 min 5 s"],
    [1e-8, "0.01 µs"],
  ]);
});

test("long times have two units at most, and the smaller never fills the larger", () => {
  told(formatDuration, [
    [0.42, "0.4 s"],
    [45.4, "45 s"],
    [59.7, "1 min"],
    [125, "2 min 5 s"],
    [3599.6, "1 h"],
    [11520, "3 h 12 min"],
    [86399, "1 d"],
    [187200, "2 d 4 h"],
    [-90, "−1 min 30 s"],
  ]);
});

test("ages are whole seconds, and one that was never heard is said so", () => {
  told(formatAge, [[0.2, "1 s"], [2.4, "2 s"], [3661, "1 h 1 min"], [null, "never"]]);
});

test("GPU time grows through its units", () => {
  told((seconds) => formatLostTime(seconds, true), [[0, "0 GPU-s"], [45, "45 GPU-s"], [1800, "30 GPU-min"], [3960, "1.1 GPU-h"], [33120, "9.2 GPU-h"], [115200, "32 GPU-h"], [1.2e7, "3,333 GPU-h"]]);
  told(formatLostTime, [[0, "0 rank-s"], [1800, "30 rank-min"], [3960, "1.1 rank-h"]]); // of no GPU is known
});

test("parts are percent, factors have two digits", () => {
  told(formatPercent, [[0.145, "15 %"], [0.0123, "1.2 %"], [0.00041, "0.041 %"], [1.3, "130 %"], [0, "0 %"]]);
  told(formatTimes, [[1.5, "1.50×"], [1.0049, "1.00×"], [250.4, "250×"]]);
});

test("counts agree with their nouns", () => {
  assert.equal(formatCount(1, "rank"), "1 rank");
  assert.equal(formatCount(10000, "rank"), "10,000 ranks");
});

test("a time of another day has its date", () => {
  const noon = new Date(2026, 2, 5, 12, 4, 9).getTime() / 1000;
  assert.equal(formatClock(noon, noon + 60), "12:04:09");
  assert.equal(formatClock(noon, noon + 86400), "2026-03-05 12:04:09");
});

test("codes of the wire are words, unknown ones stand as they are", () => {
  assert.equal(wordsOf("slow_gpu"), "slow GPU or host");
  assert.equal(wordsOf("collective"), "host clock, without waiting in collectives");
  assert.equal(wordsOf("partly_lost"), "partly lost");
  assert.equal(wordsOf("<b>"), "<b>");
  assert.equal(asSentence("rank 5 is slow."), "Rank 5 is slow.");
  assert.equal(asSentence(null), "");
});

// What is in sight, what is painted of it, in which order, and how it is told.

import assert from "node:assert/strict";
import { test } from "node:test";

import { byteOf } from "./js/bytes.js";
import { guttersFor } from "./js/section_heat.js";
import { aloneAmong } from "./js/lone_ranks.js";
import { byteWords, countWords, slowdownFigure, stepWords } from "./js/chart_words.js";
import {
  bytesAtPlaces,
  heatDetail,
  heatLevels,
  heatPatch,
  paintHeat,
  worstUnder,
} from "./js/heat_levels.js";
import {
  flaggedRanks,
  flaggedRowsOf,
  orderOfRanks,
  ranksByNumber,
  worstRanks,
} from "./js/rank_order.js";
import {
  canPan,
  cellAt,
  clampView,
  fitView,
  fitsOf,
  labelStep,
  panView,
  revealCell,
  showsNewest,
  slotsFor,
  visibleCells,
  zoomView,
} from "./js/viewport.js";

const BOUNDS = {
  columns: 100,
  rows: 1000,
  slots: 120,
  width: 600,
  height: 400,
  mostCellWidth: 60,
  mostCellHeight: 30,
};

test("fitted, all cells are in sight and nothing can be panned", () => {
  const view = fitView(BOUNDS);
  assert.deepEqual(visibleCells(view, BOUNDS), {
    firstRow: 0,
    endRow: 1000,
    firstColumn: 0,
    endColumn: 100,
  });
  assert.deepEqual(canPan(view, BOUNDS), { across: false, down: false });
  assert.deepEqual(panView(view, BOUNDS, 50, -50), view);
  assert.deepEqual(fitsOf(view, BOUNDS), { across: true, down: true });
});

test("no pan and no zoom leaves the grid or the sizes allowed, whatever one does", () => {
  let view = fitView(BOUNDS);
  let seed = 1;
  const random = () => (seed = (seed * 16807) % 2147483647) / 2147483647;
  for (let turn = 0; turn < 3000; turn += 1) {
    view =
      random() < 0.5
        ? panView(view, BOUNDS, (random() - 0.5) * 4000, (random() - 0.5) * 4000)
        : zoomView(
            view,
            BOUNDS,
            4 ** (random() - 0.5),
            4 ** (random() - 0.5),
            random() * 600,
            random() * 400,
          );
    const fit = fitView(BOUNDS);
    assert.ok(view.x >= 0 && view.y >= 0);
    assert.ok(view.x <= Math.max(0, BOUNDS.columns - BOUNDS.width / view.cellWidth) + 1e-9);
    assert.ok(view.y <= Math.max(0, BOUNDS.rows - BOUNDS.height / view.cellHeight) + 1e-9);
    assert.ok(view.cellWidth >= fit.cellWidth && view.cellWidth <= 60);
    assert.ok(view.cellHeight >= fit.cellHeight && view.cellHeight <= 30);
    assert.deepEqual(clampView(view, BOUNDS), view);
  }
});

test("zooming keeps the cell under the pointer there", () => {
  const before = zoomView(fitView(BOUNDS), BOUNDS, 3, 10, 300, 200);
  const [x, y] = [410, 120];
  const after = zoomView(before, BOUNDS, 1.3, 2, x, y);
  assert.ok(Math.abs(before.x + x / before.cellWidth - (after.x + x / after.cellWidth)) < 1e-9);
  assert.ok(Math.abs(before.y + y / before.cellHeight - (after.y + y / after.cellHeight)) < 1e-9);
});

test("a point is in its cell, and nowhere beside the grid", () => {
  const view = { x: 10, y: 20, cellWidth: 10, cellHeight: 5 };
  assert.deepEqual(cellAt(view, BOUNDS, 25, 11), { row: 22, column: 12 });
  assert.equal(cellAt(view, BOUNDS, -1, 5), null);
  assert.equal(cellAt(fitView(BOUNDS), BOUNDS, 599, 5), null); // room for columns to come
});

test("a cell that keys go to comes into sight", () => {
  const small = zoomView(fitView(BOUNDS), BOUNDS, 5, 20, 0, 0);
  for (const [row, col] of [
    [999, 99],
    [0, 0],
    [500, 50],
  ]) {
    const view = revealCell(small, BOUNDS, row, col);
    const { firstRow, endRow, firstColumn, endColumn } = visibleCells(view, BOUNDS);
    assert.ok(row >= firstRow && row < endRow && col >= firstColumn && col < endColumn);
    assert.ok(view.y <= row + 1e-9 && view.y + BOUNDS.height / view.cellHeight >= row + 1 - 1e-9);
  }
  assert.ok(showsNewest(revealCell(small, BOUNDS, 0, 99), BOUNDS));
});

test("the scale of time changes in steps, not with each window", () => {
  const widths = new Set(Array.from({ length: 360 }, (_, i) => slotsFor(i + 1)));
  assert.ok(widths.size <= 10);
  for (let columns = 1; columns <= 400; columns += 1) assert.ok(slotsFor(columns) >= columns);
});

test("names of sections have room: upright above wide columns, at an angle above narrow ones", () => {
  const columns = ["all", "data_loading", "gradient_sync"].map((words) => ({ words }));
  const flat = guttersFor(columns, 500, false);
  assert.equal(flat.isSlanted, false);
  const slanted = guttersFor(columns, 260, false);
  assert.equal(slanted.isSlanted, true);
  const letters = 13 * 6; // pixels of the longest
  assert.ok((slanted.top - 14) * Math.SQRT2 >= letters);
  const endless = guttersFor([{ words: "x".repeat(500) }], 260, false);
  assert.ok(endless.top < 150);
});

test("labels stand at 1, 2 or 5 of a ten, with room between", () => {
  assert.deepEqual(
    [20, 5, 1, 0.04].map((size) => labelStep(size, 14)),
    [1, 5, 20, 500],
  );
});

/** Pseudo-random bytes, none above 140 but one. */
function noisyColumns(rows, columns, hot) {
  let seed = 7;
  return Array.from({ length: columns }, (_, c) => {
    const bytes = Uint8Array.from(
      { length: rows },
      () => 100 + ((seed = (seed * 16807) % 2147483647) % 40),
    );
    if (c === hot.column) bytes[hot.row] = 201;
    return heatLevels(bytes);
  });
}

test("every level has the largest byte of the rows it stands for", () => {
  const bytes = noisyColumns(1001, 1, { row: 1000, column: 0 })[0][0];
  const levels = heatLevels(bytes);
  assert.equal(levels[levels.length - 1].length, 1);
  levels.forEach((level, k) => {
    level.forEach((byte, bin) =>
      assert.equal(byte, Math.max(...bytes.subarray(bin * 2 ** k, (bin + 1) * 2 ** k))),
    );
  });
  assert.deepEqual(heatLevels(new Uint8Array(0)).length, 1);
});

test("one slow rank of 10,000 is painted at every zoom and place that has it in sight", () => {
  const [rows, columns, hot] = [10000, 200, { row: 7777, column: 133 }];
  const levels = noisyColumns(rows, columns, hot);
  const bounds = { ...BOUNDS, rows, columns, slots: columns };
  const pixels = Uint32Array.from({ length: 256 }, (_, byte) => byte);
  for (const [zoomX, zoomY] of [
    [1, 1],
    [1, 3.7],
    [4, 1],
    [2.2, 40],
    [30, 900],
  ]) {
    for (const shift of [0, 0.3, 1.7]) {
      let view = zoomView(fitView(bounds), bounds, zoomX, zoomY, 0, 0);
      view = panView(revealCell(view, bounds, hot.row, hot.column), bounds, -shift, -shift);
      const cells = visibleCells(view, bounds);
      const detail = heatDetail(view, 1);
      const patch = heatPatch(cells, detail);
      const target = new Uint32Array(patch.groups * patch.bins);
      paintHeat(target, patch.groups, levels, detail, patch, pixels);
      assert.equal(target.filter((byte) => byte === 201).length, 1, `${zoomX} ${zoomY} ${shift}`);
      const thinnest = Math.min(view.cellHeight * detail.rows, view.cellWidth * detail.columns);
      assert.ok(thinnest >= 1, "each painted cell has a pixel of its own");
      assert.ok(
        patch.bins <= 2 * bounds.height && patch.groups <= 2 * bounds.width,
        "no more than is seen",
      );
    }
  }
});

test("panning moves painted cells and does not change what they stand for", () => {
  const bounds = { ...BOUNDS, rows: 10000 };
  const view = zoomView(fitView(bounds), bounds, 1, 4, 0, 0);
  const detail = heatDetail(view, 1);
  const moved = panView(view, bounds, 0, -37.3);
  assert.deepEqual(heatDetail(moved, 1), detail);
  assert.equal(
    heatPatch(visibleCells(moved, bounds), detail).firstBin,
    Math.floor(moved.y / detail.rows),
  );
});

test("the worst rank of a painted cell is the one that is named", () => {
  const levels = noisyColumns(1000, 20, { row: 333, column: 7 });
  const found = worstUnder(levels, 1000, { level: 5, rows: 32, columns: 4 }, 321, 5);
  assert.deepEqual(found, { row: 333, column: 7, byte: 201, ranks: 32 });
  assert.equal(worstUnder(levels, 1000, { level: 5, rows: 32, columns: 1 }, 999, 5).ranks, 8);
});

test("rows in another order take their bytes along", () => {
  assert.deepEqual([...bytesAtPlaces(Uint8Array.of(9, 8, 5, 6, 7), [2, 0, 1], 2)], [7, 5, 6]);
});

const PICTURE = {
  ranks: {
    rank: [0, 1, 2, 3],
    node: [1, 1, 0, 0],
    nodes: ["a", "b"],
    state: [0, 0, 1, 0],
    states: ["ok", "lost"],
    dp: null,
    pp: null,
  },
  verdicts: [
    { scope: "rank", rank: 1, stands: true },
    { scope: "rank", rank: 0, stands: false },
    { scope: "rank", rank: 3, stands: true, silenced: true },
  ],
  hangs: [],
  slowdowns: { overall: [1.4, 1.2, null, 0.9] },
};

test("flagged are ranks of standing verdicts, of slow hosts, of hangs, and silent ones", () => {
  const words = (picture) =>
    [...flaggedRanks(picture)].map(([rank, { why, isSure }]) => [rank, why, isSure]);
  assert.deepEqual(words(PICTURE), [
    [1, "slow", true],
    [2, "lost", true],
  ]);
  const host = { scope: "host", node: "a", stands: true, state: "suspect" };
  const others = { ...PICTURE, verdicts: [host], hangs: [{ culprits: [0] }] };
  assert.deepEqual(words(others), [
    [0, "hang", true],
    [2, "lost", true],
    [3, "suspect host", false],
  ]);
  const { flaggedRows, suspectRows } = flaggedRowsOf([3, 1, 2], flaggedRanks(others));
  assert.deepEqual([flaggedRows, [...suspectRows]], [[0, 2], [0]]);
});

test("ranks are ordered by number, by node, by what they lost, or left out if nothing is wrong", () => {
  const known = ranksByNumber(PICTURE);
  const bytes = Uint8Array.of(150, 130, 0, 170, 150, 130, 0, 170);
  const line = { ranks: [0, 1, 2, 3], columns: [{ seq: 1 }, { seq: 2 }], bytes };
  const order = (name, selected) =>
    orderOfRanks(name, line, known, flaggedRanks(PICTURE), selected);
  assert.deepEqual(order("rank"), [0, 1, 2, 3]);
  assert.deepEqual(order("node"), [2, 3, 0, 1]);
  assert.deepEqual(order("worst"), [3, 0, 1, 2]);
  assert.deepEqual(order("flagged"), [1, 2]);
  assert.deepEqual(order("flagged", 3), [1, 2, 3]);
});

test("the table has flagged ranks first, then the slowest, at most so many", () => {
  const worst = worstRanks(PICTURE, ranksByNumber(PICTURE), flaggedRanks(PICTURE), 3);
  assert.deepEqual(
    worst.map(({ rank, why }) => [rank, why]),
    [
      [1, "slow"],
      [2, "lost"],
      [0, null],
    ],
  );
  assert.deepEqual(worst[1], {
    rank: 2,
    slowdown: null,
    isLone: false,
    node: "a",
    state: "lost",
    why: "lost",
  });
});

test("who has no peers is compared with nobody", () => {
  const ranks = { role: [0, 0, 1] };
  const alone = (values) => [0, 1, 2].filter(aloneAmong(ranks, values));
  assert.deepEqual(alone([1, 1, 1]), [2]); // the only one of its role
  assert.deepEqual(alone([1, null, null]), [0]); // the only one that has the section
  assert.deepEqual(alone([1, 1.2, 0]), []); // bytes: 0 is no value
  assert.deepEqual(alone([null, 1, 1]), [1, 2]); // 0 has none itself, and leaves 1 alone
  assert.deepEqual([0, 1].filter(aloneAmong({}, [1, 1])), []); // nobody told a role
});

test("a cell is told in words", () => {
  assert.equal(byteWords(byteOf(1.49)), "1.49x its peers");
  assert.deepEqual([0, 1, 255].map(byteWords), [
    "no data",
    "0.25x its peers or less",
    "3.96x its peers or more",
  ]);
  assert.equal(stepWords({ first_step: 240, last_step: 259 }), "steps 240–259");
  assert.match(stepWords({ first_step: null, last_step: null, at_s: 0 }), /^until \d\d:\d\d:00$/);
  assert.deepEqual([1, 1.234, 4.56, 12.3, null].map(slowdownFigure), [
    "1.00",
    "1.23",
    "4.6",
    "12",
    "",
  ]);
  assert.deepEqual([0, 999, 1000, 1234567].map(countWords), ["0", "999", "1,000", "1,234,567"]);
});

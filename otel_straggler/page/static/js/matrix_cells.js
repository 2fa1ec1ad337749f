// Which worker stands where in the matrix, and which of them are hot.

import { byteOf } from "./bytes.js";
import { heatLevels } from "./heat_levels.js";
import { factsOfRanks } from "./rank_order.js";

/**
 * What counts as hot: so much slower (less if the pattern says that there is something hot), and half
 * as far from even as the hottest.
 */
const LEAST_HOT_EXCESS = { named: 0.03, otherwise: 0.05 };
const MOST_HOT = 100;
/** More workers than these in the only row are wrapped into a grid. */
const LONGEST_ROW = 16;

/** Cells, their levels and which of them are hot. Cost: all cells. */
export function cellsOfPicture(picture) {
  const cells = placedCells(picture);
  const levels = [];
  for (let column = 0; column < cells.columns; column += 1) {
    const bytes = new Uint8Array(cells.rows);
    for (let row = 0; row < cells.rows; row += 1)
      bytes[row] = byteOf(cells.at(row, column)?.slowdown);
    levels.push(heatLevels(bytes));
  }
  return { ...cells, levels, hot: hotCells(cells, picture.heat.pattern) };
}

/**
 * `{rows, columns, count, rowName, columnName, corner, isRanks, silent, placeOfRank, at}`.
 * A place is row * columns + column. `at` gives `{stage, data, slowdown, rank, ranks}`, `rank` the slowest of
 * the ranks (tensor and other dimensions) that share a cell.
 */
function placedCells(picture) {
  const { cells, silent } = picture.heat;
  const shape = shapeOf(picture);
  const found = new Map();
  const put = (stage, data, slowdown) => {
    const place = shape.placeOf(stage, data);
    if (!found.has(place)) found.set(place, { stage, data, slowdown, ranks: [] });
  };
  for (const [stage, data, slowdown] of cells) put(stage, data, slowdown);
  for (const [stage, data] of silent) put(stage, data, null);
  return {
    ...shape,
    base: picture.heat.base,
    placeOfRank: giveRanks(picture, found, shape),
    silent: new Set(silent.map(([stage, data]) => shape.placeOf(stage, data))),
    known: factsOfRanks(picture).known,
    at: (row, column) => found.get(row * shape.columns + column),
  };
}

/** A row for each stage; the one row of a run without stages is wrapped if it is long. */
function shapeOf(picture) {
  const { stages, data_ranks: dataRanks } = picture.heat;
  const [rowOf, columnOf] = [placesOf(stages), placesOf(dataRanks)];
  const isRanks = picture.heat.by_rank ?? (!picture.ranks.dp && !picture.ranks.pp);
  if (stages.length > 1 || dataRanks.length <= LONGEST_ROW) {
    return {
      rows: dataRanks.length ? stages.length : 0,
      columns: dataRanks.length,
      count: stages.length * dataRanks.length,
      isRanks,
      rowName: (row) => (isRanks ? "ranks" : `stage ${stages[row]}`),
      columnName: (column) => String(dataRanks[column]),
      corner: isRanks ? "rank" : "data rank",
      placeOf: (stage, data) => rowOf.get(stage) * dataRanks.length + columnOf.get(data),
    };
  }
  return wrappedShape(picture, dataRanks, columnOf, isRanks);
}

/** One row, wrapped where nodes end if they are all of one size. */
function wrappedShape(picture, dataRanks, columnOf, isRanks) {
  const perNode = isRanks ? ranksPerNode(picture.ranks) : 0;
  const columns = wrapWidth(dataRanks.length, perNode || 8);
  const { known } = factsOfRanks(picture);
  const nameOf = (row) => {
    const first = dataRanks[row * columns];
    return columns === perNode
      ? (known.get(first)?.node ?? `rank ${first}`)
      : `${isRanks ? "rank" : "data"} ${first}`;
  };
  return {
    rows: Math.ceil(dataRanks.length / columns),
    columns,
    count: dataRanks.length,
    isRanks,
    rowName: nameOf,
    columnName: (column) => `+${column}`,
    corner: isRanks ? "rank" : "data rank",
    placeOf: (_, data) => columnOf.get(data),
  };
}

function placesOf(values) {
  return new Map(values.map((value, place) => [value, place]));
}

/** Tells each cell its ranks and the slowest of them; the answer is the place of each rank. */
function giveRanks(picture, found, { isRanks, placeOf }) {
  const { rank: ranks, pp } = picture.ranks;
  const dp = picture.ranks.dp ?? picture.heat.data_of_rank;
  const overall = picture.slowdowns?.overall ?? [];
  const placeOfRank = new Map();
  ranks.forEach((rank, i) => {
    const place = isRanks ? placeOf(0, rank) : placeOf(pp?.[i] ?? 0, dp?.[i] ?? 0);
    const cell = found.get(place);
    if (!cell) return;
    placeOfRank.set(rank, place);
    cell.ranks.push(rank);
    const slowdown = overall[i] ?? 0;
    if (cell.rank === undefined || slowdown > cell.worst)
      Object.assign(cell, { rank, worst: slowdown });
  });
  return placeOfRank;
}

/** Ranks of each node if there are as many on all (the last may have fewer), else 0. */
function ranksPerNode({ node }) {
  const counts = new Map();
  for (const index of node ?? []) counts.set(index, (counts.get(index) ?? 0) + 1);
  const sizes = [...counts.values()];
  return sizes.length > 1 && sizes.slice(0, -1).every((size) => size === sizes[0]) ? sizes[0] : 0;
}

/** A multiple of the ranks of a node, so that the grid is about half as high as it is wide. */
function wrapWidth(count, perNode) {
  if (count <= perNode * 12) return perNode;
  return perNode * Math.max(1, Math.round(Math.sqrt(count * 2.5) / perNode));
}

/** "stage,data;stage,data" of the hot cells, the hottest first, at most 100; "" if all are even. */
function hotCells(cells, pattern) {
  if (pattern === "even") return "";
  const found = [];
  for (let row = 0; row < cells.rows; row += 1) {
    for (let column = 0; column < cells.columns; column += 1) {
      const cell = cells.at(row, column);
      if (cell?.slowdown) found.push(cell);
    }
  }
  const hottest = found.reduce((most, { slowdown }) => Math.max(most, slowdown), 1);
  const excess = LEAST_HOT_EXCESS[pattern.startsWith("hot_") ? "named" : "otherwise"];
  const least = 1 + Math.max(excess, (hottest - 1) / 2);
  const hot = found
    .filter(({ slowdown }) => slowdown >= least)
    .sort((a, b) => b.slowdown - a.slowdown);
  return hot
    .slice(0, MOST_HOT)
    .map(({ stage, data }) => `${stage},${data}`)
    .join(";");
}

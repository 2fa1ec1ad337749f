// Draws what a heat view shows. A scene is `{context, grid, view, bounds, layout, palette, pixels,
// styles, ratio, patterns, scratch, names, hover, focus, isFocused}`; all lengths are CSS pixels.

import { slowdownOf } from "./bytes.js";
import { slowdownFigure } from "./chart_words.js";
import { drawColumnLabels, drawFlags, drawRowLabels } from "./heat_labels.js";
import { heatDetail, heatPatch, paintHeat } from "./heat_levels.js";
import { visibleCells } from "./viewport.js";

/** Cells at least so large, and so few, are drawn one by one with round corners. */
const SMALLEST_TILE = 13;
const MOST_TILES = 700;
const MAX_FRAMES = 24;
const MIN_FRAME_PX = 7;
const FIGURE_ROOM = { width: 34, height: 15 };

/** One frame. Cost: the pixels of the plot, whatever the size of the grid. */
export function drawHeat(scene) {
  const { context, bounds, layout, palette, ratio } = scene;
  const cells = visibleCells(scene.view, bounds);
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(
    0,
    0,
    layout.left + bounds.width + layout.right,
    layout.top + bounds.height + layout.bottom,
  );
  context.font = `11px ${palette.font}`;
  drawRowLabels(scene, cells);
  drawColumnLabels(scene, cells);
  drawFlags(scene, cells);
  context.save();
  context.beginPath();
  context.rect(layout.left, layout.top, bounds.width, bounds.height);
  context.clip();
  context.translate(layout.left, layout.top);
  drawCells(scene, cells);
  drawNothing(scene);
  drawHatched(scene, cells);
  drawBreaks(scene, cells);
  drawFlaggedRows(scene, cells);
  drawMarkedRow(scene);
  context.restore();
  drawCursor(scene);
}

function drawCells(scene, cells) {
  const { view, ratio } = scene;
  const count = (cells.endRow - cells.firstRow) * (cells.endColumn - cells.firstColumn);
  if (count <= 0) return;
  if (Math.min(view.cellWidth, view.cellHeight) >= SMALLEST_TILE && count <= MOST_TILES) {
    drawTiles(scene, cells);
  } else {
    drawBitmap(scene, cells, heatDetail(view, ratio));
    drawGaps(scene, cells);
  }
  if (view.cellWidth >= FIGURE_ROOM.width && view.cellHeight >= FIGURE_ROOM.height)
    drawFigures(scene, cells);
}

function drawBitmap(scene, cells, detail) {
  const { context, grid, view, bounds, patterns, pixels, scratch } = scene;
  const patch = heatPatch(cells, detail);
  const bitmap = scratch.bitmapFor(patch.groups, patch.bins);
  paintHeat(bitmap.target, bitmap.stride, grid.levels, detail, patch, pixels);
  bitmap.context.putImageData(bitmap.image, 0, 0, 0, 0, patch.groups, patch.bins);
  const left = (patch.firstGroup * detail.columns - view.x) * view.cellWidth;
  const top = (patch.firstBin * detail.rows - view.y) * view.cellHeight;
  context.save();
  context.beginPath();
  context.rect(
    -view.x * view.cellWidth,
    -view.y * view.cellHeight,
    bounds.columns * view.cellWidth,
    bounds.rows * view.cellHeight,
  );
  context.clip();
  context.fillStyle = patterns.empty;
  context.fillRect(0, 0, bounds.width, bounds.height);
  context.imageSmoothingEnabled = false;
  context.drawImage(
    bitmap.canvas,
    0,
    0,
    patch.groups,
    patch.bins,
    left,
    top,
    patch.groups * detail.columns * view.cellWidth,
    patch.bins * detail.rows * view.cellHeight,
  );
  context.restore();
}

/** Lines between cells that are large enough to be told apart. */
function drawGaps({ context, view, palette, ratio }, cells) {
  const [thin, snap] = [1 / ratio, (at) => Math.round(at * ratio) / ratio];
  const at = (index, start, size) => snap((index - start) * size);
  const [left, right] = [
    at(cells.firstColumn, view.x, view.cellWidth),
    at(cells.endColumn, view.x, view.cellWidth),
  ];
  const [top, bottom] = [
    at(cells.firstRow, view.y, view.cellHeight),
    at(cells.endRow, view.y, view.cellHeight),
  ];
  context.fillStyle = palette.surface;
  if (view.cellHeight >= 5) {
    const gap = view.cellHeight >= 12 ? 2 : Math.max(thin, 1);
    for (let row = cells.firstRow + 1; row < cells.endRow; row += 1) {
      context.fillRect(left, at(row, view.y, view.cellHeight) - gap / 2, right - left, gap);
    }
  }
  if (view.cellWidth < 8) return;
  for (let column = cells.firstColumn + 1; column < cells.endColumn; column += 1) {
    context.fillRect(at(column, view.x, view.cellWidth) - 0.5, top, 1, bottom - top);
  }
}

/** Covers the places of the last row that are no cells. */
function drawNothing({ context, grid, view, palette }) {
  if (grid.cells === null || grid.cells === grid.rows * grid.columns) return;
  const [row, column] = [Math.floor(grid.cells / grid.columns), grid.cells % grid.columns];
  const x = (column - view.x) * view.cellWidth;
  context.fillStyle = palette.surface;
  context.fillRect(
    x,
    (row - view.y) * view.cellHeight,
    (grid.columns - column) * view.cellWidth + 1,
    view.cellHeight + 1,
  );
}

function eachCell({ grid, view }, cells, visit) {
  for (let column = cells.firstColumn; column < cells.endColumn; column += 1) {
    const bytes = grid.levels[column]?.[0];
    const x = (column - view.x) * view.cellWidth;
    for (let row = cells.firstRow; row < cells.endRow; row += 1) {
      visit(x, (row - view.y) * view.cellHeight, bytes ? bytes[row] : 0, row, column);
    }
  }
}

function drawTiles(scene, cells) {
  const { context, view, styles, patterns } = scene;
  const radius = Math.min(4, view.cellWidth / 5, view.cellHeight / 5);
  eachCell(scene, cells, (x, y, byte) => {
    context.fillStyle = byte ? styles[byte].fill : patterns.empty;
    context.beginPath();
    context.roundRect(x + 1, y + 1, view.cellWidth - 2, view.cellHeight - 2, radius);
    context.fill();
  });
}

function drawFigures(scene, cells) {
  const { context, grid, view, palette, styles } = scene;
  context.textAlign = "center";
  context.textBaseline = "middle";
  context.font = `${view.cellHeight >= 26 && view.cellWidth >= 48 ? 12.5 : 11}px ${palette.font}`;
  eachCell(scene, cells, (x, y, byte, row, column) => {
    if (!byte || grid.hatched.has(row * grid.columns + column)) return;
    context.fillStyle = styles[byte].ink;
    const slowdown = grid.exactAt ? grid.exactAt(row, column) : slowdownOf(byte);
    context.fillText(
      slowdownFigure(slowdown),
      x + view.cellWidth / 2,
      y + view.cellHeight / 2 + 0.5,
    );
  });
  context.font = `11px ${palette.font}`;
}

/** Silent cells: hatched, with a border; at least three pixels, so that none is lost. */
function drawHatched({ context, grid, view, palette, patterns }, cells) {
  if (grid.hatched.size === 0) return;
  const inset = Math.min(view.cellWidth, view.cellHeight) >= SMALLEST_TILE ? 1 : 0;
  for (const place of grid.hatched) {
    const [row, column] = [Math.floor(place / grid.columns), place % grid.columns];
    const isSeen =
      row >= cells.firstRow &&
      row < cells.endRow &&
      column >= cells.firstColumn &&
      column < cells.endColumn;
    if (!isSeen) continue;
    const x = (column - view.x) * view.cellWidth + inset;
    const y = (row - view.y) * view.cellHeight + inset;
    const width = Math.max(3, view.cellWidth - 2 * inset);
    const height = Math.max(3, view.cellHeight - 2 * inset);
    context.fillStyle = palette.surface;
    context.fillRect(x, y, width, height);
    context.fillStyle = patterns.silent;
    context.fillRect(x, y, width, height);
    context.strokeStyle = palette.flag;
    context.lineWidth = 1;
    context.strokeRect(x + 0.5, y + 0.5, width - 1, height - 1);
  }
}

/** Where a new node begins (rows), and where windows are missing (columns). */
function drawBreaks({ context, grid, view, bounds, palette }, cells) {
  context.fillStyle = palette.quiet;
  for (const row of grid.rowBreaks) {
    if (view.cellHeight < 3 || row <= cells.firstRow || row >= cells.endRow) continue;
    context.fillRect(
      0,
      Math.round((row - view.y) * view.cellHeight) - 0.5,
      Math.min(bounds.width, (bounds.columns - view.x) * view.cellWidth),
      1,
    );
  }
  for (const column of grid.columnBreaks) {
    if (column <= cells.firstColumn || column >= cells.endColumn) continue;
    const x = Math.round((column - view.x) * view.cellWidth);
    for (let y = 0; y < Math.min(bounds.height, bounds.rows * view.cellHeight); y += 6)
      context.fillRect(x - 1, y, 2, 3);
  }
}

/** A frame around the chosen row, outside of it: its colours are what one wants to see. */
function drawMarkedRow({ context, grid, view, bounds, palette }) {
  if (grid.selectedRow === null) return;
  const y = (grid.selectedRow - view.y) * view.cellHeight;
  if (y > bounds.height || y + view.cellHeight < 0) return;
  context.strokeStyle = palette.accent;
  context.lineWidth = 1.5;
  const width = Math.min(bounds.width, (bounds.columns - view.x) * view.cellWidth);
  context.strokeRect(0.75, y - 0.75, width - 1.5, view.cellHeight + 1.5);
}

/** Frames around flagged rows (dashed: only suspected) and cells; so many that they stay frames. */
function drawFlaggedRows({ context, grid, view, bounds, palette }, cells) {
  const seen = grid.flaggedRows.filter((row) => row >= cells.firstRow && row < cells.endRow);
  if (seen.length + grid.flaggedCells.size > MAX_FRAMES) return;
  const width = Math.min(bounds.width, (bounds.columns - view.x) * view.cellWidth);
  const frame = (row, x, across, isDashed) => {
    const high = Math.max(MIN_FRAME_PX, view.cellHeight);
    const y = (row + 0.5 - view.y) * view.cellHeight - high / 2;
    context.setLineDash(isDashed ? [4, 3] : []);
    context.strokeRect(x + 1, y + 1, across - 2, high - 2);
  };
  context.save();
  context.strokeStyle = palette.flag;
  context.lineWidth = 2;
  for (const row of seen) frame(row, 0, width, grid.suspectRows.has(row));
  for (const [place, isSure] of grid.flaggedCells) {
    const [row, column] = [Math.floor(place / grid.columns), place % grid.columns];
    const across = Math.max(MIN_FRAME_PX, view.cellWidth);
    frame(row, (column + 0.5 - view.x) * view.cellWidth - across / 2, across, !isSure);
  }
  context.restore();
}

/** The chosen cell, the one under the pointer, and the one that the keys stand on. */
function drawCursor({ context, grid, view, layout, palette, hover, focus, isFocused }) {
  const outline = (cell, colour, width) => {
    const [across, down] = [Math.max(5, view.cellWidth), Math.max(5, view.cellHeight)];
    const x = layout.left + (cell.column + 0.5 - view.x) * view.cellWidth - across / 2;
    const y = layout.top + (cell.row + 0.5 - view.y) * view.cellHeight - down / 2;
    context.strokeStyle = colour;
    context.lineWidth = width;
    context.strokeRect(x, y, across, down);
  };
  if (grid.markedCell !== null) {
    outline(
      { row: Math.floor(grid.markedCell / grid.columns), column: grid.markedCell % grid.columns },
      palette.accent,
      2.5,
    );
  }
  if (hover) outline(hover, palette.ink, 1.5);
  if (!focus || !isFocused) return;
  outline(focus, palette.surface, 5);
  outline(focus, palette.accent, 2.5);
}

// What part of a grid of cells a canvas shows: pure maths of panning and zooming.
//
// A view is `{x, y, cellWidth, cellHeight}`: the cell (with its fraction) at the upper left corner,
// and the size of a cell in CSS pixels. Its bounds are `{columns, rows, width, height, slots,
// mostCellWidth, mostCellHeight}`: the grid, the plot in CSS pixels, the number of columns that
// have to fit (at least `columns`; there may be room for more), and the largest cells.

/** Numbers of columns for which there is room: the scale changes at these, not with each window. */
const SLOTS = [12, 18, 27, 40, 60, 90, 120, 180, 240, 360];

/** Room for so many columns, so that new ones come in without squeezing the others each time. */
export function slotsFor(columns) {
  return SLOTS.find((slots) => slots >= columns) ?? columns;
}

/** The view in which all of the grid is seen. */
export function fitView(bounds) {
  return { x: 0, y: 0, ...fittingCell(bounds) };
}

function fittingCell(bounds) {
  const { width, height, rows, slots, mostCellWidth, mostCellHeight } = bounds;
  return {
    cellWidth: Math.min(mostCellWidth, width / Math.max(1, slots)),
    cellHeight: Math.min(mostCellHeight, height / Math.max(1, rows)),
  };
}

/** The nearest view that shows no more than there is, with cells not too small nor too large. */
export function clampView(view, bounds) {
  const fitting = fittingCell(bounds);
  const cellWidth = clampNumber(view.cellWidth, fitting.cellWidth, bounds.mostCellWidth);
  const cellHeight = clampNumber(view.cellHeight, fitting.cellHeight, bounds.mostCellHeight);
  return {
    x: clampNumber(view.x, 0, lastStart(bounds.columns, bounds.width / cellWidth)),
    y: clampNumber(view.y, 0, lastStart(bounds.rows, bounds.height / cellHeight)),
    cellWidth,
    cellHeight,
  };
}

/** The first cell when the last one is at the far edge; 0 if all fit (but for rounding). */
function lastStart(cells, visible) {
  const start = cells - visible;
  return start > 1e-6 ? start : 0;
}

export function clampNumber(value, least, most) {
  return Math.max(least, Math.min(Math.max(least, most), Number.isFinite(value) ? value : least));
}

/** The grid moved by so many CSS pixels, as a hand would move it (right: older columns come in). */
export function panView(view, bounds, byX, byY) {
  const x = view.x - byX / view.cellWidth;
  const y = view.y - byY / view.cellHeight;
  return clampView({ ...view, x, y }, bounds);
}

/** Cells larger by these factors; what lies under (atX, atY), in CSS pixels of the plot, stays. */
export function zoomView(view, bounds, factorX, factorY, atX, atY) {
  const sized = clampView(
    { ...view, cellWidth: view.cellWidth * factorX, cellHeight: view.cellHeight * factorY },
    bounds,
  );
  const x = view.x + atX / view.cellWidth - atX / sized.cellWidth;
  const y = view.y + atY / view.cellHeight - atY / sized.cellHeight;
  return clampView({ ...sized, x, y }, bounds);
}

/** `{row, column}` under a point of the plot; null beside the grid. */
export function cellAt(view, bounds, atX, atY) {
  const column = Math.floor(view.x + atX / view.cellWidth);
  const row = Math.floor(view.y + atY / view.cellHeight);
  const isInside =
    atX >= 0 &&
    atY >= 0 &&
    atX < bounds.width &&
    atY < bounds.height &&
    column >= 0 &&
    row >= 0 &&
    column < bounds.columns &&
    row < bounds.rows;
  return isInside ? { row, column } : null;
}

/** The view moved as little as needed to show a whole cell. */
export function revealCell(view, bounds, row, column) {
  const across = bounds.width / view.cellWidth;
  const down = bounds.height / view.cellHeight;
  const x = clampNumber(view.x, column + 1 - across, column);
  const y = clampNumber(view.y, row + 1 - down, row);
  return clampView({ ...view, x, y }, bounds);
}

/** The part that is seen, half open: `{firstRow, endRow, firstColumn, endColumn}`. */
export function visibleCells(view, bounds) {
  const end = (start, size, cell, most) => Math.min(most, Math.ceil(start + size / cell - 1e-6));
  return {
    firstRow: Math.max(0, Math.floor(view.y + 1e-6)),
    endRow: end(view.y, bounds.height, view.cellHeight, bounds.rows),
    firstColumn: Math.max(0, Math.floor(view.x + 1e-6)),
    endColumn: end(view.x, bounds.width, view.cellWidth, bounds.columns),
  };
}

/** Whether cells are as small as they get, across and down. */
export function fitsOf(view, bounds) {
  const fitting = fittingCell(bounds);
  return {
    across: view.cellWidth <= fitting.cellWidth * 1.001,
    down: view.cellHeight <= fitting.cellHeight * 1.001,
  };
}

/** Whether there is more to the left, right, top or bottom than is seen. */
export function canPan(view, bounds) {
  return {
    across: bounds.columns * view.cellWidth > bounds.width + 0.5,
    down: bounds.rows * view.cellHeight > bounds.height + 0.5,
  };
}

/** Whether the newest column is in sight. */
export function showsNewest(view, bounds) {
  return view.x + bounds.width / view.cellWidth >= bounds.columns - 0.01;
}

/** How many of 1, 2, 5, 10, 20, ... cells apart labels stand to have `least` pixels each. */
export function labelStep(cellSize, least) {
  let step = 1;
  for (let i = 0; step * cellSize < least; i += 1)
    step = [1, 2, 5][i % 3] * 10 ** Math.floor(i / 3);
  return step;
}

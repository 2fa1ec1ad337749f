// What stands beside the plot of a heat view: names of rows and columns, marks of flagged rows.
// A scene is that of heat_draw.js.

import { labelStep } from "./viewport.js";

const HALF_FIGURE = 3.2; // pixels
const MOST_FLAGS_NAMED = 24;

/** A name with its beginning (or its end) left out if there is no room for it. */
function shortName({ context, names }, name, room, keepsEnd = false) {
  const key = `${room}|${name}`;
  if (!names.has(key)) names.set(key, shortened(context, name, room, keepsEnd));
  return names.get(key);
}

function shortened(context, name, room, keepsEnd) {
  let kept = name;
  const whole = () => (kept === name ? name : keepsEnd ? `…${kept}` : `${kept}…`);
  while (kept.length > 1 && context.measureText(whole()).width > room) {
    kept = keepsEnd ? kept.slice(1) : kept.slice(0, -1);
  }
  return whole();
}

/** The middle of a row, so far inside the plot that what stands beside it is seen. */
function middleOfRow({ view, bounds, layout }, row) {
  const y = (row + 0.5 - view.y) * view.cellHeight;
  return layout.top + Math.max(5, Math.min(bounds.height - 5, y));
}

export function drawRowLabels(scene, cells) {
  const { context, grid, view, layout, palette } = scene;
  const step = labelStep(view.cellHeight, 14);
  context.textAlign = "right";
  context.textBaseline = "middle";
  const write = (row, colour) => {
    const y = middleOfRow(scene, row);
    context.fillStyle = colour;
    context.fillText(
      shortName(scene, grid.rowName(row), layout.left - 15, true),
      layout.left - 13,
      y,
    );
    return y;
  };
  const taken = [];
  const writeIfFree = (row, colour) => {
    if (row === null || row < cells.firstRow || row >= cells.endRow) return;
    const y = middleOfRow(scene, row);
    if (taken.every((other) => Math.abs(y - other) >= 12)) taken.push(write(row, colour));
  };
  writeIfFree(grid.selectedRow, palette.accent);
  for (const row of grid.flaggedRows) {
    if (taken.length < MOST_FLAGS_NAMED) writeIfFree(row, palette.flag);
  }
  for (let row = Math.ceil(cells.firstRow / step) * step; row < cells.endRow; row += step) {
    writeIfFree(row, palette.quiet);
  }
}

export function drawColumnLabels(scene, cells) {
  const { context, grid, view, bounds, layout, palette } = scene;
  context.fillStyle = palette.quiet;
  if (grid.hasNamesOnTop) return drawNamesOnTop(scene, cells);
  const isTop = layout.top > layout.bottom;
  const step = labelStep(view.cellWidth, grid.columnLabelRoom);
  const y = isTop
    ? layout.top - 9
    : layout.top + Math.min(bounds.height, bounds.rows * view.cellHeight) + 12;
  context.textAlign = "center";
  context.textBaseline = "middle";
  for (
    let column = Math.ceil(cells.firstColumn / step) * step;
    column < cells.endColumn;
    column += step
  ) {
    const x = (column + 0.5 - view.x) * view.cellWidth;
    if (x < 0 || x > bounds.width) continue;
    const [name, half] = [grid.columnName(column), grid.columnName(column).length * HALF_FIGURE];
    context.fillText(
      name,
      layout.left + Math.max(half - 8, Math.min(bounds.width + layout.right - half, x)),
      y,
    );
  }
  context.textAlign = "right";
  context.fillText(grid.corner, layout.left - 13, y);
}

/** Names over sections; at an angle if columns are narrow. */
function drawNamesOnTop(scene, cells) {
  const { context, grid, view, layout, palette } = scene;
  const { isSlanted } = layout;
  const step = Math.max(1, Math.ceil(13 / view.cellWidth));
  const room = isSlanted ? (layout.top - 14) * Math.SQRT2 : view.cellWidth - 4;
  context.textBaseline = isSlanted ? "middle" : "alphabetic";
  context.textAlign = isSlanted ? "left" : "center";
  for (let column = cells.firstColumn; column < cells.endColumn; column += step) {
    context.save();
    context.translate(layout.left + (column + 0.5 - view.x) * view.cellWidth, layout.top - 8);
    if (isSlanted) context.rotate(-Math.PI / 4);
    context.fillStyle = column === grid.selectedColumn ? palette.accent : palette.quiet;
    const kind = isSlanted ? "" : grid.columnKind(column);
    context.fillText(shortName(scene, grid.columnName(column), room), 0, kind ? -13 : 0);
    context.fillStyle = palette.quiet;
    if (kind) context.fillText(shortName(scene, kind, room), 0, 0);
    context.restore();
  }
}

/** Triangles at the left edge for flagged rows (hollow: only suspected), one per pixel at most. */
export function drawFlags(scene, cells) {
  const { context, grid, layout, palette } = scene;
  context.fillStyle = palette.flag;
  context.strokeStyle = palette.flag;
  context.lineWidth = 1;
  let above = -10;
  for (const row of grid.flaggedRows) {
    if (row < cells.firstRow || row >= cells.endRow) continue;
    const y = middleOfRow(scene, row);
    if (y - above < 1) continue;
    above = y;
    context.beginPath();
    context.moveTo(layout.left - 2, y);
    context.lineTo(layout.left - 10, y - 4.5);
    context.lineTo(layout.left - 10, y + 4.5);
    context.closePath();
    if (grid.suspectRows.has(row)) context.stroke();
    else context.fill();
  }
}

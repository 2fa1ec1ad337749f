// Many cells in few pixels: levels, each with the largest of two rows of the level below, so that
// a slow rank is seen at any zoom. Reading them costs what is on the screen, not what there is.

/** Nobody sees a line thinner than this, in device pixels. */
const THINNEST_BIN = 2;

/** The levels of one column: its bytes, then ever fewer, down to one. Cost: twice the bytes. */
export function heatLevels(bytes) {
  const levels = [bytes];
  while (levels[levels.length - 1].length > 1)
    levels.push(halvedByLargest(levels[levels.length - 1]));
  return levels;
}

function halvedByLargest(bytes) {
  const half = new Uint8Array((bytes.length + 1) >> 1);
  for (let i = 0, at = 0; i < half.length; i += 1, at += 2) {
    const one = bytes[at];
    const other = at + 1 < bytes.length ? bytes[at + 1] : 0;
    half[i] = other > one ? other : one;
  }
  return half;
}

/** The bytes of some places, in their order; `start` is where place 0 lies. */
export function bytesAtPlaces(bytes, places, start = 0) {
  const found = new Uint8Array(places.length);
  for (let i = 0; i < found.length; i += 1) found[i] = bytes[start + places[i]];
  return found;
}

/** `{level, rows, columns}`: how many rows (2 ** level) and columns one painted cell stands for. */
export function heatDetail(view, pixelRatio) {
  const [across, down] = [view.cellWidth * pixelRatio, view.cellHeight * pixelRatio];
  const level = down >= 1 ? 0 : Math.ceil(Math.log2(THINNEST_BIN / down));
  return { level, rows: 2 ** level, columns: across >= 1 ? 1 : Math.ceil(THINNEST_BIN / across) };
}

/**
 * The painted cells that are in sight: first and number of bins (down) and groups (across).
 * They begin at multiples of the detail, so that panning moves them and does not change them.
 */
export function heatPatch(cells, detail) {
  const firstBin = Math.floor(cells.firstRow / detail.rows);
  const firstGroup = Math.floor(cells.firstColumn / detail.columns);
  return {
    firstBin,
    bins: Math.max(0, Math.ceil(cells.endRow / detail.rows) - firstBin),
    firstGroup,
    groups: Math.max(0, Math.ceil(cells.endColumn / detail.columns) - firstGroup),
  };
}

/**
 * Pixels of a patch into `target`, which has `stride` of them in a row.
 * `columns[i]` are the levels of column i, or null where nothing is known.
 */
export function paintHeat(target, stride, columns, detail, patch, pixels) {
  const { firstBin, bins, firstGroup, groups } = patch;
  const largest = new Uint8Array(bins);
  for (let group = 0; group < groups; group += 1) {
    const start = (firstGroup + group) * detail.columns;
    largestOfColumns(largest, columns, start, start + detail.columns, detail.level, firstBin);
    for (let bin = 0, at = group; bin < bins; bin += 1, at += stride)
      target[at] = pixels[largest[bin]];
  }
}

function largestOfColumns(largest, columns, start, end, level, firstBin) {
  largest.fill(0);
  for (let column = start; column < Math.min(end, columns.length); column += 1) {
    const levels = columns[column];
    if (!levels) continue;
    const bytes = levels[Math.min(level, levels.length - 1)];
    for (let bin = 0; bin < largest.length; bin += 1) {
      const byte = bytes[firstBin + bin];
      if (byte > largest[bin]) largest[bin] = byte;
    }
  }
}

/** The worst cell of the painted one with (row, column) in it, and how many rows that stands for. */
export function worstUnder(columns, rows, detail, row, column) {
  const firstRow = row - (row % detail.rows);
  const firstColumn = column - (column % detail.columns);
  const endRow = Math.min(rows, firstRow + detail.rows);
  const found = { row, column, byte: columns[column]?.[0][row] ?? 0, ranks: endRow - firstRow };
  for (let c = firstColumn; c < Math.min(columns.length, firstColumn + detail.columns); c += 1) {
    const bytes = columns[c]?.[0];
    for (let r = firstRow; bytes && r < endRow; r += 1) {
      if (bytes[r] > found.byte) Object.assign(found, { row: r, column: c, byte: bytes[r] });
    }
  }
  return found;
}

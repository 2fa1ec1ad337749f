// A small line of slowdowns over windows; the neutral 1.0 is a thin line through it.

import { el } from "./dom.js";
import { formatTimes, isKnown } from "./format.js";

const SPARK_WIDTH = 160;
const SPARK_HEIGHT = 34;

/** SVG of values over windows; null is a gap. */
export function sparklineTree(values, label) {
  const known = values.filter(isKnown);
  if (known.length === 0) return el("span", { class: "muted" }, "no past");
  const low = Math.min(0.9, ...known);
  const high = Math.max(1.2, ...known);
  const x = (place) => (values.length < 2 ? SPARK_WIDTH : (place / (values.length - 1)) * SPARK_WIDTH);
  const y = (value) => 2 + (1 - (value - low) / (high - low)) * (SPARK_HEIGHT - 4);
  const last = known[known.length - 1];
  return el(
    "svg",
    {
      class: "spark",
      viewBox: `0 0 ${SPARK_WIDTH} ${SPARK_HEIGHT}`,
      preserveAspectRatio: "none",
      role: "img",
      "aria-label": `${label}: from ${formatTimes(known[0])} to ${formatTimes(last)}, at most ${formatTimes(Math.max(...known))}`,
    },
    el("line", { class: "spark-one", x1: 0, x2: SPARK_WIDTH, y1: y(1).toFixed(1), y2: y(1).toFixed(1) }),
    el("path", { class: "spark-line", d: pathOfValues(values, x, y) }),
  );
}

/** The path of a line with gaps; a value alone between gaps is a dot. */
export function pathOfValues(values, x, y) {
  const parts = [];
  let isDown = false;
  values.forEach((value, place) => {
    if (isKnown(value)) {
      const point = `${x(place).toFixed(1)} ${y(value).toFixed(1)}`;
      parts.push(isDown ? `L${point}` : `M${point}h0.01`);
    }
    isDown = isKnown(value);
  });
  return parts.join("");
}

// Lists of which the first few are shown until somebody wants all.

import { el, patch } from "./dom.js";
import { formatNumber } from "./format.js";

/** A part that draws `treeOf(picture, isLong, more)`; `more` shows all, or the first few again. */
export function createFolding(container, treeOf) {
  let isLong = false;
  let last = null;
  const draw = () => {
    const more = () => {
      isLong = !isLong;
      draw();
    };
    patch(container, last ? treeOf(last, isLong, more) : null);
  };
  return {
    update(picture) {
      last = picture;
      draw();
    },
  };
}

/** The button below such a list; null where `count` is no more than the first `few`. */
export function moreTree(count, few, isLong, more) {
  if (count <= few) return null;
  return el(
    "button",
    { type: "button", class: "quiet", key: "more", "aria-expanded": String(isLong), onclick: more },
    isLong ? "Show fewer" : `Show all ${formatNumber(count)}`,
  );
}

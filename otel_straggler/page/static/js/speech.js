// Words for who listens to the page, said once. There is one place for them in the document, which
// screen readers watch.

import { printableText } from "./dom.js";

/** Has a screen reader say this as soon as it is silent; nothing is seen. */
export function sayAloud(text) {
  const place = document.querySelector("[data-part=announcer]");
  if (place) place.textContent = printableText(text);
}

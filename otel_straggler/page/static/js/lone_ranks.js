// Who has nobody to be compared with: a slowdown of 1.00 says nothing there.

export const NOBODY_WORDS = "no other rank to compare with";

/**
 * Whether no other rank of its role has a value, though the one at `place` has.
 * `values` are slowdowns or bytes, one for each rank of `ranks`. Cost: O(ranks) at most.
 */
export function isAlone(ranks, values, place) {
  if (!(values[place] > 0)) return false;
  const role = ranks.role?.[place];
  for (let other = 0; other < values.length; other += 1)
    if (other !== place && values[other] > 0 && ranks.role?.[other] === role) return false;
  return true;
}

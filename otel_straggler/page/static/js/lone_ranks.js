// Who has nobody to be compared with: a slowdown of 1.00 says nothing there.

export const NOBODY_WORDS = "no other rank to compare with";

/**
 * A function of a place: whether no other rank of its role has a value, though the one there has.
 * `values` are slowdowns or bytes, one for each rank of `ranks`. Cost: O(ranks), once.
 */
export function aloneAmong(ranks, values) {
  const known = new Map();
  for (let place = 0; place < values.length; place += 1) {
    if (!(values[place] > 0)) continue;
    const role = ranks.role?.[place];
    known.set(role, (known.get(role) ?? 0) + 1);
  }
  return (place) => values[place] > 0 && known.get(ranks.role?.[place]) === 1;
}

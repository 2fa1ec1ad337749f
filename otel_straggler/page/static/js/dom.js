// What a part shows is told as a tree of plain objects; `patch` makes the document so with the
// fewest changes. So focus, selection and scroll positions stay while numbers change, and parts can
// be tested without a browser. Text from data becomes text nodes and attributes, never markup.

const SVG = "http://www.w3.org/2000/svg";

/** What was drawn last into an element. */
const drawnTrees = new WeakMap();

/**
 * One element of a tree.
 *
 * @param tag name of the element; one beginning with `svg` or below such is SVG.
 * @param props attributes; `on...` are listeners, `style` an object of CSS properties, `key` tells
 *   an element among its siblings; false, null and undefined leave an attribute out.
 * @param children trees, texts, numbers, arrays of them; false and null are left out.
 */
export function el(tag, props, ...children) {
  return { tag, props: props || {}, children: flatTrees(children) };
}

/** Makes `parent` contain just `children`. Cost: O(elements). */
export function patch(parent, ...children) {
  const wanted = flatTrees(children);
  const focused = parent.contains(document.activeElement) ? document.activeElement : null;
  if (!drawnTrees.has(parent)) parent.replaceChildren();
  patchChildren(parent, drawnTrees.get(parent) || [], wanted, parent.namespaceURI === SVG);
  drawnTrees.set(parent, wanted);
  // what is moved among its siblings loses the focus
  if (focused?.isConnected && focused !== document.activeElement) focused.focus({ preventScroll: true });
}

/** All text of a tree, as a test or a title reads it. */
export function textOf(tree) {
  if (Array.isArray(tree)) return tree.map(textOf).join("");
  if (tree === null || tree === undefined || tree === false) return "";
  return typeof tree === "object" ? tree.children.map(textOf).join("") : String(tree);
}

/** All elements of a tree that fit. */
export function findTrees(tree, fits) {
  if (Array.isArray(tree)) return tree.flatMap((each) => findTrees(each, fits));
  if (tree === null || typeof tree !== "object") return [];
  return (fits(tree) ? [tree] : []).concat(findTrees(tree.children, fits));
}

/**
 * Text without characters that turn what follows around, or that nobody sees: a name with such
 * could make a sentence say something else.
 */
export function printableText(value) {
  return String(value).replace(UNPRINTABLE, "\ufffd");
}

const UNPRINTABLE = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]/g;

function flatTrees(children) {
  const flat = [];
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || typeof child === "boolean") continue;
    flat.push(typeof child === "object" ? child : printableText(child));
  }
  return flat;
}

function patchChildren(parent, before, wanted, isSvg) {
  const nodes = Array.from(parent.childNodes).slice(0, before.length);
  const matches = placesOfOld(before, wanted);
  const kept = new Set(matches);
  before.forEach((_, place) => {
    if (!kept.has(place)) nodes[place].remove(); // first, so that what stays need not move
  });
  let next = parent.firstChild;
  wanted.forEach((tree, place) => {
    const old = matches[place];
    const node =
      old === -1 ? madeNode(tree, isSvg) : patchedNode(nodes[old], before[old], tree, isSvg);
    if (node === next) next = next.nextSibling;
    else parent.insertBefore(node, next);
  });
}

/** For every wanted tree the place of the old one that it takes over, or -1. */
function placesOfOld(before, wanted) {
  const byKey = new Map();
  before.forEach((tree, place) => {
    if (keyOfTree(tree) !== undefined) byKey.set(keyOfTree(tree), place);
  });
  const used = new Set();
  return wanted.map((tree, place) => {
    const key = keyOfTree(tree);
    const old = key === undefined ? place : (byKey.get(key) ?? -1);
    if (old === -1 || old >= before.length || used.has(old)) return -1;
    if (!isSameKind(before[old], tree)) return -1;
    used.add(old);
    return old;
  });
}

function keyOfTree(tree) {
  return typeof tree === "object" && tree.props.key !== null ? tree.props.key : undefined;
}

function isSameKind(old, tree) {
  if (typeof old !== typeof tree) return false;
  return typeof tree !== "object" || (old.tag === tree.tag && keyOfTree(old) === keyOfTree(tree));
}

function patchedNode(node, old, tree, isSvg) {
  if (typeof tree !== "object") {
    if (old !== tree) node.nodeValue = tree;
    return node;
  }
  const inSvg = isSvg || tree.tag === "svg";
  patchProps(node, old.props, tree.props);
  patchChildren(node, old.children, tree.children, inSvg);
  return node;
}

function madeNode(tree, isSvg) {
  if (typeof tree !== "object") return document.createTextNode(tree);
  const inSvg = isSvg || tree.tag === "svg";
  const node = inSvg ? document.createElementNS(SVG, tree.tag) : document.createElement(tree.tag);
  patchProps(node, {}, tree.props);
  patchChildren(node, [], tree.children, inSvg);
  return node;
}

function patchProps(node, old, wanted) {
  for (const name of Object.keys(old)) if (!(name in wanted)) setProp(node, name, null, old[name]);
  for (const name of Object.keys(wanted)) {
    if (old[name] !== wanted[name]) setProp(node, name, wanted[name], old[name]);
  }
}

function setProp(node, name, value, old) {
  if (name === "key") return;
  if (name === "style") return setStyles(node, value || {}, old || {});
  if (name.startsWith("on")) {
    node[name.toLowerCase()] = value || null;
  } else if (name === "value" && "value" in node) {
    if (node.value !== value) node.value = value;
  } else if (value === null || value === undefined || value === false) {
    node.removeAttribute(name);
  } else {
    node.setAttribute(name, value === true ? "" : printableText(value));
  }
}

function setStyles(node, styles, old) {
  for (const name of Object.keys(old)) if (!(name in styles)) node.style.removeProperty(name);
  for (const name of Object.keys(styles)) {
    if (old[name] !== styles[name]) node.style.setProperty(name, String(styles[name]));
  }
}

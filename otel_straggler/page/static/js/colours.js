// Colours of slowdowns: diverging, safe for the colour-blind, neutral at 1.0; taken from the
// variables of charts.css, so that a theme is a matter of CSS alone.

import { EVEN_BYTE, byteOf } from "./bytes.js";

/** From here on the colour gets no stronger: twice as slow, or as fast. */
export const STRONGEST_SLOWDOWN = 2;
/** Below 1: small slowdowns get more of the scale than large ones. */
const SCALE_EXPONENT = 0.7;
/** Share of the scale (about 1.03x) under which colours stay near neutral: noise is no news. */
const QUIET_SHARE = 0.05;
const FALLBACK = {
  fast: ["#c9dff2", "#78b0de", "#3179bb", "#124384"],
  even: "#f6f6f4",
  slow: ["#fdd8ae", "#f79c47", "#da5a0e", "#852803"],
};

/** What charts draw with, of the theme in force at an element. Colours are "#rrggbb". */
export function readHeatPalette(element) {
  const style = getComputedStyle(element);
  const read = (name, otherwise) => style.getPropertyValue(name).trim() || otherwise;
  return {
    fast: read("--heat-fast", FALLBACK.fast.join(" ")).split(/\s+/),
    even: read("--heat-even", FALLBACK.even),
    slow: read("--heat-slow", FALLBACK.slow.join(" ")).split(/\s+/),
    ink: read("--chart-ink", "#1c2127"),
    quiet: read("--chart-quiet", "#57606a"),
    line: read("--chart-line", "#d0d7de"),
    surface: read("--chart-surface", "#ffffff"),
    empty: read("--chart-empty", "#e9ecef"),
    hatch: read("--chart-hatch", "#b6bec7"),
    flag: read("--chart-flag", "#b3261e"),
    accent: read("--chart-accent", "#0b57d0"),
    font: style.fontFamily || "sans-serif",
  };
}

/** Where a byte stands on the scale: -1 twice as fast or more, 0 even, 1 twice as slow or more. */
export function heatPosition(byte) {
  const reach = byteOf(STRONGEST_SLOWDOWN) - EVEN_BYTE;
  const share = Math.min(1, Math.abs(byte - EVEN_BYTE) / reach);
  const strength = share ** SCALE_EXPONENT * -Math.expm1(-((share / QUIET_SHARE) ** 2));
  return byte < EVEN_BYTE ? -strength : strength;
}

/** [r, g, b] of a place on the scale, 0 to 255 each, between the colours in OKLab. */
export function heatRgb(palette, position) {
  const stops = [palette.even, ...(position < 0 ? palette.fast : palette.slow)];
  const place = Math.abs(position) * (stops.length - 1);
  const lower = Math.min(stops.length - 2, Math.floor(place));
  const [from, to] = [oklabOfHex(stops[lower]), oklabOfHex(stops[lower + 1])];
  const share = place - lower;
  return rgbOfOklab(from.map((value, i) => value + share * (to[i] - value)));
}

/** For each byte a pixel as it lies in ImageData, seen as Uint32Array; 0 (clear) for no data. */
export function heatPixels(palette) {
  const channels = new Uint8ClampedArray(256 * 4);
  for (let byte = 1; byte < 256; byte += 1) {
    channels.set([...heatRgb(palette, heatPosition(byte)), 255], byte * 4);
  }
  return new Uint32Array(channels.buffer);
}

/** For each byte the CSS colour of its cell, and the colour to write on it. */
export function heatStyles(palette) {
  return Array.from({ length: 256 }, (_, byte) => {
    const rgb = heatRgb(palette, heatPosition(byte || EVEN_BYTE));
    return { fill: `rgb(${rgb.map(Math.round).join(" ")})`, ink: inkOn(rgb) };
  });
}

/** Black or white, whichever is read better; at least 4.5 to 1 on any colour. */
export function inkOn(rgb) {
  const black = contrastOf(rgb, [0, 0, 0]);
  return black >= contrastOf(rgb, [255, 255, 255]) ? "#000000" : "#ffffff";
}

/** The ratio of WCAG 2, 1 to 21. */
export function contrastOf(one, other) {
  const [high, low] = [luminanceOf(one), luminanceOf(other)].sort((a, b) => b - a);
  return (high + 0.05) / (low + 0.05);
}

function luminanceOf(rgb) {
  const [r, g, b] = rgb.map(linearOf);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

/** The scale as a CSS gradient, from twice as fast to twice as slow, for a legend. */
export function heatGradient(palette) {
  const stops = Array.from({ length: 33 }, (_, i) => {
    const byte = byteOf(STRONGEST_SLOWDOWN ** (i / 16 - 1));
    const rgb = heatRgb(palette, heatPosition(byte)).map(Math.round);
    return `rgb(${rgb.join(" ")}) ${(i / 32) * 100}%`;
  });
  return `linear-gradient(to right, ${stops.join(", ")})`;
}

export function rgbOfHex(hex) {
  const digits = /^#([0-9a-f]{6})$/i.exec(hex);
  if (!digits) throw new Error(`colour ${hex}: expected #rrggbb. Look at charts.css.`);
  return [16, 8, 0].map((shift) => (parseInt(digits[1], 16) >> shift) & 255);
}

function linearOf(channel) {
  const share = channel / 255;
  return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
}

function channelOf(linear) {
  const share = Math.min(1, Math.max(0, linear));
  return 255 * (share <= 0.0031308 ? share * 12.92 : 1.055 * share ** (1 / 2.4) - 0.055);
}

// OKLab, by its author: https://bottosson.github.io/posts/oklab/
function oklabOfHex(hex) {
  const [r, g, b] = rgbOfHex(hex).map(linearOf);
  const l = Math.cbrt(0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b);
  const m = Math.cbrt(0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b);
  const s = Math.cbrt(0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b);
  return [
    0.2104542553 * l + 0.793617785 * m - 0.0040720468 * s,
    1.9779984951 * l - 2.428592205 * m + 0.4505937099 * s,
    0.0259040371 * l + 0.7827717662 * m - 0.808675766 * s,
  ];
}

function rgbOfOklab([lightness, a, b]) {
  const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
  return [
    4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
    -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
    -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s,
  ].map(channelOf);
}

"""JavaScript that looks at a whole page for what a person could not see, read or use."""

from __future__ import annotations

POOR_CONTRAST = """() => {
    const parse = text => {
        const n = text.match(/[\\d.]+/g).map(Number);
        if (text.startsWith("color(srgb")) return [n[0]*255, n[1]*255, n[2]*255, n[3] ?? 1];
        return [n[0], n[1], n[2], n[3] ?? 1];
    };
    const over = (top, below) => top.slice(0, 3).map((c, i) => c*top[3] + below[i]*(1 - top[3]));
    const channel = c => (c /= 255) <= 0.04045 ? c/12.92 : ((c + 0.055)/1.055)**2.4;
    const light = c => 0.2126*channel(c[0]) + 0.7152*channel(c[1]) + 0.0722*channel(c[2]);
    const ground = element => {
        const layers = [];
        for (let e = element; e; e = e.parentElement) {
            const style = getComputedStyle(e);
            if (style.backgroundImage !== "none") return null;
            layers.push(parse(style.backgroundColor));
        }
        return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255]);
    };
    const poor = new Set();
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
        const element = walker.currentNode.parentElement;
        const text = walker.currentNode.textContent.trim();
        const seen = {checkOpacity: true, checkVisibilityCSS: true};
        if (!text || !element.checkVisibility(seen)) continue;
        if (element.closest("[disabled], script, style, option")) continue;
        const style = getComputedStyle(element);
        const below = ground(element);
        if (!below) continue;
        const ink = over(parse(style.color), below);
        const [a, b] = [light(ink), light(below)].sort((x, y) => y - x);
        const size = parseFloat(style.fontSize);
        const isLarge = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
        const ratio = (a + 0.05)/(b + 0.05);
        if (ratio < (isLarge ? 3 : 4.5)) {
            const what = `${element.tagName}.${element.className}: ${text.slice(0, 30)}`;
            poor.add(`${ratio.toFixed(2)} ${what}`);
        }
    }
    return [...poor].slice(0, 20);
}"""
"""Text whose contrast with its ground is below WCAG's AA."""

NAMELESS = """() => {
    const usable = "button, a[href], input, select, textarea, canvas, [tabindex], [role=button]";
    const name = e => (e.getAttribute("aria-label") || e.getAttribute("aria-labelledby")
        || e.labels?.[0]?.textContent || e.textContent || e.title || "").trim();
    return [...document.querySelectorAll(usable)]
        .filter(e => e.checkVisibility() && !e.closest("[aria-hidden=true]") && !name(e))
        .map(e => e.outerHTML.slice(0, 120));
}"""

FOCUSED = """() => {
    const e = document.activeElement;
    if (!e || e === document.body) return null;
    const style = getComputedStyle(e);
    const parts = [];
    for (let at = e; at; at = at.parentElement) if (at.dataset.part) parts.push(at.dataset.part);
    const outline = (style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0)
        || style.boxShadow !== "none";
    return {name: e.outerHTML.slice(0, 120), parts, outline};
}"""

TOO_WIDE = """() => {
    const mayScroll = element => {
        for (let at = element; at && at !== document.body; at = at.parentElement) {
            const style = getComputedStyle(at);
            if (style.clipPath !== "none") return true; // for screen readers only
            if (at !== element && style.overflowX !== "visible") return true;
        }
        return false;
    };
    const page = document.documentElement;
    if (page.scrollWidth > page.clientWidth) return [`${page.scrollWidth} of ${page.clientWidth}`];
    return [...document.querySelectorAll("body *")]
        .filter(e => e.checkVisibility() && e.getBoundingClientRect().right > innerWidth + 1)
        .filter(e => !mayScroll(e)).map(e => e.outerHTML.slice(0, 120)).slice(0, 5);
}"""
"""What reaches over the right edge of the window without being in something that scrolls."""

FITTING = """() => {
    let width = 0;
    for (const canvas of document.querySelectorAll("canvas")) {
        const box = canvas.getBoundingClientRect();
        if (!canvas.checkVisibility() || !box.width) continue;
        if (Math.abs(canvas.width - box.width*devicePixelRatio) > 2) return 0;
        if (Math.abs(canvas.height - box.height*devicePixelRatio) > 2) return 0;
        width += box.width;
    }
    return width;
}"""
"""Width of all canvases together, if each has the pixels that it covers; else 0."""

MEAN_COLOURS = """(canvas, places) => {
    const ratio = canvas.width/canvas.getBoundingClientRect().width;
    const half = 5*ratio;
    return places.map(([x, y]) => {
        const data = canvas.getContext("2d")
            .getImageData(x*ratio - half, y*ratio - half, 2*half, 2*half).data;
        const sums = [0, 0, 0];
        for (let i = 0; i < data.length; i += 4) for (const c of [0, 1, 2]) sums[c] += data[i + c];
        return sums.map(sum => sum/(data.length/4));
    });
}"""
"""Mean red, green and blue of squares of ten pixels of the page."""

REPORTED_AT_POINTER = """async canvas => {
    await new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));
    const tooltip = canvas.closest("[data-part]").querySelector("[role=tooltip]");
    return tooltip.checkVisibility() ? tooltip.textContent : "";
}"""
"""What the tooltip of a chart says once it has followed the pointer; empty while it is hidden."""

// News from the collector: that something has changed, not what.

/**
 * Listens until it is closed or lost. A browser would try again by itself after some errors and not
 * after others; here every error ends the stream, and who listens decides when to try again.
 *
 * @param told `opened()`, `snapshot(news)`, `runs(news)` and `lost()`.
 */
export function createStream(world, address, told) {
  const stream = world.openStream(address);
  let isOpen = true;
  const close = () => {
    isOpen = false;
    stream.close();
  };
  const listen = (name) => {
    stream.addEventListener(name, (event) => {
      const news = newsOf(event.data);
      if (isOpen && news !== null) told[name](news);
    });
  };
  stream.addEventListener("open", () => isOpen && told.opened());
  listen("snapshot");
  listen("runs");
  stream.addEventListener("error", () => {
    if (!isOpen) return;
    close();
    told.lost();
  });
  return { close };
}

function newsOf(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

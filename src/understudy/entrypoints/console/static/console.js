// Says how fresh the figures are, and when the connection is lost. Every page works without it.
(() => {
  "use strict";
  const live = document.getElementById("live");
  const heard = document.getElementById("heard");
  if (!live || !heard) return;
  const period = Number(live.dataset.period) * 1000;
  let last = Date.now();
  let verdict = words();
  let said = "";

  function words() {
    const found = live.querySelector(".verdict");
    return found ? found.textContent.trim() : "";
  }

  function clock(at) {
    return new Date(at).toISOString().slice(11, 19) + " UTC";
  }

  function tell() {
    const isLost = Date.now() - last > 3 * period + 2000;
    const isStale = live.querySelector("[data-stale]") !== null;
    const text = isLost ? "Not live: no answer since " + clock(last) : isStale ? "No new figures" : "live";
    heard.classList.toggle("lost", isLost || isStale);
    document.documentElement.classList.toggle("is-lost", isLost || isStale);
    if (text !== said) heard.textContent = said = text;
  }

  document.addEventListener("htmx:after:request", (event) => {
    const asked = event.detail && event.detail.ctx;
    if (asked && asked.sourceElement && asked.sourceElement !== live) return;
    const response = asked && asked.response;
    const status = response && response.status;
    if (status === 200 || status === 204) last = Date.now();
    tell();
  });

  document.addEventListener("htmx:after:swap", () => {
    const now = words();
    if (now !== verdict) {
      verdict = now;
      heard.textContent = said = now;
    }
  });

  tell();
  setInterval(tell, 1000);
})();

// Hears of news, says how fresh the figures are, and when the connection is lost. Every page works without it.
(() => {
  "use strict";
  const live = document.getElementById("live");
  const heard = document.getElementById("heard");
  if (!live || !heard) return;
  const period = Number(live.dataset.period) * 1000;
  const told = [live, ...document.querySelectorAll("[data-told]")];
  // While the stream lives, parts that have what was told of need not ask; else each asks at its period.
  const streamMs = 6000;
  const againMs = 15000;
  const waiting = new Set(told);
  // How much had been told when a request began: the answer to an earlier one may lack what was told since.
  const begunAt = new WeakMap();
  let news = 0;
  let stream = null;
  let streamAt = -Infinity;
  let triedAt = -Infinity;
  let last = Date.now();
  let stands = state();
  let troubled = trouble();
  let said = "";

  // What a page stands at; its sentence has figures that change at each look, which are not worth a word.
  function state() {
    const found = live.querySelector("[data-state]");
    return found ? found.dataset.state : "";
  }

  // What Health knows to be wrong, by its names; empty where nothing is.
  function trouble() {
    const found = document.querySelector("[data-trouble]");
    return found ? found.dataset.trouble : "";
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

  function isTold() {
    return performance.now() - streamAt < streamMs;
  }

  function open() {
    if (!live.dataset.stream || document.hidden || performance.now() - triedAt < againMs) return;
    triedAt = performance.now();
    stream = new EventSource(live.dataset.stream);
    stream.addEventListener("beat", () => {
      streamAt = performance.now();
      if (!waiting.has(live)) last = Date.now();
    });
    stream.addEventListener("news", () => {
      streamAt = performance.now();
      news += 1;
      for (const part of told) {
        waiting.add(part);
        htmx.trigger(part, "news");
      }
    });
  }

  function close() {
    if (stream) stream.close();
    stream = null;
    streamAt = triedAt = -Infinity;
  }

  // A hidden page holds no stream: browsers open few connections to one host, and each page needs some.
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  addEventListener("pagehide", close);
  addEventListener("pageshow", (event) => event.persisted && open());

  document.addEventListener("htmx:before:request", (event) => {
    const asked = event.detail && event.detail.ctx;
    const isPoll = asked && asked.sourceEvent && asked.sourceEvent.type === "every";
    if (isPoll && told.includes(asked.sourceElement) && isTold() && !waiting.has(asked.sourceElement)) {
      event.preventDefault();
    } else if (asked) {
      begunAt.set(asked, news);
    }
  });

  document.addEventListener("htmx:after:request", (event) => {
    const asked = event.detail && event.detail.ctx;
    const status = asked && asked.response && asked.response.status;
    const isAnswered = status === 200 || status === 204;
    if (isAnswered && begunAt.get(asked) === news) waiting.delete(asked.sourceElement);
    if (asked && asked.sourceElement && asked.sourceElement !== live) return;
    if (isAnswered) last = Date.now();
    tell();
  });

  document.addEventListener("htmx:after:swap", () => {
    const now = state();
    const verdict = live.querySelector(".verdict");
    if (now !== stands && verdict) {
      // What went back or fails interrupts who listens; all else waits for its turn.
      const part = document.getElementById(verdict.closest(".bad") ? "alarmed" : "told");
      part.textContent = verdict.textContent.trim();
    }
    stands = now;
    const wrong = trouble();
    if (wrong !== troubled && wrong) document.getElementById("told").textContent = "Health: " + wrong;
    troubled = wrong;
  });

  tell();
  open();
  setInterval(() => {
    tell();
    if (!stream || stream.readyState === EventSource.CLOSED) open();
  }, 1000);
})();

// Exchanges what has changed, every two seconds, while somebody looks and is in the middle of nothing.
"use strict";
const every = 2000;
function held() {
  const at = document.activeElement;
  return (at && /^(TEXTAREA|INPUT)$/.test(at.tagName)) || String(getSelection()) !== "" || document.querySelector("form:hover, form:active") !== null;
}
async function again() {
  if (!document.hidden) {
    try {
      const answer = await fetch(location.href, { cache: "no-store", signal: AbortSignal.timeout(3 * every) });
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      if (page.querySelector("main[data-spillway]") === null) {
        throw new Error("an answer of somebody else");
      }
      if (!held()) {
        for (const part of ["header", "main"]) {
          document.querySelector(part).replaceWith(document.importNode(page.querySelector(part), true));
        }
        const here = new URL(location.href); // what was said of a click is said once
        here.searchParams.delete("ended");
        history.replaceState(null, "", here);
      }
      document.body.classList.remove("stale");
    } catch {
      document.body.classList.add("stale"); // shown by the style: what stands there is old
    }
  }
  document.body.classList.toggle("held", held());
  setTimeout(again, every);
}
if (location.pathname !== "/explain") {
  setTimeout(again, every);
}

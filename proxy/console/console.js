// Exchanges what has changed, every two seconds, while somebody looks and is not typing.
"use strict";
const every = 2000;
async function again() {
  const busy = document.activeElement;
  const typing = busy && /^(TEXTAREA|INPUT|BUTTON)$/.test(busy.tagName);
  if (!document.hidden && !typing && String(getSelection()) === "" && location.pathname !== "/explain") {
    try {
      const answer = await fetch(location.href, { cache: "no-store", signal: AbortSignal.timeout(10 * every) });
      if (answer.ok) {
        const page = new DOMParser().parseFromString(await answer.text(), "text/html");
        document.querySelector("main").replaceWith(document.importNode(page.querySelector("main"), true));
      }
      document.body.classList.toggle("stale", !answer.ok);
    } catch {
      document.body.classList.add("stale"); // shown by the style: what stands there is old
    }
  }
  setTimeout(again, every);
}
setTimeout(again, every);

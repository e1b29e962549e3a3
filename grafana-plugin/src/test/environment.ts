// What browsers have and jsdom has not, before anything of Grafana's is loaded.
import { TextDecoder, TextEncoder } from 'node:util';

Object.assign(globalThis, { TextDecoder, TextEncoder });

class NoObserver {
  observe() {}
  unobserve() {}
  disconnect() {}
  takeRecords() {
    return [];
  }
}
Object.assign(globalThis, { ResizeObserver: NoObserver, IntersectionObserver: NoObserver });
globalThis.matchMedia = ((query: string) => ({
  matches: false,
  media: query,
  addEventListener() {},
  removeEventListener() {},
  addListener() {},
  removeListener() {},
})) as never;

// Text is measured on a canvas, and lists draw only the rows that fit: every element has a size here, every character a width.
HTMLCanvasElement.prototype.getContext = (() => ({ font: '', measureText: (text: string) => ({ width: 8 * text.length }) })) as never;
const size = { get: () => 1000, configurable: true };
Element.prototype.getBoundingClientRect = () => new DOMRect(0, 0, 1000, 1000);
Object.defineProperties(Element.prototype, { clientWidth: size, clientHeight: size });
Object.defineProperties(HTMLElement.prototype, { offsetWidth: size, offsetHeight: size });
Element.prototype.scrollIntoView = () => {};

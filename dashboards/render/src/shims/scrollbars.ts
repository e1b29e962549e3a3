// react-custom-scrollbars-2 is CommonJS whose default export esbuild hands to Grafana's ES modules as an object; the component itself is what they render.
export { Scrollbars as default, Scrollbars } from 'react-custom-scrollbars-2/lib/index.js';

declare module 'react-custom-scrollbars-2/lib/index.js' {
  export { Scrollbars } from 'react-custom-scrollbars-2';
}
declare module '*.css';

// Some of what Grafana's packages need comes as ES modules only, with each release other ones: all of node_modules is compiled, once, into jest's cache.
const swc = [
  '@swc/jest',
  {
    sourceMaps: 'inline',
    jsc: { target: 'es2022', parser: { syntax: 'typescript', tsx: true, decorators: false }, transform: { react: { runtime: 'classic' } } },
    module: { type: 'commonjs' },
  },
];

module.exports = {
  testEnvironment: 'jsdom',
  roots: ['<rootDir>/src'],
  setupFiles: ['<rootDir>/src/test/environment.ts'],
  setupFilesAfterEnv: ['<rootDir>/src/test/setup.ts'],
  transform: { '^.+\\.(t|j)sx?$': swc, '^.+\\.mjs$': swc },
  transformIgnorePatterns: [],
  moduleFileExtensions: ['ts', 'tsx', 'js', 'mjs', 'json'],
  // Icons are fetched; a test needs none.
  moduleNameMapper: { '\\.(css|scss|svg)$': '<rootDir>/src/test/empty.ts', '^react-inlinesvg$': '<rootDir>/src/test/icon.ts' },
};

// Bundles src/module.ts as Grafana loads it: an AMD module that takes React and Grafana's packages from Grafana, so that there is one of each. What stands beside
// it in dist/ is copied, with %VERSION% and %TODAY% of plugin.json replaced.
import { readFileSync, readdirSync } from 'node:fs';
import path from 'node:path';
import webpack from 'webpack';

const here = import.meta.dirname ?? path.dirname(new URL(import.meta.url).pathname);
const at = (...parts) => path.join(here, ...parts);
const { version } = JSON.parse(readFileSync(at('package.json'), 'utf8'));
const { id } = JSON.parse(readFileSync(at('src/plugin.json'), 'utf8'));

/** Where the pictures of README.md are shown from. */
const pictures = 'https://raw.githubusercontent.com/spillwayproject/spillway/main/grafana-plugin/src/img/';

/** Modules that Grafana provides to plugins. */
export const provided = [
  'lodash',
  'jquery',
  'moment',
  'slate',
  'emotion',
  '@emotion/react',
  '@emotion/css',
  'prismjs',
  'slate-plain-serializer',
  '@grafana/slate-react',
  'react',
  'react-dom',
  'react-redux',
  'redux',
  'rxjs',
  'i18next',
  'd3',
  'angular',
  '@grafana/ui',
  '@grafana/runtime',
  '@grafana/data',
];

/** Files as [where in dist, where they are]. */
function copied() {
  const under = (from, to) =>
    readdirSync(at(from), { recursive: true, withFileTypes: true })
      .filter((f) => f.isFile())
      .map((f) => [path.join(to, path.relative(at(from), path.join(f.parentPath ?? f.path, f.name))), path.join(f.parentPath ?? f.path, f.name)]);
  return [
    ...['README.md', 'CHANGELOG.md', 'LICENSE'].map((f) => [f, at(f)]),
    ['plugin.json', at('src/plugin.json')],
    ...under('src/img', 'img'),
    ...under('src/dashboards', 'dashboards'),
  ];
}

class Copy {
  apply(compiler) {
    const { RawSource } = webpack.sources;
    compiler.hooks.thisCompilation.tap('Copy', (compilation) => {
      compilation.hooks.processAssets.tap({ name: 'Copy', stage: webpack.Compilation.PROCESS_ASSETS_STAGE_ADDITIONAL }, () => {
        // A build that must come out the same each time sets the day, in seconds since 1970.
        const seconds = process.env.SOURCE_DATE_EPOCH;
        const today = new Date(seconds ? Number(seconds) * 1000 : Date.now()).toISOString().slice(0, 10);
        for (const [to, from] of copied()) {
          let content = readFileSync(from);
          if (to === 'plugin.json') {
            content = content.toString().replaceAll('%VERSION%', version).replaceAll('%TODAY%', today);
          } else if (to === 'README.md') {
            // The catalog shows it away from this folder: only whole addresses work there.
            content = content.toString().replaceAll('](src/img/', `](${pictures}`);
          }
          compilation.fileDependencies.add(from);
          compilation.emitAsset(to, new RawSource(content));
        }
      });
    });
  }
}

export default (_, { mode }) => ({
  context: here,
  entry: { module: './src/module.ts' },
  devtool: mode === 'production' ? 'source-map' : 'eval-source-map',
  externals: [
    ...provided,
    ({ request }, done) => (/^(react|react-dom|@emotion)\/.+/.test(request) ? done(new Error(`${request} is not provided by Grafana`)) : done()),
  ],
  output: {
    path: at('dist'),
    filename: '[name].js',
    library: { type: 'amd' },
    publicPath: `public/plugins/${id}/`,
    uniqueName: id,
  },
  resolve: { extensions: ['.ts', '.tsx', '.mjs', '.js'] },
  module: {
    rules: [
      {
        test: /\.tsx?$/,
        exclude: /node_modules/,
        use: {
          loader: 'swc-loader',
          options: { jsc: { target: 'es2022', parser: { syntax: 'typescript', tsx: true }, transform: { react: { runtime: 'classic' } } } },
        },
      },
    ],
  },
  optimization: { splitChunks: false },
  performance: { hints: 'error', maxAssetSize: 400_000, maxEntrypointSize: 400_000 },
  plugins: [new Copy()],
});
